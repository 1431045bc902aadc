//! Numbers of drives. A drive keeps its number until the machine is restarted, whatever happens to the drive.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use status::{parse_path, path_text};

/// Suffix of the directory, after the name of the directory of admin sockets. A separate directory: a server
/// hands that one to its user.
const SUFFIX: &str = "-sfx";
/// File with the path of a drive.
const DRIVE: &str = "drive";
/// File with the block device that a drive has, or had last.
const NODE: &str = "node";
const LOCK: &str = "lock";
/// Most numbers.
const NUMBERS_MAX: u32 = 65_536;

/// Returns the directory of numbers and values.
pub fn directory() -> PathBuf {
    let mut dir = ask::runtime_dirs().into_iter().next().unwrap_or_default().into_os_string();
    dir.push(SUFFIX);
    PathBuf::from(dir)
}

/// Kernel name of the block device with a number.
pub fn name(number: u32) -> String {
    format!("sfdv{number}n1")
}

/// Path of the block device with a number.
pub fn node(number: u32) -> PathBuf {
    Path::new("/dev").join(name(number))
}

/// Returns the number in a name of a drive: `0`, `/dev/sfdv0n1`, or `/dev/sfxv0`, which is its controller.
pub fn number_of(text: &str) -> Option<u32> {
    let name = text.strip_prefix("/dev/").unwrap_or(text);
    let digits = name.strip_prefix("sfdv").and_then(|rest| rest.strip_suffix("n1"));
    let digits = digits.or_else(|| name.strip_prefix("sfxv"));
    let digits = digits.or((name == text).then_some(name))?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Directory of the drive with a number.
pub(super) fn folder(number: u32) -> PathBuf {
    directory().join(name(number))
}

/// Returns the path of the drive with a number; `None` if there is none.
pub fn drive(number: u32) -> Option<PathBuf> {
    drive_in(&trusted_directory()?, number)
}

/// Returns the number of the drive at `path`, which is absolute. A drive without one gets the smallest that
/// is free.
///
/// # Errors
///
/// If the directory cannot be written, or can be written by others.
pub fn claim(path: &Path) -> io::Result<u32> {
    let dir = directory();
    make_dir(&dir)?;
    if trusted_directory().is_none() {
        let what = format!("{}: belongs to another user, or is writable by others", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let _lock = lock(&dir.join(LOCK))?;
    claim_in(&dir, path, |number| is_taken(&node(number)))
}

/// Notes the block device of the drive with a number: it gets the same one again, if that is free then.
pub(super) fn keep_node(number: u32, device: &Path) -> io::Result<()> {
    write_whole(&folder(number), NODE, &format!("{}\n", path_text(device)))
}

/// Returns the block device that the drive at `path` had last.
pub(crate) fn last_node(path: &Path) -> Option<PathBuf> {
    last_node_in(&trusted_directory()?, path)
}

fn last_node_in(dir: &Path, path: &Path) -> Option<PathBuf> {
    let (number, _) = all_in(dir).find(|(_, drive)| is_same(drive, path))?;
    let text = fs::read_to_string(dir.join(name(number)).join(NODE)).ok()?;
    Some(parse_path(text.strip_suffix('\n')?))
}

/// Locks a file that nobody but this user can open: whoever could read it could also hold the lock.
fn lock(path: &Path) -> io::Result<File> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    let since = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if since.elapsed() < PATIENCE => sleep(PATIENCE / 50),
            Err(error) => return Err(error.into()),
        }
    }
}

fn claim_in(dir: &Path, path: &Path, is_taken: impl Fn(u32) -> bool) -> io::Result<u32> {
    let known: BTreeMap<u32, PathBuf> = all_in(dir).collect();
    if let Some((number, _)) = known.iter().find(|(_, drive)| is_same(drive, path)) {
        return Ok(*number);
    }
    let free = (0..NUMBERS_MAX).find(|number| !known.contains_key(number) && !is_taken(*number));
    let number = free.ok_or_else(|| io::Error::other("all numbers of drives are in use"))?;
    let folder = dir.join(name(number));
    make_dir(&folder)?;
    write_whole(&folder, DRIVE, &format!("{}\n", path_text(path)))?;
    Ok(number)
}

/// Returns all numbers with the paths of their drives.
fn all_in(dir: &Path) -> impl Iterator<Item = (u32, PathBuf)> + '_ {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| number_of(entry.file_name().to_str()?));
    numbers.filter_map(move |number| Some((number, drive_in(dir, number)?)))
}

fn drive_in(dir: &Path, number: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(name(number)).join(DRIVE)).ok()?;
    Some(parse_path(text.strip_suffix('\n')?))
}

/// Returns the directory if nobody but root or this user could have written to it: `format` takes drives from
/// it.
fn trusted_directory() -> Option<PathBuf> {
    let dir = directory();
    let found = fs::symlink_metadata(&dir).ok()?;
    let is_own = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    (found.is_dir() && is_own && found.mode() & 0o022 == 0).then_some(dir)
}

/// Returns whether something else has this name: a drive of ScaleFlux, or a link of another run-time
/// directory. A dangling link is a leftover.
fn is_taken(node: &Path) -> bool {
    fs::symlink_metadata(node).is_ok_and(|found| !found.is_symlink() || node.exists())
}

fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some(if found.rdev() != 0 { (0, found.rdev()) } else { (found.dev(), found.ino()) })
    };
    one == other || identity(one).is_some_and(|it| identity(other) == Some(it))
}

/// Creates a directory that all can read, whatever the umask is.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(dir) {
        Ok(()) => fs::set_permissions(dir, fs::Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Replaces a file in a directory, readable by all. A reader sees the text before or after.
pub(super) fn write_whole(dir: &Path, file: &str, text: &str) -> io::Result<()> {
    let new = dir.join(format!(".{file}"));
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    fs::rename(new, dir.join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers() {
        for (text, number) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("/dev/sfdv3n1", Some(3)),
            ("sfdv3n1", Some(3)),
            ("/dev/sfxv10", Some(10)),
            ("/dev/3", None),
            ("/dev/sfdvn1", None),
            ("/dev/sfdv1n2", None),
            ("/dev/sfdv+1n1", None),
            ("/dev/loop0", None),
            ("99999999999", None),
            ("", None),
        ] {
            assert_eq!(number_of(text), number, "{text}");
        }
        assert_eq!(node(7), Path::new("/dev/sfdv7n1"));
    }

    #[test]
    fn a_drive_keeps_its_number() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let dir = folder.path();
        let claim = |path: &Path| claim_in(dir, path, |number| number == 1);
        let file = dir.join("a drive");
        fs::write(&file, "")?;
        assert_eq!(claim(&file)?, 0);
        assert_eq!(claim(Path::new("/gone"))?, 2, "number 1 is taken");
        // By another name.
        std::os::unix::fs::symlink(&file, dir.join("link"))?;
        assert_eq!(claim(&dir.join("link"))?, 0);
        assert_eq!(claim(Path::new("/gone"))?, 2);
        assert_eq!(claim(Path::new("/other"))?, 3);
        assert_eq!(drive_in(dir, 0), Some(file));
        assert_eq!(drive_in(dir, 2).as_deref(), Some(Path::new("/gone")));
        assert_eq!(drive_in(dir, 1), None);
        assert_eq!(last_node_in(dir, &dir.join("link")), None);
        write_whole(&dir.join(name(0)), NODE, "/dev/loop7\n")?;
        assert_eq!(last_node_in(dir, &dir.join("link")).as_deref(), Some(Path::new("/dev/loop7")));
        Ok(())
    }
}
