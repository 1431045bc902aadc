//! A loop device on a FUSE file, whose requests the drive's server takes from the kernel. Works wherever
//! there are /dev/fuse and loop devices, in containers too.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use fuse::{Attributes, FILE_NAME, Mount};
use host::Root;
use host::loops::loop_devices;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{Node, Remains, Source, claim, in_use, partitions, queue};
use crate::error::AttachError;
use crate::kernel::{self, LOOP_CONFIG_BYTES, LOOP_DIRECT_IO, LOOP_READ_ONLY};
use crate::line::{Driver, Line};
use crate::place::{self, Record};
use crate::server::{connections, left_shares};
use crate::shape::Shape;
use crate::shares::Shares;
use crate::upstream::{NotConnected, Supply, Upstream};
use host::block::node;

/// Name of the mount point in the folder of an attachment.
const MOUNT: &str = "file";
/// Attempts to get a free loop device before another process does.
const TRIES: usize = 16;
/// Longest wait for the server to take the FUSE file.
const SERVER_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a change of size. It is tried again.
const RESIZE_PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for the kernel to look for partitions.
const SCAN_PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for who has a device open that becomes no node.
const UNFINISHED_PATIENCE: Duration = Duration::from_secs(1);
/// Size of a block of the file.
const BLOCK_BYTES: u32 = 4096;
/// Longest wait for a flush of a device that has no keeper.
const FLUSH_PATIENCE: Duration = Duration::from_secs(60);
/// Interval of checks whether a device is free.
const POLL: Duration = Duration::from_millis(20);

/// See the [module](self).
pub(super) struct LoopNode {
    path: PathBuf,
    /// A change of size in progress.
    resizing: Option<JoinHandle<()>>,
    /// Path of the FUSE file.
    file: PathBuf,
    /// Its size.
    size_bytes: Arc<AtomicU64>,
    shares: Arc<Shares>,
    line: Arc<Line>,
    /// It outlives this value.
    is_kept: bool,
}

/// The FUSE file, as the line sees it.
struct FileDriver {
    shares: Arc<Shares>,
    size_bytes: Arc<AtomicU64>,
    folder: PathBuf,
}

impl Driver for FileDriver {
    fn wait(&self) {
        self.shares.answer(self.size_bytes.load(Ordering::Relaxed));
    }

    fn abort(&self) {
        end_requests(&self.folder);
    }
}

impl LoopNode {
    pub(super) fn make(
        source: Source,
        shape: &Shape,
        folder: &Path,
        last: Option<&Path>,
    ) -> Result<(LoopNode, Arc<Line>), AttachError> {
        for (path, what) in [("/dev/fuse", "FUSE"), ("/dev/loop-control", "loop devices")] {
            if let Err(error) = File::options().read(true).write(true).open(path) {
                return Err(AttachError::Missing(format!("no {what} here: {path}: {error}")));
            }
        }
        let mode = if shape.read_only { 0o400 } else { 0o600 };
        let attributes = Attributes { size_bytes: shape.size_bytes, mode, block_bytes: BLOCK_BYTES };
        let at_mount = |source| AttachError::system("cannot mount a FUSE file system", source);
        let mut mount = Mount::new(&folder.join(MOUNT), attributes).map_err(at_mount)?;
        let device = Unfinished::new(connect(&mount.path(), shape, &name_of(folder), last)?, folder);
        if !shape.read_only {
            queue::send_flushes(device.path());
        }
        let line = source.line()?;
        // Not earlier: a process with the FUSE device could make the file a link to another one.
        let shares = mount.hand_over(connections()).map_err(at_mount)?;
        let shares = Shares::new(mount, shares);
        let mut node = LoopNode::of((device.finish(), folder), shares, shape.size_bytes, line.clone());
        if let Err(error) = node.bring(folder) {
            // Requests that wait for the server would keep the device busy.
            line.give_up(&error.to_string());
            let _ = node.remove(Duration::from_secs(1), true).inspect_err(|error| tracing::error!("{error}"));
            return Err(AttachError::ServerGone(error));
        }
        scan_partitions(&node.path);
        Ok((node, line))
    }

