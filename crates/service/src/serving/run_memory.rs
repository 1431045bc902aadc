//! Memories of runs, as files in memory that outlive their server: see `docs/design/memory.md`.
//!
//! ```text
//! DRIVE-DEVICE-INODE-RUN.memory   its run holds a lock on it, as an opening does that uses it
//! .DRIVE-....memory.new           one that is being made
//! DRIVE-....memory.forgotten      could not be used; kept for an administrator until the next one, and read
//!                                 by nobody
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ask::runtime_dir::{MemoryDirs, entries, is_absence};
use drive::{KeptMemory, MEMORY_SHAPE, Verdict};
use host::patience::patiently;
use media::{Arena, exact_size};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, fstatvfs};
use rustix::io::Errno;
use status::shown;

/// File systems in memory (`TMPFS_MAGIC` of `linux/magic.h`). A disk would be written to inside the engine's
/// lock, and might be the drive itself.
const IN_MEMORY: u64 = 0x0102_1994;
/// A file system with less room than this is left to others.
const ROOM_MIN_BYTES: u64 = 64 << 20;
/// Longest wait for another process that looks at a memory, and its interval.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Time between openings with a memory over which several have died.
const RESTS: Duration = Duration::from_secs(60);

const EXTENSION: &str = ".memory";
const NEW: &str = ".new";
const FORGOTTEN: &str = ".forgotten";

/// What memories are of: a drive on a backing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Id of the drive.
    pub(crate) uuid: [u8; 16],
    /// Numbers of the backing: see [`media::FileMedia::identity`].
    pub(crate) backing: [u64; 2],
}

impl Key {
    fn of_drive(&self) -> String {
        uuid::Uuid::from_bytes(self.uuid).simple().to_string()
    }

    fn of_backing(&self) -> String {
        let [device, inode] = self.backing;
        format!("-{device:x}-{inode:x}-")
    }

    fn file(&self, run: u64) -> String {
        format!("{}{}{run:016x}{EXTENSION}", self.of_drive(), self.of_backing())
    }
}

/// The memory of this run.
pub(crate) struct RunMemory {
    path: PathBuf,
    /// Its lock ends with the process.
    file: File,
    /// Somebody has removed it, and the log says so.
    is_missed: AtomicBool,
}

impl RunMemory {
    /// Makes a memory in a directory.
    ///
    /// # Errors
    /// In one line, why there can be none.
    pub(crate) fn create(dir: &Path, key: &Key, run: u64) -> Result<(RunMemory, Arena), String> {
        must_be_in_memory(dir)?;
        let path = dir.join(key.file(run));
        let new = new_name(&path);
        let made = Self::make(&path, &new);
        made.map_err(|error| {
            // As far as it got.
            let _ = fs::remove_file(&new);
            format!("{}: {error}", shown(&path))
        })
    }

    fn make(path: &Path, new: &Path) -> io::Result<(RunMemory, Arena)> {
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(new)?;
        // Before anybody else sees it.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(MEMORY_SHAPE.len_bytes() as u64)?;
        let arena = Arena::shared(&file, MEMORY_SHAPE)?;
        fs::rename(new, path)?;
        Ok((RunMemory { path: path.to_path_buf(), file, is_missed: AtomicBool::new(false) }, arena))
    }

    /// Returns whether the next server will find it.
    pub(crate) fn is_there(&self) -> bool {
        // Another mount may hide it. A server that gave up root may not see its directory. What is unknown is
        // not waited for.
        let numbers = |found: fs::Metadata| (found.dev(), found.ino());
        let is_there = match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(own), Ok(found)) => numbers(own) == numbers(found),
            (_, Err(error)) if is_absence(&error) => false,
            (own, _) => own.map_or(true, |found| found.nlink() > 0),
        };
        if !is_there && !self.is_missed.swap(true, Ordering::Relaxed) {
            tracing::error!(
                memory = %shown(&self.path),
                "somebody has deleted or hidden the memory of this server: if it is killed, writes that are not \
                 flushed are lost; restart it to get another one"
            );
        }
        is_there
    }

    /// Gives it to the user that this process is going to be: the next server may be that user's from the
    /// start.
    pub(crate) fn give(&self, user: u32, group: u32) {
        // Otherwise a server of root can still use it.
        let _ = std::os::unix::fs::fchown(&self.file, Some(user), Some(group));
    }

    /// Removes it: nothing of it is needed.
    pub(crate) fn remove(self) {
        remove(&self.file, &self.path);
    }
}

