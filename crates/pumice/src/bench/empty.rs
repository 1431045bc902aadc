//! Refusal to write to targets that are in use or hold data.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use ::bench::{Kind, Stop, Target};
use anyhow::{Context, Result, bail, ensure};
use nbd::client::{Connection, ExportUri};
use rustix::fs::{FlockOperation, Mode, OFlags, SeekFrom as SparseSeek};
use rustix::io::Errno;
use status::DriveState;

use super::examine::{ANSWER, Notice};
use crate::in_use;
use crate::signatures::{self, Contents, HEAD_BYTES, TAIL_BYTES};
use crate::usage::{WrongUsage, complain, printable};

/// Most bytes that are read to see whether all are zeros.
const READ_BYTES_MAX: u64 = 16 << 30;
/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Time for which a large target that held no data is taken to hold none but at its ends: to read it again
/// takes about as long.
const FRESH: Duration = Duration::from_secs(60);
/// Most bytes that are read again within that time.
const AGAIN_BYTES_MAX: u64 = 256 << 20;
/// Interval of looks at [`Extent::stop`] while a server is waited for.
const STOP_POLL: Duration = Duration::from_millis(100);
/// Bytes of an export that are read first, to see whether its server answers.
const HELLO_BYTES: usize = 4096;
/// Times that a drive is looked at which is locked, and the time between: udev locks a device to probe it.
const LOOKS_MAX: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Checks of targets before anything is written to them.
pub(super) struct TargetChecks<'a> {
    /// Whether data may be overwritten.
    destroy: bool,
    /// Ends the search for data, with an error.
    stop: &'a Stop,
    /// [`AGAIN_BYTES_MAX`].
    again_bytes_max: u64,
    /// When it was seen that a target holds no data, by its name.
    seen: RefCell<BTreeMap<String, Instant>>,
}

impl<'a> TargetChecks<'a> {
    pub(super) fn new(destroy: bool, stop: &'a Stop) -> TargetChecks<'a> {
        TargetChecks { destroy, stop, again_bytes_max: AGAIN_BYTES_MAX, seen: RefCell::default() }
    }

    pub(super) fn stop(&self) -> &'a Stop {
        self.stop
    }

    /// Fails if a target is in use, or holds data that may not be overwritten. One that is to be connected is
    /// looked at when it is.
    pub(super) fn first(&self, target: &Target) -> Result<()> {
        self.all_of(target, complain).map_err(|error| match error.is::<WrongUsage>() {
            true => WrongUsage(printable(&format!("target {}: {error}", target.name))).into(),
            false => error,
        })
    }

    fn all_of(&self, target: &Target, say: impl FnOnce(&str) + Send + 'static) -> Result<()> {
        free(target)?;
        if !self.destroy {
            let name = &target.name;
            let notice = || Notice::by(say, format!("looking for data on the target {name}"));
            let _notice = target.is_kept().then(notice);
            blank(target, Extent { bytes_max: None, stop: self.stop })?;
            self.seen.borrow_mut().insert(target.name.clone(), Instant::now());
        }
        Ok(())
    }

    /// Repeats [`TargetChecks::first`] before the first write to a target, minutes after the start. Reads all
    /// of the target again if [`FRESH`] has passed, or if it is small. `say` reports a read that takes long.
    pub(super) fn before_writes(
        &self,
        target: &Target,
        say: impl FnOnce(&str) + Send + 'static,
    ) -> Result<()> {
        let is_fresh = self.seen.borrow().get(&target.name).is_some_and(|at| at.elapsed() < FRESH);
        if !is_fresh || self.destroy {
            return self.all_of(target, say);
        }
        free(target)?;
        blank(target, Extent { bytes_max: Some(self.again_bytes_max), stop: self.stop })
    }
}

/// How data is looked for.
#[derive(Clone, Copy)]
struct Extent<'a> {
    /// If there are more bytes, only both ends are read.
    bytes_max: Option<u64>,
    /// Ends it, with an error.
    stop: &'a Stop,
}