    /// Takes over the device of a killed keeper, which its server serves. If this fails, the server goes on.
    pub(super) fn recover(
        source: Source,
        path: &Path,
        folder: &Path,
        shape: &Shape,
    ) -> Result<(LoopNode, Arc<Line>), AttachError> {
        let left = source.server.left_shares();
        let left = left.map_err(|source| AttachError::Server { path: path.into(), source: source.into() })?;
        let first = left.first().ok_or_else(|| AttachError::NothingLeft { node: path.into() })?;
        let mode = if shape.read_only { 0o400 } else { 0o600 };
        let attributes = Attributes { size_bytes: shape.size_bytes, mode, block_bytes: BLOCK_BYTES };
        let mount = Mount::of_share(&folder.join(MOUNT), first, attributes)
            .map_err(|source| AttachError::system("the FUSE file", source))?;
        let line = source.line()?;
        let shares = Shares::new(mount, left);
        let mut node = LoopNode::of((path.into(), folder), shares, shape.size_bytes, line.clone());
        node.is_kept = true;
        match node.bring(folder) {
            Ok(()) => {}
            // The last descriptors are here: requests are held, and the line goes on looking for a server.
            Err(error) if node.shares.are_alone() => {
                tracing::warn!(%error, "taken over while no server has the device");
            }
            Err(error) => return Err(AttachError::ServerGone(error)),
        }
        Ok((node, line))
    }

    fn of((path, folder): (PathBuf, &Path), shares: Shares, size_bytes: u64, line: Arc<Line>) -> LoopNode {
        LoopNode {
            path,
            resizing: None,
            file: folder.join(MOUNT).join(FILE_NAME),
            size_bytes: Arc::new(AtomicU64::new(size_bytes)),
            shares: Arc::new(shares),
            line,
            is_kept: false,
        }
    }

    /// Hands the file over to the server.
    fn bring(&self, folder: &Path) -> Result<(), NotConnected> {
        let (shares, size_bytes) = (self.shares.clone(), self.size_bytes.clone());
        let driver = FileDriver { shares: shares.clone(), size_bytes, folder: folder.into() };
        self.line.bring(Supply::Shares(shares), Box::new(driver), SERVER_PATIENCE)
    }
}

impl Drop for LoopNode {
    fn drop(&mut self) {
        if self.is_kept {
            self.line.abandon();
        }
    }
}

/// A loop device with the file in a folder, which loses it again unless it becomes a node.
struct Unfinished {
    /// `None`: it is finished.
    path: Option<PathBuf>,
    folder: PathBuf,
}

impl Unfinished {
    fn new(path: PathBuf, folder: &Path) -> Unfinished {
        Unfinished { path: Some(path), folder: folder.to_path_buf() }
    }

    fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    fn finish(mut self) -> PathBuf {
        self.path.take().unwrap_or_default()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        // A program that looks at each new device may be reading, and nobody would answer.
        end_requests(&self.folder);
        let mount = real_mount(&self.folder);
        if let Err(error) =
            clear(path, |file| is_left(file, &mount, None), UNFINISHED_PATIENCE, Flush::Done, true)
        {
            tracing::error!("{}: it stays behind: {error}", path.display());
        }
    }
}

/// Makes the kernel scan a device for partitions, which its server has to answer. Waits for the scan only
/// briefly: the device works without it, and partitions may appear later.
fn scan_partitions(path: &Path) {
    let (sender, scanned) = mpsc::channel();
    let device = path.to_path_buf();
    let scan = move || {
        let scanned = File::open(&device).and_then(|device| Ok(kernel::loop_scan_partitions(&device)?));
        // The receiver is gone if it took too long.
        let _ = sender.send(scanned);
    };
    // Without a thread, the administrator can scan for partitions.
    if let Err(error) = std::thread::Builder::new().name("partitions".into()).spawn(scan) {
        tracing::warn!(%error, "no scan for partitions");
        return;
    }
    match scanned.recv_timeout(SCAN_PATIENCE) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "no scan for partitions"),
        Err(_) => tracing::warn!("the scan for partitions waits for the server"),
    }
}