fn must_be_in_memory(dir: &Path) -> Result<(), String> {
    let named = |error: Errno| format!("{}: {}", shown(dir), io::Error::from(error));
    let opened = File::open(dir).map_err(|error| format!("{}: {error}", shown(dir)))?;
    let kind = rustix::fs::fstatfs(&opened).map_err(named)?.f_type;
    if u64::try_from(kind) != Ok(IN_MEMORY) {
        return Err(format!("{} is not in memory (tmpfs)", shown(dir)));
    }
    let space = fstatvfs(&opened).map_err(named)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    // One without a limit reports no blocks at all.
    if space.f_blocks > 0 && free < ROOM_MIN_BYTES {
        return Err(format!("{} has only {} left", shown(dir), exact_size(free)));
    }
    Ok(())
}

fn new_name(path: &Path) -> PathBuf {
    let mut name = OsStr::new(".").to_os_string();
    name.push(path.file_name().unwrap_or_default());
    name.push(NEW);
    path.with_file_name(name)
}

/// Returns whether a file is at a path. An error: that is unknown.
fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    let numbers = |found: fs::Metadata| (found.dev(), found.ino());
    let own = patiently(|| file.metadata())?;
    Ok(at(path)?.is_some_and(|found| numbers(own) == numbers(found)))
}

/// What is at a path, if there is anything. An error: that is unknown.
fn at(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match patiently(|| fs::symlink_metadata(path)) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(file: &File, path: &Path) {
    // Who may not remove it, makes it one that has not begun: the magic number is the first word. A file that
    // cannot be written to either says so next.
    let _ = file.write_all_at(&[0; 8], 0);
    if is_same(file, path).unwrap_or_default()
        && let Err(error) = fs::remove_file(path)
    {
        // It must not fill the file system until the drive is opened again.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(file, hole, 0, MEMORY_SHAPE.len_bytes() as u64);
        tracing::warn!(memory = %shown(path), %error, "a memory that nobody needs cannot be removed");
    }
}

/// What is at the path of a memory.
enum Found {
    Left(LeftFile),
    /// The memory of a run that has the drive on another backing: this one is a copy.
    InUseElsewhere,
    /// None, or one of another backing that this user cannot read.
    Nothing,
}

/// Memories that earlier runs of a drive left.
pub(crate) struct LeftFiles {
    pub(crate) files: Vec<LeftFile>,
    /// A run has the drive on another backing.
    pub(crate) is_used_elsewhere: bool,
}

/// A memory that an earlier run left. Nobody else uses it until this is dropped.
pub(crate) struct LeftFile {
    path: PathBuf,
    /// The reason why it cannot be read, if it cannot.
    file: Result<File, String>,
    pub(crate) is_elsewhere: bool,
    is_refused: AtomicBool,
    is_stuck: AtomicBool,
    contradicts: AtomicBool,
}

impl KeptMemory for LeftFile {
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let file = self.opened()?;
        // No more than a memory has: it is that of a program that nobody knows.
        let len = file.metadata()?.len().min(MEMORY_SHAPE.len_bytes() as u64);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn store(&self, at: usize, word: u64) -> io::Result<()> {
        self.opened()?.write_all_at(&word.to_le_bytes(), at as u64)
    }

    fn has_rested(&self) -> bool {
        // An opening begins with a write.
        let changed = self.opened().and_then(File::metadata).and_then(|found| found.modified());
        changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|since| since >= RESTS))
    }

    fn judged(&self, verdict: Verdict) {
        match verdict {
            Verdict::Over => self.remove(),
            Verdict::Refused => self.is_refused.store(true, Ordering::Relaxed),
            Verdict::Stuck => self.is_stuck.store(true, Ordering::Relaxed),
            Verdict::Contradicts => self.contradicts.store(true, Ordering::Relaxed),
        }
    }
}

impl LeftFile {
    fn opened(&self) -> io::Result<&File> {
        self.file.as_ref().map_err(|why| io::Error::other(why.clone()))
    }

    fn new(path: &Path, file: Result<File, String>, is_elsewhere: bool) -> LeftFile {
        LeftFile {
            path: path.to_path_buf(),
            file,
            is_elsewhere,
            is_refused: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            contradicts: AtomicBool::new(false),
        }
    }

    /// The memory at a path in a directory of another user, whose word does not count. `None` if it is gone.
    ///
    /// # Errors
    /// In one line, why that is unknown.
    fn of_other(path: &Path) -> Result<Option<LeftFile>, String> {
        let found = at(path).map_err(|error| error.to_string())?;
        Ok(found.filter(fs::Metadata::is_file).map(|found| {
            let why =
                format!("its directory is that of another user, and it belongs to user {}", found.uid());
            LeftFile::new(path, Err(why), false)
        }))
    }

