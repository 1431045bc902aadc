//! Run-time directory of attachments: a folder for each, with its record, the sockets and the logs.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use host::patience::{self, patiently};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::memory_dir;
use crate::node_kind::NodeKind;
use crate::process::Process;
use crate::shape::Shape;
use crate::takeover::Takeover;

const RECORD: &str = "attachment.json";
const LOCK: &str = "lock";
/// The server that a bridge has started: a file of its own, written as soon as there is that process.
const SERVER: &str = "server";
/// The server that has the FUSE device of a loop device.
const SERVING: &str = "serving";
/// File that marks attachments which the configuration asked for.
const CONFIGURED: &str = "configured";
/// Most attachments that are listed.
const ATTACHMENTS_MAX: usize = 4096;

/// Record of an attachment, valid without its bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Backing of the drive, absolute.
    #[serde(with = "status::as_text")]
    pub path: PathBuf,
    /// Process id of the bridge.
    pub bridge_pid: u32,
    /// Its start, in ticks since boot: process ids are reused.
    #[serde(default)]
    pub bridge_started: Option<u64>,
    /// The bridge that made the node, if that is another one: its process id and its start.
    #[serde(default)]
    pub made_by: Option<(u32, Option<u64>)>,
    /// The server that the bridge has started, if it has.
    pub server_pid: Option<u32>,
    /// `instance` of the server that has the drive, whoever started it.
    #[serde(default)]
    pub connected: Option<String>,
    /// What that server has acknowledged outlives a kill.
    #[serde(default)]
    pub memory_kept: bool,
    /// The drive as it was last seen.
    #[serde(flatten)]
    pub identity: Option<Identity>,
    /// The file or device that backs the drive.
    #[serde(default)]
    pub backing: Option<(u64, u64)>,
    /// Path of the drive as its server has it.
    #[serde(default)]
    pub served: Option<String>,
    /// The node; `None` while it is being made.
    pub node: Option<PathBuf>,
    /// Kind of the node.
    pub way: Option<NodeKind>,
    /// Size and sectors that the node shows.
    pub shape: Option<Shape>,
    /// Kinds that were tried before, and why they do not work.
    pub passed_over: Vec<(NodeKind, String)>,
    /// The node was that of a bridge that was killed, and has been taken over.
    pub taken_over: Option<TakenOver>,
    /// Progress of a takeover that was not completed.
    #[serde(default)]
    pub takeover: Option<Takeover>,
    /// The server that the bridge has started first was opened without what an earlier one had acknowledged.
    #[serde(default)]
    pub writes_lost: bool,
    /// A takeover was incomplete, and that was not reported yet.
    #[serde(default)]
    pub loss_to_report: bool,
}

/// Result of the takeover of an attachment from a killed bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// The server of the killed bridge still had the drive open, or had left its memory to the next one.
    /// Otherwise acknowledged writes that were not flushed are lost, as after a power cut.
    pub is_complete: bool,
}

/// Returns the directory of all attachments.
pub fn directory() -> PathBuf {
    ask::runtime_dir::attachments_dir(&ask::runtime_dirs().into_iter().next().unwrap_or_default())
}

/// Target of a path: numbers of a device, or of a file and its file system.
pub(crate) fn file_id(path: &Path) -> Option<(u64, u64)> {
    let found = patiently(|| fs::metadata(path)).ok()?;
    Some(if found.rdev() != 0 { (0, found.rdev()) } else { (found.dev(), found.ino()) })
}

/// FNV-1a.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Folder of the attachment of a drive.
pub fn folder(path: &Path) -> PathBuf {
    // Distinguishes drives of the same name.
    let hash = fingerprint(path.as_os_str().as_bytes());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(32).collect();
    directory().join(format!("{plain}-{:08x}", hash as u32 ^ (hash >> 32) as u32))
}

/// Creates the folder of an attachment, for root only.
///
/// # Errors
/// If that fails, or the directory belongs to another user.
pub fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for dir in folder.ancestors().take(2) {
        let found = fs::symlink_metadata(dir)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            let what = format!("{}: belongs to another user, or is writable by others", dir.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
    }
    Ok(())
}