/// Sets the size of a loop device to that of its file.
fn set_capacity(path: &Path, file: &Path, size_bytes: u64) -> Result<(), AttachError> {
    let device = File::open(path).map_err(|source| AttachError::system(path.display(), source))?;
    // The driver uses the size that the file system knows, so it has to ask the server first.
    let found = fs::metadata(file).map_err(|source| AttachError::system("FUSE file", source))?;
    if found.len() < size_bytes {
        return Err(AttachError::Refused("the kernel does not know the size of the file yet".to_string()));
    }
    kernel::loop_set_capacity(&device).map_err(|error| AttachError::system("LOOP_SET_CAPACITY", error.into()))
}

/// Name of the file of a loop device, as `losetup` and udev show it (`/dev/disk/by-loop-ref/`): each drive
/// has its own, the same each time.
fn name_of(folder: &Path) -> String {
    format!("pumice-{}", folder.file_name().unwrap_or_default().to_string_lossy())
}

/// Attaches the file to a free loop device: to `last` if that is free. Returns its path.
fn connect(file: &Path, shape: &Shape, name: &str, last: Option<&Path>) -> Result<PathBuf, AttachError> {
    let flags = if shape.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |path: &Path| rustix::fs::open(path, flags, Mode::empty());
    let file = open(file).map_err(|error| AttachError::system("cannot open the FUSE file", error.into()))?;
    let control = File::options().read(true).write(true).open("/dev/loop-control");
    let control = control.map_err(|source| AttachError::system("/dev/loop-control", source))?;
    let config = configuration(&file, shape, name);
    // There are other loop devices to try.
    let is_loop = |path: &&Path| {
        path.file_name().and_then(|name| name.to_str()?.strip_prefix("loop")?.parse::<u32>().ok()).is_some()
            && path.parent() == Some(Path::new("/dev"))
    };
    if let Some(last) = last.filter(is_loop)
        && let Ok(device) = open(last)
        && kernel::loop_configure(&device, config).is_ok()
    {
        return Ok(last.to_path_buf());
    }
    for _ in 0..TRIES {
        let number = kernel::loop_get_free(&control)
            .map_err(|error| AttachError::Missing(format!("no free loop device: {error}")))?;
        let path = node(&format!("loop{number}"));
        let configured = open(&path)
            .map_err(|error| (true, error))
            .and_then(|device| kernel::loop_configure(&device, config).map_err(|error| (false, error)));
        match configured {
            Ok(()) => return Ok(path),
            // Another process was faster.
            Err((_, Errno::BUSY)) => {}
            Err((true, Errno::NOENT | Errno::NXIO)) => {
                let advice = format!("mknod {} b 7 {number}", path.display());
                return Err(AttachError::Missing(format!(
                    "no free loop device: no {} (`{advice}`)",
                    path.display()
                )));
            }
            Err((true, error)) => return Err(AttachError::system(path.display(), error.into())),
            Err((false, Errno::INVAL | Errno::NOTTY)) => {
                return Err(AttachError::Missing(
                    "the kernel's loop devices have no LOOP_CONFIGURE: Linux 5.8 or newer is needed"
                        .to_string(),
                ));
            }
            Err((false, error)) => return Err(AttachError::system("LOOP_CONFIGURE", error.into())),
        }
    }
    Err(AttachError::Missing("no free loop device: others take each first".to_string()))
}

/// Encodes a `struct loop_config` of `linux/loop.h`.
fn configuration(file: &OwnedFd, shape: &Shape, name: &str) -> [u8; LOOP_CONFIG_BYTES] {
    const INFO: usize = 8;
    const FLAGS: usize = INFO + 52;
    const NAME: usize = INFO + 56;
    const NAME_BYTES: usize = 64;
    let mut config = [0; LOOP_CONFIG_BYTES];
    let mut put = |at: usize, number: u32| config[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    put(0, file.as_raw_fd() as u32);
    put(4, shape.sector_bytes);
    let read_only = if shape.read_only { LOOP_READ_ONLY } else { 0 };
    put(FLAGS, LOOP_DIRECT_IO | read_only);
    // The last byte of the name stays zero.
    let name = &name.as_bytes()[..name.len().min(NAME_BYTES - 1)];
    config[NAME..NAME + name.len()].copy_from_slice(name);
    config
}

/// File of a loop device, as sysfs shows it.
fn backing_file(name: &str) -> Option<PathBuf> {
    host::loops::backing_file(&Path::new("/sys/block").join(name)).ok()?
}

/// Path of the mount point in the folder of an attachment as sysfs shows it: without links. What is mounted
/// there is not asked.
fn real_mount(folder: &Path) -> PathBuf {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf()).join(MOUNT)
}

