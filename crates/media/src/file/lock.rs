//! Locks on files, against a second server on the same bytes.
//!
//! | opened | `flock` | range lock of the open file description |
//! | --- | --- | --- |
//! | all of a file or device, for writing | exclusive | |
//! | all of it, for reading | shared | shared, on all of it |
//! | a part, through a loop device, for writing | shared | exclusive, on the part |
//! | a part, for reading | shared | shared, on the part |
//!
//! Thus two partitions of one loop device can hold a drive each, and all other users are excluded. Both locks
//! end when the last reference to the open file is dropped.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use host::loops::Span;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::interrupted::retry_interrupted;

/// Number and interval of retries of a busy lock. `udev` briefly locks a device to probe it, whenever a
/// writer closes it. The lock of a killed process lasts until its I/O that is under way has ended.
const LOCK_RETRIES: u32 = 10;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Locks `span` of `file`. Waits for a moment (half a second) if it is locked.
///
/// # Errors
/// `AGAIN` if another open holds a conflicting lock.
pub(super) fn lock(file: &File, read_only: bool, span: Span) -> Result<(), Errno> {
    lock_with(file, read_only, span, || std::thread::sleep(LOCK_RETRY_INTERVAL))
}

/// As [`lock`], with a pause before each retry.
fn lock_with(file: &File, read_only: bool, span: Span, mut pause: impl FnMut()) -> Result<(), Errno> {
    let mut retries = LOCK_RETRIES;
    loop {
        match try_lock(file, read_only, span) {
            Err(Errno::AGAIN) if retries > 0 => {
                retries -= 1;
                pause();
            }
            other => return other,
        }
    }
}

/// Locks `span` of `file` without waiting.
fn try_lock(file: &File, read_only: bool, span: Span) -> Result<(), Errno> {
    let flock = |operation| retry_interrupted(|| rustix::fs::flock(file, operation));
    if !read_only && span == Span::WHOLE {
        return flock(FlockOperation::NonBlockingLockExclusive);
    }
    match lock_range(file, read_only, span) {
        Ok(()) => flock(FlockOperation::NonBlockingLockShared),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(Errno::AGAIN),
        // The file system does not support range locks, or the file could not be opened for writing, which an
        // exclusive range lock requires. A shared `flock` alone is enough for readers: it excludes whole-file
        // writers, as before range locks existed.
        Err(_) if read_only => flock(FlockOperation::NonBlockingLockShared),
        Err(_) => flock(FlockOperation::NonBlockingLockExclusive),
    }
}

/// `F_OFD_SETLK` of `fcntl(2)`.
fn lock_range(file: &File, shared: bool, span: Span) -> Result<(), Errno> {
    let offset = |bytes: u64| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    let wanted = libc::flock {
        l_type: if shared { libc::F_RDLCK } else { libc::F_WRLCK } as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(span.start),
        // 0 means up to the end. A length of 0 does not occur: a backing holds at least one page.
        l_len: span.len.map_or(0, |len| offset(len).min(libc::off_t::MAX - offset(span.start))),
        l_pid: 0,
    };
    retry_interrupted(|| {
        // SAFETY: the call reads the structure, which lives until it returns, and the descriptor is open.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_nest() {
        let span = |start, len| Span { start, len };
        for (inner, outer, both) in [
            (Span::WHOLE, Span::WHOLE, Span::WHOLE),
            (span(10, Some(5)), Span::WHOLE, span(10, Some(5))),
            (Span::WHOLE, span(100, Some(50)), span(100, Some(50))),
            (span(10, Some(5)), span(100, None), span(110, Some(5))),
            (span(10, Some(100)), span(100, Some(50)), span(110, Some(40))),
            (span(10, None), span(100, Some(50)), span(110, Some(40))),
        ] {
            assert_eq!(inner.within(outer), both, "{inner:?} {outer:?}");
        }
    }

    #[test]
    fn parts_are_locked_beside_each_other_and_against_all() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = |write| {
            File::options().read(true).write(write).open(file.path()).expect("another open of the same file")
        };
        let (first, second) = (Span { start: 0, len: Some(4096) }, Span { start: 4096, len: None });
        // Lock held, lock requested, and whether both are possible. Each lock: read-only or not, and the
        // span.
        for (held, wanted, together) in [
            ((false, first), (false, second), true),
            ((false, first), (false, first), false),
            ((false, first), (true, first), false),
            ((false, first), (true, second), true),
            ((true, first), (true, first), true),
            ((false, second), (false, Span::WHOLE), false),
            ((false, second), (true, Span::WHOLE), false),
            ((true, second), (true, Span::WHOLE), true),
            ((true, second), (false, Span::WHOLE), false),
            ((false, Span::WHOLE), (false, Span::WHOLE), false),
            ((true, Span::WHOLE), (true, Span::WHOLE), true),
        ] {
            for (one, other) in [(held, wanted), (wanted, held)] {
                let (here, there) = (open(true), open(true));
                try_lock(&here, one.0, one.1).expect("free");
                let got = try_lock(&there, other.0, other.1);
                assert_eq!(got, if together { Ok(()) } else { Err(Errno::AGAIN) }, "{one:?} {other:?}");
            }
        }
        // Without write access there is no exclusive lock on a part: the whole file is locked.
        let (here, there) = (open(false), open(true));
        try_lock(&here, false, first).expect("free");
        assert_eq!(try_lock(&there, false, second), Err(Errno::AGAIN));
    }

    #[test]
    fn a_lock_that_ends_in_a_moment_is_waited_for() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().read(true).write(true).open(file.path()).expect("opened");
        for span in [Span::WHOLE, Span { start: 0, len: Some(4096) }] {
            for (ends_after, expected) in
                [(1, Ok(())), (LOCK_RETRIES, Ok(())), (LOCK_RETRIES + 1, Err(Errno::AGAIN))]
            {
                let (mut here, there, mut pauses) = (Some(open()), open(), 0);
                here.iter().for_each(|here| try_lock(here, false, span).expect("free"));
                let pause = || {
                    pauses += 1;
                    if pauses == ends_after {
                        here = None;
                    }
                };
                assert_eq!(lock_with(&there, false, span, pause), expected, "{span:?} {ends_after}");
            }
        }
    }
}