/// Fails if a target is in use. Nothing allows to overwrite such a target.
pub(super) fn free(target: &Target) -> Result<()> {
    match &target.kind {
        Kind::Pumice { path: Some(path), .. } if path.exists() => {
            let refused = in_use::refuse(path);
            if refused.is_ok() && !is_open(path) {
                return Ok(());
            }
            // Only now are servers asked: one that hangs takes three seconds and a warning, and a drive is
            // looked at before each scene.
            if crate::status::of_server(path)?.is_some() {
                bail!(
                    "{}: is being served; stop its server, or use its NBD address as the target",
                    path.display()
                );
            }
            refused?;
            bail!("{}: in use by another program; stop it first (`fuser -v` names it)", path.display())
        }
        _ => target.device_path().map_or(Ok(()), in_use::refuse),
    }
}

/// Whether others have the file or device of a drive open, as those have who write to it: a device is claimed
/// then, and both are locked.
fn is_open(path: &Path) -> bool {
    let Ok(kind) = path.metadata().map(|found| found.file_type()) else { return false };
    let claim = match (kind.is_block_device(), kind.is_file()) {
        (true, _) => OFlags::EXCL,
        (_, true) => OFlags::empty(),
        // To open a pipe would wait for its other end.
        _ => return false,
    };
    let is_taken = || {
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | claim, Mode::empty());
        let lock = |file: OwnedFd| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        matches!(opened.and_then(lock), Err(Errno::BUSY | Errno::AGAIN))
    };
    let look = |_| {
        let is_taken = is_taken();
        if is_taken {
            std::thread::sleep(LOOK_AGAIN);
        }
        is_taken
    };
    (0..LOOKS_MAX).all(look)
}

/// Fails if a target holds data.
fn blank(target: &Target, how: Extent<'_>) -> Result<()> {
    match &target.kind {
        Kind::Pumice { path: Some(path), .. } if path.exists() => drive(path),
        Kind::Path(path) | Kind::NvmeTcp { device: Some(path), .. } => {
            let name = path.display().to_string();
            refuse(&name, file(path, how).with_context(|| name.clone())?)
        }
        Kind::Nbd(uri) => refuse(uri, export(uri, how)?),
        Kind::Rbd { pool, images, .. } => {
            let images = images.join(",");
            bail!("rbd:{pool}/{images}: may hold data, which is not looked for; overwrite it with --destroy")
        }
        _ => Ok(()),
    }
}

/// A drive must be empty. It has no server. A damaged one has only a partial status, which may hide data.
fn drive(path: &Path) -> Result<()> {
    let found = crate::status::idle(path)?;
    ensure!(
        found.state == DriveState::Idle,
        "{}: is {}, so what it holds is not known; run `pumice check`, or overwrite it with --destroy",
        path.display(),
        found.state
    );
    refuse(&path.display().to_string(), (found.logical_used_bytes > 0).then(|| "data".to_string()))
}

fn refuse(name: &str, found: Option<String>) -> Result<()> {
    match found {
        Some(what) => bail!("{name}: holds {what}; choose another, or overwrite it with --destroy"),
        None => Ok(()),
    }
}

fn file(path: &Path, how: Extent<'_>) -> Result<Option<String>> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    let ranges = data_ranges(&file, size)?;
    contents(size, ranges, how, |offset, bytes| {
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    })
}

/// Ranges of a file that are no holes; all of a device.
fn data_ranges(file: &File, size: u64) -> io::Result<Vec<std::ops::Range<u64>>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size {
        let from = match rustix::fs::seek(file, SparseSeek::Data(at)) {
            Ok(from) => from,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            // Devices, and file systems that know no holes.
            Err(_) => at,
        };
        at = rustix::fs::seek(file, SparseSeek::Hole(from)).unwrap_or(size).max(from + 1);
        ranges.push(from..at.min(size));
    }
    Ok(ranges)
}