/// Path that sysfs shows of a file whose file system is not mounted anywhere any more (`umount --lazy`).
fn unmounted_file() -> PathBuf {
    Path::new("/").join(FILE_NAME)
}

/// Returns whether a file of a loop device, as sysfs shows it, is one that a killed bridge left: in its mount
/// point, or, of the device that it recorded, where a file is shown that is not mounted any more. Any other
/// bridge's may be shown there too.
fn is_left(file: &Path, mount: &Path, unmounted: Option<&Path>) -> bool {
    // A file that exists at this path is another one.
    file.starts_with(mount) || unmounted.is_some_and(|unmounted| file == unmounted && !unmounted.exists())
}

/// Returns whether a file of a loop device, as sysfs shows it, is the one in the folder of an attachment.
pub(super) fn is_in(shown: &Path, folder: &Path) -> bool {
    // Any path to the folder counts, also from another root.
    let tail = Path::new(folder.file_name().unwrap_or_default()).join(MOUNT).join(FILE_NAME);
    shown.starts_with(real_mount(folder)) || shown.ends_with(tail)
}

/// Returns whether it may be the one. If in doubt, it is.
pub(super) fn may_be_in(shown: &Path, folder: &Path) -> bool {
    is_in(shown, folder) || shown == unmounted_file()
}

impl Node for LoopNode {
    fn path(&self) -> &Path {
        &self.path
    }

    fn ended(&self) -> Option<&'static str> {
        self.shares.has_ended().then_some("the kernel has ended the FUSE connection")
    }

    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError> {
        let waits = || AttachError::Refused("the kernel waits for requests before it".to_string());
        if self.resizing.as_ref().is_some_and(|last| !last.is_finished()) {
            return Err(waits());
        }
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        let at_file = |source| AttachError::system("FUSE file", source);
        self.shares.forget_size().map_err(at_file)?;
        // On a thread of its own: the call asks the file system, which may wait for the server.
        let (sender, resized) = mpsc::channel();
        let (path, file) = (self.path.clone(), self.file.clone());
        let resize = move || {
            // The receiver is gone if it took too long.
            let _ = sender.send(set_capacity(&path, &file, size_bytes));
        };
        let thread = std::thread::Builder::new().name("resize".into()).spawn(resize);
        self.resizing = Some(thread.map_err(|source| AttachError::system("cannot start a thread", source))?);
        resized.recv_timeout(RESIZE_PATIENCE).unwrap_or_else(|_| Err(waits()))
    }

    fn keep(&mut self) {
        self.shares.keep();
        self.is_kept = true;
    }

    fn remove(&mut self, patience: Duration, force: bool) -> Result<(), AttachError> {
        let folder = self.file.parent().and_then(Path::parent).unwrap_or(&self.file);
        let mount = real_mount(folder);
        let unmounted = unmounted_file();
        let is_its = |file: &Path| is_left(file, &mount, Some(&unmounted));
        clear(&self.path, is_its, patience, Flush::Done, force)?;
        self.is_kept = false;
        // The server sees the end of the file system.
        self.line.release();
        self.shares
            .unmount(patience)
            .map_err(|source| AttachError::system("cannot unmount the FUSE file", source))
    }
}

/// Whether what was written to a device is still to become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    Due,
    Done,
}