/// Lock of a bridge on its folder; released when it ends, however it does.
pub struct FolderLock {
    _file: File,
}

/// Locks a folder. `None` if a bridge has it.
///
/// # Errors
/// If the file of the lock cannot be opened; *not found* if the folder is gone.
pub fn lock(folder: &Path) -> io::Result<Option<FolderLock>> {
    lock_with(folder, true)
}

/// Locks the folder of an attachment that may be ending. Leaves nothing in a folder that is being removed.
pub(crate) fn hold(folder: &Path) -> io::Result<Hold> {
    match lock_with(folder, false) {
        Ok(Some(lock)) => Ok(Hold::Free(lock)),
        Ok(None) => Ok(Hold::Held),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Hold::Gone),
        Err(error) => Err(error),
    }
}

/// Owner of the folder of an attachment.
pub(crate) enum Hold {
    /// Nobody had it: its bridge has ended.
    Free(FolderLock),
    /// A bridge, or a process that detaches the remains of a killed one.
    Held,
    /// It was detached: there is no such folder.
    Gone,
}

fn lock_with(folder: &Path, creates: bool) -> io::Result<Option<FolderLock>> {
    let path = folder.join(LOCK);
    loop {
        let file = File::options().create(creates).truncate(false).write(true).open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Whoever detached the drive may have removed the file in between: nobody would find its lock.
        let id = |file: &fs::Metadata| (file.dev(), file.ino());
        if fs::metadata(&path).is_ok_and(|found| file.metadata().is_ok_and(|own| id(&own) == id(&found))) {
            return Ok(Some(FolderLock { _file: file }));
        }
    }
}

/// Socket on which the bridge listens.
pub(crate) fn control_socket(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// Socket of a server that the bridge starts.
pub(crate) fn nbd_socket(folder: &Path) -> PathBuf {
    folder.join("nbd.sock")
}

/// Log of such a server.
pub(crate) fn server_log(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

/// Log of the bridge.
pub(crate) fn bridge_log(folder: &Path) -> PathBuf {
    folder.join("bridge.log")
}

impl Record {
    /// A record of this process.
    pub(crate) fn new(path: PathBuf) -> Record {
        let bridge_pid = std::process::id();
        Record {
            path,
            bridge_pid,
            bridge_started: Process::of(bridge_pid).started,
            made_by: None,
            server_pid: None,
            connected: None,
            memory_kept: false,
            identity: None,
            backing: None,
            served: None,
            node: None,
            way: None,
            shape: None,
            passed_over: Vec::new(),
            taken_over: None,
            takeover: None,
            writes_lost: false,
            loss_to_report: false,
        }
    }

    /// Returns whether the node has no volatile cache: the bridge makes each change durable before it
    /// acknowledges it. A loop device has one.
    pub fn is_durable(&self) -> bool {
        self.way != Some(NodeKind::Loop) && self.shape.as_ref().is_some_and(|shape| !shape.write_cache)
    }

    /// The bridge that made the node: its process id and its start.
    pub(crate) fn maker(&self) -> (u32, Option<u64>) {
        self.made_by.unwrap_or((self.bridge_pid, self.bridge_started))
    }

    /// Reads the record in a folder.
    pub fn read(folder: &Path) -> Option<Record> {
        serde_json::from_slice(&patience::read(folder.join(RECORD)).ok()?).ok()
    }

    /// Replaces the record in a folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let new = folder.join("attachment.new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(new, folder.join(RECORD))
    }
}

/// Writes the record of an attachment, unless another one has the same drive: there may be several paths to
/// it. Returns the record of the other one. `waits`: a device of a killed bridge waits for another one.
///
/// # Errors
/// If the record cannot be written.
pub(crate) fn claim(
    folder: &Path,
    record: &Record,
    waits: impl Fn(&Path, &Record) -> bool,
) -> io::Result<Option<Record>> {
    claim_in(&directory(), folder, record, waits)
}

fn claim_in(
    directory: &Path,
    folder: &Path,
    record: &Record,
    waits: impl Fn(&Path, &Record) -> bool,
) -> io::Result<Option<Record>> {
    let all_attachments = File::open(directory)?;
    // One at a time: each sees the records of the others.
    flock(&all_attachments, FlockOperation::LockExclusive)?;
    let uuid = |record: &Record| record.identity.as_ref().map(|drive| drive.uuid.clone());
    // Copies have the same id.
    let is_at =
        |other: &Record| other.served == record.served || other.served.is_none() || record.served.is_none();
    let is_same = |other: &Record| {
        (record.backing.is_some() && other.backing == record.backing)
            || (uuid(record).is_some() && uuid(other) == uuid(record) && is_at(other))
    };
    let has_bridge = |other: &Path| matches!(hold(other), Ok(Hold::Held));
    let others = all_in(directory).into_iter().filter(|(other, found)| other != folder && is_same(found));
    for (other, found) in others {
        if has_bridge(&other) || waits(&other, &found) {
            return Ok(Some(found));
        }
    }
    record.write(folder)?;
    Ok(None)
}

/// Replaces a file. Without it, a server that lives would be taken for one that has ended: a shortage is
/// waited for.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    patiently(|| fs::write(&new, bytes).and_then(|()| fs::rename(&new, folder.join(name))))
}