    /// Opens and locks the memory at a path.
    fn open(path: &Path, is_elsewhere: bool, writes: bool) -> Result<Found, String> {
        let left = |file| LeftFile::new(path, file, is_elsewhere);
        // No server makes anything else.
        if !at(path).map_err(|error| error.to_string())?.is_some_and(|found| found.is_file()) {
            return Ok(Found::Nothing);
        }
        // Whatever is there by now, opening it must not wait.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let file = match File::options().read(true).write(writes).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) if is_elsewhere => {
                return match error.kind() {
                    io::ErrorKind::PermissionDenied => Ok(Found::Nothing),
                    _ => Err(error.to_string()),
                };
            }
            Err(error) => return Ok(Found::Left(left(Err(error.to_string())))),
        };
        let lock = match writes {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        let since = Instant::now();
        let mut is_logged = false;
        loop {
            match flock(&file, lock) {
                Ok(()) => {
                    return match is_same(&file, path).map_err(|error| error.to_string())? {
                        true => Ok(Found::Left(left(Ok(file)))),
                        false => Ok(Found::Nothing),
                    };
                }
                // Its run has it. Who only looks shares it, for a moment.
                Err(Errno::WOULDBLOCK)
                    if is_elsewhere
                        && flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) =>
                {
                    return Ok(Found::InUseElsewhere);
                }
                Err(Errno::WOULDBLOCK) if since.elapsed() < LOCK_PATIENCE => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::info!(memory = %shown(path), "another process looks at the memory: waiting");
                    }
                    std::thread::sleep(LOCK_POLL);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err("another process has it locked".into());
                }
                Err(error) => return Ok(Found::Left(left(Err(io::Error::from(error).to_string())))),
            }
        }
    }

    /// Returns whether its run has written nothing in it: the magic number, of one word, is the last of what
    /// a memory begins with.
    fn has_not_begun(&self) -> bool {
        let mut magic = [0; 8];
        let read = self.opened().and_then(|file| file.read_exact_at(&mut magic, 0));
        read.is_ok() && magic == [0; 8]
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it: nothing of it is needed.
    pub(crate) fn remove(&self) {
        if let Ok(file) = &self.file {
            remove(file, &self.path);
        }
    }

    /// Returns whether it has stopped an opening.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed) || self.may_serve_later() || self.contradicts()
    }

    /// Returns whether it alone shows that the drive is damaged.
    pub(crate) fn contradicts(&self) -> bool {
        self.contradicts.load(Ordering::Relaxed)
    }

    /// Returns whether it is unknown what is in it.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.file.is_err()
    }

    /// Returns whether it is whole, as far as is known: openings with it came to no end, or it cannot be
    /// read.
    pub(crate) fn may_serve_later(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed) || self.is_unreadable()
    }

    /// Removes what was set aside before of the same drive on the same backing.
    pub(crate) fn remove_forgotten(&self) {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let (Some((of_backing, _)), Some(dir)) = (name.rsplit_once('-'), self.path.parent()) else { return };
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&[of_backing, "-"].concat())
                && name.ends_with(&[EXTENSION, FORGOTTEN].concat())
            {
                // It is as good as gone for everybody but an administrator.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Sets it aside, where no opening looks. Returns its new name.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn forget(&self) -> io::Result<PathBuf> {
        let mut aside = self.path.clone().into_os_string();
        aside.push(FORGOTTEN);
        fs::rename(&self.path, &aside)?;
        Ok(aside.into())
    }
}

/// Finds the memories that runs of a drive left in these directories. The caller has the backing locked, so
/// no process has a memory that this backing needs.
///
/// # Errors
/// In one line, which one cannot be used.
pub(crate) fn left(dirs: &MemoryDirs, key: &Key, writes: bool) -> Result<LeftFiles, (PathBuf, String)> {
    let (drive, backing) = (key.of_drive(), key.of_backing());
    let (mut left, mut is_used_elsewhere) = (Vec::new(), false);
    for dir in &dirs.of_others {
        let is_memory =
            |name: &str| name.starts_with(&[&*drive, &*backing].concat()) && name.ends_with(EXTENSION);
        for path in entries(dir).map_err(|error| (dir.clone(), error.to_string()))? {
            if path.file_name().and_then(OsStr::to_str).is_some_and(is_memory) {
                left.extend(LeftFile::of_other(&path).map_err(|why| (path, why))?);
            }
        }
    }
    for dir in &dirs.own {
        for path in entries(dir).map_err(|error| (dir.clone(), error.to_string()))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_of_backing = name.contains(&backing);
            if let Some(name) = name.strip_prefix('.') {
                if writes && is_of_backing && name.ends_with(&[EXTENSION, NEW].concat()) {
                    remove_unfinished(&path);
                }
                continue;
            }
            if !name.starts_with(&drive) || !name.ends_with(EXTENSION) {
                continue;
            }
            match LeftFile::open(&path, !is_of_backing, writes) {
                // Starts that are killed again and again must not fill the directory.
                Ok(Found::Left(found)) if writes && is_of_backing && found.has_not_begun() => found.remove(),
                Ok(Found::Left(found)) => left.push(found),
                Ok(Found::InUseElsewhere) => is_used_elsewhere = true,
                Ok(Found::Nothing) => {}
                Err(why) => return Err((path, why)),
            }
        }
    }
    Ok(LeftFiles { files: left, is_used_elsewhere })
}