/// Makes what was written to a device durable. Whatever its errors are, nothing better can be done; but a
/// server that hangs is not given up. The thread that waits for it has no claim to the device.
fn flush(path: &Path) -> Result<(), AttachError> {
    let failed = |source| AttachError::system(path.display(), source);
    let device = File::open(path).map_err(failed)?;
    let (sender, flushed) = mpsc::channel();
    let flush = move || {
        // The receiver is gone if it took too long.
        let _ = sender.send(rustix::fs::fsync(&device));
    };
    std::thread::Builder::new().name("flush".into()).spawn(flush).map_err(failed)?;
    match flushed.recv_timeout(FLUSH_PATIENCE) {
        Ok(_) => Ok(()),
        Err(_) => {
            let why = format!("its server has not flushed within {} seconds", FLUSH_PATIENCE.as_secs());
            Err(AttachError::Refused(format!("{}: {why}; --force gives it up", path.display())))
        }
    }
}

/// Removes the partitions of a loop device, takes the file from it, and waits until it is gone: the kernel
/// does so when the last process closes it. With `force`, partitions that are open do not keep the file: the
/// kernel removes them with it. A device whose file is not one that `is_its` is left alone.
fn clear(
    path: &Path,
    is_its: impl Fn(&Path) -> bool,
    patience: Duration,
    due: Flush,
    force: bool,
) -> Result<(), AttachError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let has_its = || backing_file(name).is_some_and(|file| is_its(&file));
    if !has_its() {
        return Ok(());
    }
    let failed = |error: Errno| AttachError::system(path.display(), error.into());
    let device = claim(path).map_err(|error| match error {
        Errno::BUSY => in_use(path),
        error => failed(error),
    })?;
    if due == Flush::Due {
        flush(path)?;
    }
    partitions::remove(&device, path, patience).or_else(|error| if force { Ok(()) } else { Err(error) })?;
    kernel::loop_clear(&device).map_err(failed)?;
    drop(device);
    let since = Instant::now();
    while has_its() {
        if since.elapsed() >= patience {
            return Err(in_use(path));
        }
        sleep(POLL);
    }
    remove_late_partitions(path, name, patience);
    Ok(())
}

/// Removes partitions that another process has made while the file was taken from the device. A kernel that
/// scans removes all of them by itself.
fn remove_late_partitions(path: &Path, name: &str, patience: Duration) {
    let has_file = || backing_file(name).is_some();
    if has_file() || host::block::partitions(path).is_empty() {
        return;
    }
    let removed = File::open(path).map_err(|source| AttachError::system(path.display(), source)).and_then(
        // Partitions of the next owner stay.
        |device| if has_file() { Ok(()) } else { partitions::remove(&device, path, patience) },
    );
    if let Err(error) = removed {
        tracing::error!("partitions are left: {error}");
    }
}

/// Ends the requests that wait for a bridge that was killed. Its server has the FUSE device too, so the
/// kernel does it only when that sees the end of the bridge; one that hangs does not. The caller has the
/// folder's lock.
pub(super) fn end_requests(folder: &Path) {
    // It may not be mounted. If it is in use, it stays mounted, but its requests end.
    let _ = rustix::mount::unmount(folder.join(MOUNT), UnmountFlags::FORCE);
}

/// Returns whether a server goes on with the device of a killed bridge. It may hang: it is asked only if its
/// process is unknown.
///
/// # Errors
///
/// If it is asked, and does not answer.
pub(super) fn is_served(path: &Path, record: &Record, folder: &Path) -> Result<bool, AttachError> {
    let unknown = |why: String| {
        let why = format!("it is unknown whether its server has the device: {why}");
        AttachError::Refused(format!("{}: {why}", path.display()))
    };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let file = host::loops::backing_file(&Path::new("/sys/block").join(name));
    if !file.map_err(|error| unknown(error.to_string()))?.is_some_and(|file| may_be_in(&file, folder)) {
        return Ok(false);
    }
    if let Some(server) = place::serving(folder).map_err(|error| unknown(error.to_string()))? {
        return Ok(server.is_running());
    }
    let Some(drive) = &record.identity else { return Ok(false) };
    let found = drive.search(&record.path).search_again();
    match (found.drives.first(), found.silent.first()) {
        (Some(report), _) => match left_shares(report) {
            Ok(left) => Ok(!left.is_empty()),
            Err(why) => Err(unknown(why.to_string())),
        },
        (None, Some(silent)) => Err(unknown(silent.to_string())),
        (None, None) => Ok(false),
    }
}