/// Records the server that the bridge has started.
pub(crate) fn note_server(folder: &Path, server: Process) -> io::Result<()> {
    replace(folder, SERVER, &serde_json::to_vec(&server)?)
}

/// The server that a bridge has started, whether or not it serves the drive by now. It may have ended.
pub(crate) fn server(folder: &Path) -> Option<Process> {
    serde_json::from_slice(&patience::read(folder.join(SERVER)).ok()?).ok()
}

/// Records the server that is about to get the FUSE device of a loop device; `None` if it is unknown which
/// process that is. If that fails, no earlier one is recorded either.
pub(crate) fn note_serving(folder: &Path, server: Option<Process>) -> io::Result<()> {
    let noted = replace(folder, SERVING, &serde_json::to_vec(&server)?);
    if noted.is_err() {
        // It takes no space.
        let _ = fs::remove_file(folder.join(SERVING));
    }
    noted
}

/// The server that got the FUSE device last. It may have ended. `None`: nobody has noted it.
///
/// # Errors
/// If that cannot be read.
pub(crate) fn serving(folder: &Path) -> io::Result<Option<Process>> {
    match patience::read(folder.join(SERVING)) {
        Ok(noted) => Ok(serde_json::from_slice(&noted).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Marks an attachment as one that the configuration asked for.
pub(crate) fn mark_configured(folder: &Path) -> io::Result<()> {
    fs::write(folder.join(CONFIGURED), "")
}

/// Returns whether an attachment is marked.
pub(crate) fn is_configured(folder: &Path) -> bool {
    folder.join(CONFIGURED).exists()
}

/// Returns the folders of all attachments with their records, in the order of their drives' paths.
pub fn all() -> Vec<(PathBuf, Record)> {
    all_in(&directory())
}

fn all_in(directory: &Path) -> Vec<(PathBuf, Record)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(ATTACHMENTS_MAX);
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some((entry.path(), Record::read(&entry.path())?))).collect();
    found.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
    found
}

/// Removes the folder of an attachment that has ended. Its lock is held.
pub(crate) fn remove(folder: &Path) {
    // The lock last: a process that takes it now has a folder that nobody finds.
    let files = [
        RECORD,
        "attachment.new",
        CONFIGURED,
        SERVER,
        "server.new",
        SERVING,
        "serving.new",
        "control.sock",
        "nbd.sock",
        "server.log",
        "bridge.log",
        LOCK,
    ];
    for file in files {
        let _ = fs::remove_file(folder.join(file));
    }
    memory_dir::remove(folder);
    let _ = fs::remove_dir(folder);
    // Fails while there are others.
    let _ = fs::remove_dir(directory());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str, uuid: &str, served: &str) -> Record {
        Record {
            path: PathBuf::from(path),
            identity: Some(Identity {
                uuid: uuid.to_string(),
                incarnation: Some(0),
                durable_sequence: 9,
                ..Identity::default()
            }),
            served: Some(served.to_string()),
            ..Record::new(PathBuf::from(path))
        }
    }

    #[test]
    fn a_drive_has_one_bridge_whatever_its_path() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let folder = |name: &str| directory.path().join(name);
        for name in ["one", "link", "copy"] {
            fs::create_dir(folder(name))?;
        }
        let claim = |name: &str, record: &Record, waits| {
            claim_in(directory.path(), &folder(name), record, |_, _| waits)
        };
        let (one, link) = (record("/one", "a", "/one"), record("/link", "a", "/one"));
        let locked = lock(&folder("one"))?.expect("free");
        assert_eq!(claim("one", &one, false)?, None);
        assert_eq!(claim("link", &link, false)?, Some(one.clone()));
        assert!(Record::read(&folder("link")).is_none());
        assert_eq!(claim("copy", &record("/copy", "a", "/copy"), false)?, None, "a copy is another drive");
        let unknown = Record { served: None, ..record("/copy", "a", "") };
        assert_eq!(claim("copy", &unknown, false)?, Some(one.clone()), "it may be the same");
        drop(locked);
        assert_eq!(claim("link", &link, true)?, Some(one.clone()), "its device waits");
        assert_eq!(claim("link", &link, false)?, None);
        assert_eq!(Record::read(&folder("link")), Some(link));
        Ok(())
    }

    #[test]
    fn a_file_has_one_bridge_before_its_drive_is_known() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let folder = |name: &str| directory.path().join(name);
        let record = |name: &str| {
            fs::create_dir(folder(name))?;
            fs::write(folder(name).join("drive"), "")?;
            let path = folder(name).join("drive");
            io::Result::Ok(Record { backing: file_id(&path), ..Record::new(path) })
        };
        let (one, other) = (record("one")?, record("other")?);
        let link = Record { backing: one.backing, ..other.clone() };
        let claim =
            |name: &str, record: &Record| claim_in(directory.path(), &folder(name), record, |_, _| false);
        let _locked = lock(&folder("one"))?.expect("free");
        assert_eq!(claim("one", &one)?, None);
        assert_eq!(claim("other", &link)?, Some(one));
        assert_eq!(claim("other", &other)?, None);
        Ok(())
    }

    #[test]
    fn a_folder_that_is_being_removed_is_gone_and_stays_empty() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let own = lock(folder.path())?.expect("nobody has it");
        assert!(matches!(hold(folder.path())?, Hold::Held) && lock(folder.path())?.is_none());
        fs::remove_file(folder.path().join(LOCK))?;
        assert!(matches!(hold(folder.path())?, Hold::Gone));
        assert!(fs::read_dir(folder.path())?.next().is_none(), "nothing was left there");
        drop(own);
        drop(lock(folder.path())?.expect("made anew"));
        assert!(matches!(hold(folder.path())?, Hold::Free(_)));
        let gone = folder.path().join("gone");
        assert!(matches!(hold(&gone)?, Hold::Gone));
        assert!(lock(&gone).is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
        Ok(())
    }

    #[test]
    fn records_of_older_programs_are_read() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let old = r#"{"path": "/d", "bridge_pid": 7, "server_pid": null, "connected_pid": 8, "drive_uuid": "a",
            "node": "/dev/ublkb0", "way": "ublk", "shape": null, "passed_over": [], "taken_over": null}"#;
        fs::write(folder.path().join(RECORD), old)?;
        let record = Record::read(folder.path()).expect("read");
        let drive = Identity { uuid: "a".to_string(), ..Identity::default() };
        assert_eq!((record.identity.clone(), record.connected.clone()), (Some(drive), None));
        record.write(folder.path())?;
        assert_eq!(Record::read(folder.path()), Some(record));
        let none = Record::new(PathBuf::from("/d"));
        none.write(folder.path())?;
        assert_eq!(Record::read(folder.path()), Some(none));
        Ok(())
    }
}