/// Removes what a process left that was killed while it made a memory.
fn remove_unfinished(path: &Path) {
    let Ok(file) = File::options().write(true).open(path) else { return };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        remove(&file, path);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const KEY: Key = Key { uuid: [7; 16], backing: [1, 2] };

    #[test]
    fn a_memory_that_the_next_server_does_not_find_is_not_there() -> io::Result<()> {
        let Ok(above) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("skipped: no directory in memory at /dev/shm");
            return Ok(());
        };
        let [dir, elsewhere] = ["memories", "elsewhere"].map(|name| above.path().join(name));
        fs::create_dir(&dir)?;
        let (memory, _arena) = RunMemory::create(&dir, &KEY, 1).map_err(io::Error::other)?;
        assert!(memory.is_there());
        fs::rename(&dir, &elsewhere)?;
        assert!(!memory.is_there());
        fs::create_dir(&dir)?;
        fs::write(dir.join(KEY.file(1)), "another one")?;
        assert!(!memory.is_there());
        fs::remove_dir_all(&dir)?;
        fs::rename(&elsewhere, &dir)?;
        assert!(memory.is_there());
        memory.remove();
        assert!(!fs::exists(dir.join(KEY.file(1)))?);
        Ok(())
    }

    #[test]
    fn memories_that_cannot_be_looked_for_may_be_there() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle)?;
        let (own, of_others) = (vec![circle.clone()], vec![circle.clone()]);
        for dirs in
            [MemoryDirs { own, ..MemoryDirs::default() }, MemoryDirs { of_others, ..MemoryDirs::default() }]
        {
            assert!(left(&dirs, &KEY, true).is_err_and(|(path, _)| path == circle));
        }
        Ok(())
    }

    #[test]
    fn a_memory_of_another_user_is_there_and_cannot_be_read() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let of_other_drive = Key { uuid: [8; 16], ..KEY };
        for name in [KEY.file(1), of_other_drive.file(1), Key { backing: [1, 3], ..KEY }.file(1)] {
            fs::write(dir.path().join(name), "a memory")?;
        }
        let dirs = MemoryDirs { of_others: vec![dir.path().to_path_buf()], ..MemoryDirs::default() };
        let found = left(&dirs, &KEY, true).map_err(|(_, why)| io::Error::other(why))?.files;
        let [found] = found.as_slice() else { panic!("{} memories", found.len()) };
        assert_eq!(found.path(), dir.path().join(KEY.file(1)));
        let error = found.bytes().expect_err("its word does not count").to_string();
        assert!(error.contains("another user"), "{error}");
        assert!(found.may_serve_later() && found.is_refused());
        Ok(())
    }

    #[test]
    fn a_memory_rests_from_the_beginning_of_an_opening() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let dirs = MemoryDirs { own: vec![dir.path().to_path_buf()], ..MemoryDirs::default() };
        let path = dir.path().join(KEY.file(1));
        fs::write(&path, [1; 16])?;
        let found = left(&dirs, &KEY, true).map_err(|(_, why)| io::Error::other(why))?.files;
        let [found] = found.as_slice() else { panic!("{} memories", found.len()) };
        File::options().write(true).open(&path)?.set_modified(SystemTime::now() - 2 * RESTS)?;
        assert!(found.has_rested());
        found.store(8, 1)?;
        assert!(!found.has_rested());
        Ok(())
    }

    #[test]
    fn what_was_set_aside_stays_until_the_next_one() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let dirs = MemoryDirs { own: vec![dir.path().to_path_buf()], ..MemoryDirs::default() };
        let other = dir.path().join(Key { uuid: [8; 16], ..KEY }.file(1) + FORGOTTEN);
        fs::write(&other, "of another drive")?;
        for run in 1..4 {
            fs::write(dir.path().join(KEY.file(run)), [1; 16])?;
            let found = left(&dirs, &KEY, true).map_err(|(_, why)| io::Error::other(why))?.files;
            let [found] = found.as_slice() else { panic!("{} memories", found.len()) };
            found.remove_forgotten();
            let aside = found.forget()?;
            let there = fs::read_dir(dir.path())?.flatten().map(|entry| entry.path());
            let mut there: Vec<PathBuf> = there.collect();
            there.sort();
            assert_eq!(there, [aside, other.clone()]);
        }
        Ok(())
    }
}