/// Removes what a killed bridge left in the folder of an attachment: all loop devices with a file in it,
/// because the bridge may have been killed before it recorded its own. And the one that it `recorded`, if its
/// file system is not mounted any more.
pub(super) fn clear_stale(
    recorded: Option<&Path>,
    folder: &Path,
    remains: Remains,
    force: bool,
) -> Result<(), AttachError> {
    let due = if remains == Remains::Served && !force { Flush::Due } else { Flush::Done };
    if due == Flush::Done {
        end_requests(folder);
    }
    let (mount, unmounted) = (real_mount(folder), unmounted_file());
    for found in loop_devices(&Root::machine()) {
        let device = node(&found.name);
        let is_recorded = recorded == Some(device.as_path());
        let is_its = |file: &Path| is_left(file, &mount, is_recorded.then_some(unmounted.as_path()));
        clear(&device, is_its, Duration::from_secs(1), due, force)?;
    }
    // It may not be mounted.
    let _ = rustix::mount::unmount(&mount, UnmountFlags::DETACH | UnmountFlags::FORCE);
    let _ = fs::remove_dir(&mount);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_a_killed_bridge_left_is_known_after_a_lazy_unmount() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mount, gone) = (dir.path().join("file"), dir.path().join("gone"));
        assert!(is_left(&mount.join(FILE_NAME), &mount, None), "mounted");
        assert!(!is_left(&gone, &mount, None), "of a device that it did not record");
        assert!(is_left(&gone, &mount, Some(&gone)), "unmounted lazily");
        fs::write(&gone, "another's").expect("written");
        assert!(!is_left(&gone, &mount, Some(&gone)), "a file that is there");
    }

    #[test]
    fn a_device_that_becomes_no_node_loses_its_file() -> io::Result<()> {
        if !rustix::process::geteuid().is_root() || File::open("/dev/loop-control").is_err() {
            eprintln!("skipped: loop devices need root and /dev/loop-control");
            return Ok(());
        }
        let dir = tempfile::tempdir()?;
        let file = real_mount(dir.path()).join(FILE_NAME);
        fs::create_dir(dir.path().join(MOUNT))?;
        File::create(&file)?.set_len(1 << 20)?;
        let shape = Shape { size_bytes: 1 << 20, sector_bytes: 4096, read_only: false, write_cache: true };
        let connected = || connect(&file, &shape, "unfinished", None).map_err(io::Error::other);
        let shown = |path: &Path| backing_file(&path.file_name().unwrap_or_default().to_string_lossy());
        let path = connected()?;
        let device = Unfinished::new(path.clone(), dir.path());
        assert_eq!(shown(&path), Some(file.clone()));
        drop(device);
        assert_ne!(shown(&path), Some(file.clone()), "a step behind it has failed");
        let path = Unfinished::new(connected()?, dir.path()).finish();
        assert_eq!(shown(&path), Some(file.clone()), "it is a node");
        clear(&path, |shown| shown == file, Duration::from_secs(10), Flush::Done, true)
            .map_err(io::Error::other)
    }

    #[test]
    fn each_drive_has_a_name_of_its_own() -> io::Result<()> {
        let file = OwnedFd::from(tempfile::tempfile()?);
        let shape = Shape { size_bytes: 4096, sector_bytes: 512, read_only: false, write_cache: true };
        let name = name_of(Path::new("/run/pumice-attach/drive-0123abcd"));
        assert_eq!(name, "pumice-drive-0123abcd");
        let config = configuration(&file, &shape, &name);
        assert_eq!(&config[64..64 + name.len()], name.as_bytes());
        assert_eq!(config[60], LOOP_DIRECT_IO as u8);
        let long = configuration(&file, &shape, &"n".repeat(100));
        assert_eq!((long[64 + 62], long[64 + 63]), (b'n', 0), "as long as there is room for it");
        Ok(())
    }
}
