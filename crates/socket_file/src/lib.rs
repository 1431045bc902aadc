//! Unix sockets of servers, for their owner only.
//!
//! A server that was killed leaves the file of its socket behind, and the next one replaces it. A socket that
//! is bound but not listening yet looks just as dead. So whoever binds or removes a socket holds a lock on
//! its directory.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Longest wait for other processes that bind sockets in the same directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Interval of attempts to get a lock, and the first of attempts to get a place among the clients of a
/// server.
const POLL: Duration = Duration::from_millis(1);
/// The longest interval of attempts to get such a place: many may wait, for many servers.
const POLL_MAX: Duration = Duration::from_millis(100);

/// A socket that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
#[non_exhaustive]
pub enum Error {
    #[error("another server is listening there")]
    InUse,
    #[error("exists and is not a socket: choose another path, or remove it")]
    NotASocket,
    #[error(
        "a socket of another user is there: if no server uses it, one of that user left it behind; remove it, or \
         choose another path"
    )]
    Foreign,
    #[error(
        "the path is too long for a socket: {0} bytes, at most {PATH_BYTES_MAX}; choose a shorter one, or reach its \
         directory by a symbolic link"
    )]
    TooLong(usize),
    #[error("there is no directory {}: create it, or choose another path", .0.display())]
    NoDirectory(PathBuf),
    #[error("{} cannot hold sockets; choose another path", .0.display())]
    NoSockets(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Most bytes of the path of a socket: `sun_path` has 108, of which one is a zero (`unix(7)`).
pub const PATH_BYTES_MAX: usize = 107;

/// Checks the length of the path of a socket.
///
/// # Errors
/// [`Error::TooLong`]
pub fn check_path(path: &Path) -> Result<(), Error> {
    match path.as_os_str().len() {
        0..=PATH_BYTES_MAX => Ok(()),
        bytes => Err(Error::TooLong(bytes)),
    }
}

fn address(path: &Path) -> Result<SocketAddrUnix, Error> {
    check_path(path)?;
    Ok(SocketAddrUnix::new(path).map_err(io::Error::from)?)
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Io(error) => error,
            Error::TooLong(_) => io::Error::new(io::ErrorKind::InvalidInput, error),
            Error::NoDirectory(_) => io::Error::new(io::ErrorKind::NotFound, error),
            error => io::Error::other(error),
        }
    }
}

/// The file of a socket on which this process listens. It is removed when dropped. Drop it before the
/// listener: from then on others may take the path, and the inode too.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: a socket that another server created in its place is left alone.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl SocketFile {
    /// Gives the socket to a user. Does nothing if something else is there by now, or it cannot be given.
    pub fn give(&self, user: u32, group: u32) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(&self.path, flags, Mode::empty()) else { return };
        let is_this =
            rustix::fs::fstat(&file).is_ok_and(|found| Some((found.st_dev, found.st_ino)) == self.identity);
        if is_this {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            let _ = rustix::fs::chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && self.identity == identity(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Listens on `path`, for this user only (mode 0600). The listener is non-blocking. A socket left by a dead
/// server is replaced.
///
/// # Errors
///
/// If something else is at `path`, a server is listening there, or a system call fails.
pub fn listen(path: &Path, backlog: i32) -> Result<(UnixListener, SocketFile), Error> {
    let address = address(path)?;
    // If the directory cannot be locked, there is no better way than to continue.
    let _lock = lock_directory(path, LOCK_PATIENCE);
    remove_dead(path)?;
    let socket = unix_socket()?;
    // The file gets the mode of the socket. Setting it afterwards by path could change another file that was
    // put there.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io::Error::from)?;
    rustix::net::bind(&socket, &address).map_err(|error| match error {
        Errno::NOENT | Errno::PERM | Errno::OPNOTSUPP if directory(path).is_dir() => {
            Error::NoSockets(directory(path).to_path_buf())
        }
        Errno::NOENT => Error::NoDirectory(directory(path).to_path_buf()),
        error => Error::Io(error.into()),
    })?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path) };
    rustix::net::listen(&socket, backlog).map_err(io::Error::from)?;
    Ok((UnixListener::from(socket), file))
}

/// Connects to the server at `path`, which may have more clients waiting than it accepts.
///
/// # Errors
///
/// If no server listens there, or the connection is not accepted within `patience`.
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let address = address(path)?;
    let (since, mut pause) = (Instant::now(), POLL);
    loop {
        let socket = unix_socket()?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN | Errno::INTR) if since.elapsed() < patience => {
                sleep(pause.min(patience.saturating_sub(since.elapsed())));
                pause = (pause * 2).min(POLL_MAX);
            }
            Err(Errno::AGAIN | Errno::INTR) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes the socket at `path` if no server listens there. Does nothing while a server may be about to
