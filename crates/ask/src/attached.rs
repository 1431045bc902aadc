//! The mark of an attached drive: an abstract Unix socket, at which the drive's bridge listens for as long as
//! it lives.
//!
//! A server is connected to the bridge most of the time, and knows. But one that was just started, or that
//! has lost its connections to the bridge, must know as well: the bridge will come back with requests of the
//! device, which others must not write to meanwhile. The kernel removes the name when the process
//! ends, however it ends. It can be seen by all processes of the same network namespace, of whatever user.
//!
//! The name holds the id of the drive and the numbers of its file: copies of a drive have the same id. There
//! are marks of the drive's places in directories, too: an older copy that was put in the place of the file
//! is below the device for whoever opens it there.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::thread::JoinHandle;

use host::file::absolute;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use status::FileId;

/// A drive in a certain file or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkName(String);

impl MarkName {
    /// The name of the drive with id `uuid` in a file or device.
    pub fn of(uuid: &str, FileId { device, inode }: &FileId) -> MarkName {
        let inode = inode.map(|inode| format!(":{inode}")).unwrap_or_default();
        MarkName(format!("pumice-attached/{uuid}/{device}{inode}"))
    }

    /// The names of the drive with id `uuid` at a path: in the directory where it is asked for, and in the
    /// one where it really is. By the numbers of directories: paths may lead elsewhere in a container.
    pub fn at(uuid: &str, path: &Path) -> Vec<MarkName> {
        let own = absolute(path);
        let real = std::fs::canonicalize(&own).ok().filter(|real| *real != own);
        let name = |path: &Path| {
            let directory = std::fs::metadata(path.parent()?).ok()?;
            let (device, inode) = (directory.dev(), directory.ino());
            // Such names are short, and those of files are not.
            let file = crc32c::crc32c(path.file_name()?.as_bytes());
            Some(MarkName(format!("pumice-attached/{uuid}/in/{device}:{inode}/{file:08x}")))
        };
        let mut names: Vec<MarkName> =
            std::iter::once(own).chain(real).filter_map(|path| name(&path)).collect();
        names.dedup();
        names
    }
}

/// A mark, which lasts until this is dropped or the process ends.
#[derive(Debug)]
pub struct AttachedMark {
    listener: UnixListener,
    /// Accepts and closes the connections of those that look, of which the kernel keeps only a few.
    accepting: Option<JoinHandle<()>>,
}

impl AttachedMark {
    /// Marks a drive as attached by this process.
    ///
    /// # Errors
    /// `AddrInUse` if another process of root or of this user has marked it, with its process id in the
    /// message. Other errors of the system, or if a process of another user has the name.
    pub fn set(name: &MarkName) -> io::Result<AttachedMark> {
        let listener =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name.0)?).map_err(|error| {
                match (error.kind(), holder(name)) {
                    (kind @ io::ErrorKind::AddrInUse, Ok(Holder::Process { pid, user }))
                        if is_trusted(user) =>
                    {
                        io::Error::new(kind, format!("attached by another process, {pid}"))
                    }
                    // Any user can take the name. It must not keep the drive from being attached.
                    (io::ErrorKind::AddrInUse, _) => {
                        io::Error::other("another user has taken the mark of the drive")
                    }
                    _ => error,
                }
            })?;
        let accepting = listener.try_clone()?;
        let accept = move || while accepting.accept().is_ok() {};
        let accepting = std::thread::Builder::new().name("mark".into()).spawn(accept)?;
        Ok(AttachedMark { listener, accepting: Some(accepting) })
    }
}

impl Drop for AttachedMark {
    fn drop(&mut self) {
        // Nobody can connect from now on, and the thread ends.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

/// Who listens at a name.
enum Holder {
    Nobody,
    /// The process that has listened there first, and its user.
    Process {
        pid: i32,
        user: u32,
    },
    /// A process that does not accept, such as one that is stopped.
    Unknown,
}

fn holder(name: &MarkName) -> io::Result<Holder> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new_abstract_name(name.0.as_bytes())?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        // The second: not a mark. Any user can take the name.
        Err(Errno::CONNREFUSED | Errno::PROTOTYPE) => return Ok(Holder::Nobody),
        Err(Errno::AGAIN) => return Ok(Holder::Unknown),
        Err(error) => return Err(error.into()),
    }
    let found = socket_peercred(&socket)?;
    Ok(Holder::Process { pid: found.pid.as_raw_nonzero().get(), user: found.uid.as_raw() })
}

/// Returns whether the word of a process of this user counts: root, or the own one.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Returns whether a bridge of root or of this process's user has marked a drive as attached. Does not block.
///
/// # Errors
/// If that is unknown.
pub fn is_marked(name: &MarkName) -> io::Result<bool> {
    Ok(match holder(name)? {
        Holder::Process { user, .. } => is_trusted(user),
        Holder::Unknown => true,
        Holder::Nobody => false,
    })
}

/// Returns whether one of these names is [marked](is_marked).
///
/// # Errors
/// If none is known to be, and one is unknown.
pub fn any_is_marked(names: impl IntoIterator<Item = MarkName>) -> io::Result<bool> {
    let mut unknown = None;
    for name in names {
        match is_marked(&name) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => unknown = Some(error),
        }
    }
    unknown.map_or(Ok(false), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(inode: Option<u64>) -> MarkName {
        // Tests run side by side, and other processes may run the same one.
        MarkName::of(&format!("test {}", std::process::id()), &FileId { device: "7:0".to_string(), inode })
    }

    #[test]
    fn a_drive_is_where_it_is_asked_for_and_where_it_really_is() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        std::fs::create_dir(&one)?;
        std::os::unix::fs::symlink("one", &other)?;
        std::fs::write(one.join("drive"), "")?;
        std::os::unix::fs::symlink("drive", one.join("link"))?;
        let at = |path: &Path| MarkName::at("1", path);
        let own = at(&one.join("drive"));
        assert_eq!(own.len(), 1);
        assert_eq!(at(&other.join("drive")), own, "whatever leads to the directory");
        let by_link = at(&one.join("link"));
        assert!(by_link.len() == 2 && by_link[1] == own[0], "{by_link:?}");
        assert_ne!(MarkName::at("2", &one.join("drive")), own);
        assert_eq!(at(&one.join("absent").join("below")), []);
        // As long as names can be.
        let long = MarkName::at(&"0".repeat(36), &one.join("long".repeat(60)));
        assert!(long.iter().all(|name| AttachedMark::set(name).is_ok()));
        Ok(())
    }

    #[test]
    fn a_name_that_is_no_mark_does_not_count() -> io::Result<()> {
        let name = MarkName::of(
            &format!("no mark {}", std::process::id()),
            &FileId { device: "7:0".to_string(), inode: None },
        );
        let _other = std::os::unix::net::UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name.0)?)?;
        assert!(!is_marked(&name)?);
        Ok(())
    }

    #[test]
    fn a_mark_lasts_as_long_as_it_is_held() {
        let (one, copy) = (name(Some(1)), name(None));
        assert_ne!(one, copy, "a copy is another drive");
        let is_marked = |name| is_marked(name).expect("known");
        assert!(!is_marked(&one));
        for _ in 0..2 {
            let mark = AttachedMark::set(&one).expect("free");
            // More often than the kernel keeps connections that nobody accepts.
            assert!((0..5000).all(|_| is_marked(&one)) && !is_marked(&copy));
            let taken = AttachedMark::set(&one).expect_err("taken");
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            drop(mark);
            assert!(!is_marked(&one));
        }
    }
}