/// What a search of an export is at.
enum Search {
    /// The server has answered, and is asked again.
    Answered,
    /// It is asked which parts hold data: it has time for each of many answers, and the connection limits
    /// that.
    Survey,
    Ended(Result<Option<String>>),
}

/// Looks for data on an export. The server may hang after it has said how large it is: another thread asks
/// it.
fn export(uri: &str, how: Extent<'_>) -> Result<Option<String>> {
    let parsed = ExportUri::parse(uri)?;
    let (sender, searched) = mpsc::channel();
    let (bytes_max, stop) = (how.bytes_max, how.stop.clone());
    // Without an answer it goes on until the program ends, or the connection gives up.
    std::thread::spawn(move || {
        let say = |search| drop(sender.send(search));
        let how = Extent { bytes_max, stop: &stop };
        say(Search::Ended(search_export(&parsed, how, say)));
    });
    let (mut since, mut limit) = (Instant::now(), Some(ANSWER));
    loop {
        match searched.recv_timeout(STOP_POLL) {
            Ok(Search::Answered) => (since, limit) = (Instant::now(), Some(ANSWER)),
            Ok(Search::Survey) => limit = None,
            Ok(Search::Ended(found)) => return found.with_context(|| uri.to_string()),
            Err(RecvTimeoutError::Disconnected) => bail!("{uri}: the search for data has ended"),
            Err(RecvTimeoutError::Timeout) if how.stop.is_set() => {
                return Err(io::Error::from(io::ErrorKind::Interrupted)).with_context(|| uri.to_string());
            }
            Err(RecvTimeoutError::Timeout) if limit.is_some_and(|limit| since.elapsed() >= limit) => {
                let why = format!(
                    "{uri}: the server does not answer a read within {} seconds, so what it holds is not known",
                    ANSWER.as_secs()
                );
                return Err(WrongUsage(printable(&why)).into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn search_export(uri: &ExportUri, how: Extent<'_>, say: impl Fn(Search)) -> Result<Option<String>> {
    let mut connection = Connection::open(uri, None)?;
    let size = connection.size_bytes();
    say(Search::Answered);
    connection.read_at(0, &mut [0; HELLO_BYTES])?;
    say(Search::Survey);
    let ranges = connection.data_ranges()?;
    say(Search::Answered);
    contents(size, ranges, how, |mut offset, mut bytes| {
        while !bytes.is_empty() {
            let read = connection.read_at(offset, bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            say(Search::Answered);
            offset += read as u64;
            bytes = &mut bytes[read..];
        }
        Ok(())
    })
}

/// Looks for known formats at both ends of something of `size` bytes, then for any byte in `ranges`.
fn contents(
    size: u64,
    ranges: Vec<std::ops::Range<u64>>,
    how: Extent<'_>,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> Result<Option<String>> {
    let mut part = |offset: u64, length: u64| {
        let mut bytes = vec![0; length as usize];
        read(offset, &mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    let head = part(0, HEAD_BYTES.min(size))?;
    let tail = part(size - TAIL_BYTES.min(size), TAIL_BYTES.min(size))?;
    if let Some(contents) = Contents::new(signatures::in_ends(size, &head, &tail)) {
        return Ok(Some(contents.to_string()));
    }
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if how.bytes_max.is_some_and(|most| total > most) {
        return Ok(None);
    }
    ensure!(
        total <= READ_BYTES_MAX,
        "{total} bytes are allocated, more than the {READ_BYTES_MAX} that are read to look for data; discard them \
         (`blkdiscard`), or overwrite it with --destroy"
    );
    let mut piece = vec![0; PIECE_BYTES];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let length = PIECE_BYTES.min((range.end - at) as usize);
            let Some(bytes) = piece.get_mut(..length) else { break };
            if how.stop.is_set() {
                return Err(io::Error::from(io::ErrorKind::Interrupted).into());
            }
            read(at, bytes)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(Some("data".to_string()));
            }
            at += length as u64;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &Path) -> Target {
        path.display().to_string().parse().expect("a target")
    }

    fn check(target: &Target, destroy: bool, stop: &Stop) -> Result<()> {
        TargetChecks::new(destroy, stop).first(target)
    }

    #[test]
    fn what_was_read_a_moment_ago_is_not_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let filled_at = |at: Option<usize>| {
            let mut bytes = vec![0; 4 << 20];
            at.into_iter().for_each(|at| bytes[at] = 1);
            std::fs::write(&path, bytes).expect("written");
        };
        let (target, stop) = (target(&path), Stop::default());
        let refused = |checks: &TargetChecks<'_>| {
            checks.before_writes(&target, complain).expect_err("data").to_string()
        };
        let mut checks = TargetChecks::new(false, &stop);
        filled_at(None);
        checks.first(&target).expect("blank");
        filled_at(Some(2 << 20));
        assert!(refused(&checks).contains("holds data"), "it is small enough");
        checks.again_bytes_max = 1 << 20;
        checks.before_writes(&target, complain).expect("not read");
        for end in [0, (4 << 20) - 1] {
            filled_at(Some(end));
            assert!(refused(&checks).contains("holds data"), "both ends are read: {end}");
        }
        filled_at(Some(2 << 20));
        checks.seen.borrow_mut().clear();
        assert!(refused(&checks).contains("holds data"), "it is long ago");
    }

    #[test]
    fn drives_that_are_open_are_recognized_without_a_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drive");
        assert!(!is_open(&path));
        let file = File::create(&path).expect("a file");
        assert!(!is_open(&path));
        file.lock_shared().expect("locked");
        assert!(is_open(&path));
        drop(file);
        assert!(!is_open(&path) && !is_open(folder.path()));
    }

    #[test]
    fn files_with_data_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let target = target(&path);
        std::fs::write(&path, vec![0; 4 << 20]).expect("written");
        check(&target, false, &Stop::default()).expect("blank");
        // At the end, and where neither end shows it.
        for at in [(4 << 20) - 1, 2 << 20] {
            let mut bytes = vec![0; 4 << 20];
            bytes[at] = 1;
            std::fs::write(&path, &bytes).expect("written");
            let error = check(&target, false, &Stop::default()).expect_err("data").to_string();
            let holds = format!("holds data (at byte {at}); choose another, or overwrite it with --destroy");
            let holds_in_the_middle = "holds data; choose another, or overwrite it with --destroy";
            assert!(error.ends_with(&holds) || error.ends_with(holds_in_the_middle), "{error}");
            check(&target, true, &Stop::default()).expect("may be overwritten");
        }
        let stop = Stop::default();
        stop.set();
        let error = check(&target, false, &stop).expect_err("interrupted");
        assert!(crate::usage::one_line(&error).contains("interrupted"), "{error:?}");
        assert!(check(&"raw".parse().expect("a target"), false, &Stop::default()).is_ok());
    }

    #[test]
    fn holes_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        File::create(&path).and_then(|file| file.set_len(READ_BYTES_MAX * 4)).expect("a file of holes");
        check(&target(&path), false, &Stop::default()).expect("blank");
        let stop = Stop::default();
        let how = Extent { bytes_max: None, stop: &stop };
        let error =
            contents(1 << 20, vec![0..READ_BYTES_MAX, 0..1], how, |_, _| Ok(())).expect_err("too much");
        assert!(error.to_string().contains("blkdiscard"), "{error}");
    }

    #[test]
    fn files_in_use_are_refused_whatever_the_options() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = File::create(&path).expect("a file");
        file.set_len(1 << 20).expect("a size");
        file.lock().expect("locked");
        let error = check(&target(&path), true, &Stop::default()).expect_err("in use").to_string();
        assert!(error.contains("in use: locked by process"), "{error}");
        drop(file);
        check(&target(&path), true, &Stop::default()).expect("free");
    }
}
