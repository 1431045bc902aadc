//! File descriptors that the parent process left open, or that a library of C opened. Those of the parent
//! stay open: they may hold a lock (`flock FILE pumice serve`), and the command line may name them
//! (`--config /dev/fd/8`). Commands of `on-event` and other programs must get none of them.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::{FdFlags, fcntl_setfd};

/// The last of the standard descriptors.
const STDERR: RawFd = 2;
/// Flag of a descriptor that programs started from here do not get, as in `/proc/PID/fdinfo`.
const CLOSE_ON_EXEC: i32 = libc::O_CLOEXEC;

/// Descriptors that the parent process left open, by number.
pub(super) struct Passed(Vec<RawFd>);

/// Keeps descriptors that this program has not opened itself, except the standard ones, from programs that
/// are started later. Does nothing if there is no `/proc`. Returns them: at the first call they are those of
/// the parent.
pub(super) fn keep_from_programs() -> Passed {
    let passed = passed_on(Path::new("/proc/self"));
    for number in &passed {
        let number = *number;
        // SAFETY: the descriptor was open when it was listed. This program closes none of those now: all that
        // it opens, and what it takes of the parent's, have the flag and are not listed. If a library has
        // closed it since, the call fails, or sets the flag of another descriptor, which has it already
        // unless it is a library's. Nothing is read, written or closed.
        #[allow(unsafe_code, reason = "a descriptor that nothing in this program owns has only its number")]
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        // It fails only for descriptors that are not open.
        let _ = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
    Passed(passed)
}

impl Passed {
    /// Takes a descriptor by its number. `None` if the parent has left none of that number, or it was taken.
    pub(super) fn take(&mut self, number: RawFd) -> Option<OwnedFd> {
        let at = self.0.iter().position(|listed| *listed == number)?;
        self.0.swap_remove(at);
        // SAFETY: it is open, as in `keep_from_programs`. Nothing in this program owns it: all that the
        // program opens has the flag and is not listed, and no library was there before the list. It gets one
        // owner, as it leaves the list.
        #[allow(unsafe_code, reason = "a descriptor that nothing in this program owns has only its number")]
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    }
}

/// Returns the descriptors of a process that programs started from it would get, except the standard ones.
fn passed_on(process: &Path) -> Vec<RawFd> {
    let entries = std::fs::read_dir(process.join("fd"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse().ok()).filter(|number| *number > STDERR);
    // All that this program opens itself has the flag.
    let is_passed_on = |number: &RawFd| {
        let info = std::fs::read_to_string(process.join(format!("fdinfo/{number}"))).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags
            .and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok())
            .is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
    };
    numbers.filter(is_passed_on).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn descriptors_that_programs_would_get_are_listed() {
        let process = tempfile::tempdir().expect("a directory");
        for (number, flags) in [(0, "02"), (2, "02"), (3, "02100000"), (9, "0100000"), (63, "00"), (64, "")] {
            for folder in ["fd", "fdinfo"] {
                fs::create_dir_all(process.path().join(folder)).expect("a directory");
            }
            fs::write(process.path().join(format!("fd/{number}")), "").expect("a descriptor");
            let info = format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t29\n");
            fs::write(process.path().join(format!("fdinfo/{number}")), info).expect("its flags");
        }
        let mut listed = passed_on(process.path());
        listed.sort_unstable();
        assert_eq!(listed, [9, 63]);
    }

    #[test]
    fn a_descriptor_of_a_library_is_kept_from_programs() {
        let file = fs::File::open("/dev/null").expect("a file");
        fcntl_setfd(&file, FdFlags::empty()).expect("as C opens files");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        assert!(passed_on(Path::new("/proc/self")).contains(&number));
        keep_from_programs();
        assert_eq!(rustix::io::fcntl_getfd(&file).expect("its flags"), FdFlags::CLOEXEC);
    }

    #[test]
    fn what_the_program_opens_itself_is_not_listed() {
        let file = fs::File::open("/dev/null").expect("a file");
        let listed = passed_on(Path::new("/proc/self"));
        assert!(!listed.contains(&std::os::fd::AsRawFd::as_raw_fd(&file)), "{listed:?}");
    }
}