/// listen.
pub fn remove_if_dead(path: &Path) {
    if let Some(_lock) = lock_directory(path, Duration::ZERO) {
        // If that fails, the next one tries.
        let _ = remove_dead(path);
    }
}

fn remove_dead(path: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => return Err(Error::NotASocket),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    match connect(path, Duration::ZERO) {
        Ok(_) => Err(Error::InUse),
        // More clients wait than it accepts: it is alive.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Error::InUse),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::Foreign),
        Err(error) => Err(error.into()),
    }
}

fn unix_socket() -> io::Result<rustix::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn directory(socket: &Path) -> &Path {
    socket.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks the directory of a socket. `None`: another process holds the lock for longer than `patience`, or it
/// cannot be locked.
fn lock_directory(socket: &Path, patience: Duration) -> Option<File> {
    let dir = File::open(directory(socket)).ok()?;
    let since = Instant::now();
    loop {
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(dir),
            Err(Errno::WOULDBLOCK | Errno::INTR) if since.elapsed() < patience => sleep(POLL),
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    #[test]
    fn a_socket_is_for_its_owner_and_goes_with_its_server() {
        let dir = dir();
        let path = dir.path().join("a.sock");
        let (_listener, file) = listen(&path, 8).expect("listen");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        connect(&path, Duration::ZERO).expect("connect");
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = dir();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).expect("bind"));
        let (_listener, file) = listen(&path, 8).expect("replaced");
        assert!(matches!(listen(&path, 8), Err(Error::InUse)));
        remove_if_dead(&path);
        assert!(path.exists(), "somebody listens");
        std::mem::forget(file);
    }

    #[test]
    fn a_server_with_no_place_for_clients_is_alive() {
        let dir = dir();
        let path = dir.path().join("a.sock");
        let _server = listen(&path, 0).expect("listen");
        let clients: Vec<_> = std::iter::from_fn(|| connect(&path, Duration::ZERO).ok()).collect();
        assert!(!clients.is_empty());
        let refused = connect(&path, Duration::from_millis(5)).expect_err("no place");
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(matches!(listen(&path, 8), Err(Error::InUse)));
    }

    #[test]
    fn a_successors_socket_stays() {
        let dir = dir();
        let path = dir.path().join("a.sock");
        let (_listener, file) = listen(&path, 8).expect("listen");
        fs::remove_file(&path).expect("removed by hand");
        let _successor = listen(&path, 8).expect("the place is free");
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn nothing_is_removed_while_a_server_binds() {
        let dir = dir();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).expect("bind"));
        let lock = lock_directory(&path, Duration::ZERO).expect("lock");
        remove_if_dead(&path);
        assert!(path.exists());
        drop(lock);
        remove_if_dead(&path);
        assert!(!path.exists());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = dir();
        let missing = dir.path().join("missing");
        let said = listen(&missing.join("a.sock"), 8).expect_err("no directory").to_string();
        assert!(said.starts_with(&format!("there is no directory {}: ", missing.display())), "{said}");
    }

    #[test]
    fn the_longest_path_works_and_a_longer_one_is_refused_with_the_limit() {
        let dir = dir();
        let of_length = |bytes: usize| dir.path().join("x".repeat(bytes - dir.path().as_os_str().len() - 1));
        let (_listener, _file) = listen(&of_length(PATH_BYTES_MAX), 8).expect("listen");
        connect(&of_length(PATH_BYTES_MAX), Duration::ZERO).expect("connect");
        let path = of_length(PATH_BYTES_MAX + 1);
        let said = listen(&path, 8).expect_err("too long").to_string();
        assert!(said.contains("108 bytes, at most 107; choose a shorter one"), "{said}");
        let refused = connect(&path, Duration::ZERO).expect_err("too long");
        assert_eq!((refused.kind(), refused.to_string()), (io::ErrorKind::InvalidInput, said));
    }

    #[test]
    fn other_files_stay() {
        let dir = dir();
        let path = dir.path().join("a.sock");
        fs::write(&path, "notes").expect("write");
        assert!(matches!(listen(&path, 8), Err(Error::NotASocket)));
        remove_if_dead(&path);
        assert!(path.exists());
    }
}
