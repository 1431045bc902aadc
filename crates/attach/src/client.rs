//! Client side of bridges, for `attach`, `detach` and `list`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ask::DriveSearch;
use status::{StatusReport, path_text};

use crate::bridge::{KEEP, Report};
use crate::error::AttachError;
use crate::node::{self, Lost, Remains, abort_requests, clear_stale, end_requests, waiting};
use crate::node_kind::NodeKind;
use crate::place::{self, Hold, Record, file_id};
use crate::process::Process;
use crate::protocol::{Answer, AttachmentState, Request, Status};
use crate::question::{Unanswered, ask, ask_within};
use crate::served::instance;
use crate::server::{left, stop_process};
use crate::sfx;

/// Time limit for the status of all bridges that are asked together. Each has a thread that does nothing
/// else.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// Least time for one of them, if others have used up that limit.
const STATUS_PATIENCE_MIN: Duration = Duration::from_millis(200);
/// Time after which a bridge without an answer counts as hanging, unless it was stopped.
const HANGS: Duration = Duration::from_secs(5);
/// Time after which a bridge without an answer is killed, on request.
pub const HANGS_FORCED: Duration = Duration::from_secs(10);
/// Interval of questions to such a bridge.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Most bridges asked at a time.
const ASKED_MAX: usize = 256;
/// Time for a bridge that has closed a connection to end.
const ENDS: Duration = Duration::from_secs(10);
/// Time for a bridge to detach: flushing, closing, the end of the server.
pub const DETACH_PATIENCE: Duration = Duration::from_secs(300);

/// A bridge that was just started. Dropping it without [`NewBridge::keep`] makes the bridge undo everything,
/// and waits for that. A bridge that took over a device undoes nothing.
pub struct NewBridge {
    child: Child,
    input: Option<ChildStdin>,
    /// The result line of the bridge.
    pub record: Record,
}

/// An attachment on this machine.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Its record.
    pub record: Record,
    /// Its status.
    pub status: Status,
    /// The node that it lost to another device, and why. `record` has no node then.
    pub lost: Option<(PathBuf, String)>,
    /// No other device has that node.
    is_node_free: bool,
    folder: PathBuf,
    is_alive: bool,
    /// Its bridge runs and does not answer.
    is_silent: bool,
}

/// Outcome of an attach or detach by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was detached; with a description of the loss, if there was one.
    Detached(Option<String>),
    /// It is there.
    Stays,
    /// It is still being attached or detached.
    Changes,
}

/// Starts a bridge by `command` and waits until the node is there.
///
/// # Errors
/// The reason why there is none. Nothing is left behind.
pub fn start(path: &Path, mut command: Command) -> Result<NewBridge, AttachError> {
    let at_folder = |source| AttachError::system(place::folder(path).display(), source);
    // A server without an admin socket there would never be found.
    if let Some(dir) = ask::runtime_dirs().first().filter(|dir| dir.exists() && !dir.is_dir()) {
        return Err(AttachError::Refused(format!("{}: not a directory (PUMICE_RUNTIME_DIR)", dir.display())));
    }
    must_hold_sockets(path)?;
    // `attach` reports to the service manager, not the bridge.
    command.env_remove("NOTIFY_SOCKET");
    // The bridge makes its folder and log: this process may be killed, and leave them behind.
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|source| AttachError::system("cannot start the bridge", source))?;
    let input = child.stdin.take();
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(at_folder)?;
    }
    match serde_json::from_str(&line) {
        Ok(Report::Ready(record)) => Ok(NewBridge { child, input, record: *record }),
        failed => {
            drop(input);
            let status = child.wait().map_err(at_folder)?;
            Err(AttachError::Refused(match failed {
                Ok(Report::Failed(reason)) => reason,
                _ => format!("the bridge ended ({status})"),
            }))
        }
    }
}

/// Refuses a run-time directory so long that the sockets of an attachment cannot be named in it.
fn must_hold_sockets(path: &Path) -> Result<(), AttachError> {
    let folder = place::folder(path);
    let longest = place::control_socket(&folder).as_os_str().len();
    let excess = longest.saturating_sub(socket_file::PATH_BYTES_MAX);
    if excess > 0 {
        return Err(AttachError::Refused(format!(
            "{}: too long for the paths of sockets, by {excess} bytes; set PUMICE_RUNTIME_DIR to a shorter directory",
            place::directory().display()
        )));
    }
    Ok(())
}

impl NewBridge {
    /// Lets the bridge run on its own.
    ///
    /// # Errors
    /// If it has ended.
    pub fn keep(mut self) -> Result<(), AttachError> {
        let kept = self.input.take().map(|mut input| writeln!(input, "{KEEP}"));
        match kept {
            Some(Ok(())) => Ok(()),
            _ => Err(AttachError::Refused("the bridge has ended".to_string())),
        }
    }
}

impl Drop for NewBridge {
    fn drop(&mut self) {
        if self.input.take().is_some() && self.record.taken_over.is_none() {
            let _ = self.child.wait();
        }
    }
}

/// Returns all attachments, in the order of their drives' paths.
pub fn all() -> Vec<Attachment> {
    chosen(|_| true)
}

/// Returns the attachments with such records, in the order of their drives' paths. Bridges of others are not
/// asked: they may hang.
pub fn chosen(choose: impl Fn(&Record) -> bool) -> Vec<Attachment> {
    let mut records = place::all();
    records.retain(|(_, record)| choose(record));
    with_status(&records, STATUS_PATIENCE)
}

/// Returns the attachment with this node or drive.
pub fn find(path: &Path) -> Option<Attachment> {
    let is_node = |it: &Record| it.node.as_deref().is_some_and(|node| is_same(node, path));
    let mut found = chosen(|record| is_node(record) || record.is_of(path));
    // The node may belong to another device by now, and the path may lead to another file.
    found.sort_by_key(|it| it.lost.is_some());
    found.into_iter().find(|it| is_node(&it.record) || it.record.is_of(path))
}

/// Returns the attachment of the drive at `path`, by whatever name its file has now; of the path, if another
/// file is there.
pub fn find_drive(path: &Path) -> Option<Attachment> {
    let file = file_id(path);
    let has = |record: &Record| record.is_of(path) || (file.is_some() && record.backing == file);
    chosen(has).into_iter().find(|it| has(&it.record))
}

/// Returns the attachment that lost this node to another device.
pub fn find_lost(node: &Path) -> Option<Attachment> {
    let found = chosen(|record| record.node.as_deref().is_some_and(|it| is_same(it, node)));
    found.into_iter().find(|it| it.lost.is_some())
}

/// Asks the bridges in parallel, within `patience` for all of them.
fn with_status(records: &[(PathBuf, Record)], patience: Duration) -> Vec<Attachment> {
    let since = Instant::now();
    let ask = |(folder, record): &(PathBuf, Record)| {
        let left = patience.saturating_sub(since.elapsed()).max(STATUS_PATIENCE_MIN.min(patience));
        attachment(folder, record, left)
    };
    if let [only] = records {
        return ask(only).into_iter().collect();
    }
    let ask_some = |some: &[(PathBuf, Record)]| -> Vec<Option<Attachment>> {
        thread::scope(|scope| {
            let asking: Vec<_> =
                some.iter().map(|it| thread::Builder::new().spawn_scoped(scope, move || ask(it))).collect();
            let answers = asking.into_iter().zip(some).map(|(asking, it)| match asking.map(|it| it.join()) {
                Ok(Ok(attachment)) => attachment,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // There is no thread for it.
                Err(_) => ask(it),
            });
            answers.collect()
        })
    };
    records.chunks(ASKED_MAX).flat_map(ask_some).flatten().collect()
}

/// `None`: it was detached meanwhile.
fn attachment(folder: &Path, record: &Record, patience: Duration) -> Option<Attachment> {
    // Before its bridge is asked: one that is detaching says so before it removes the node.
    let lost = node::lost(record, folder);
    let size_bytes = record.shape.as_ref().map_or(0, |shape| shape.size_bytes);
    let status =
        |state, reason: String| Status { state, reason: Some(reason), ..Status::of_size(size_bytes) };
    let (mut is_alive, mut is_silent) = (true, false);
    let status = match place::hold(folder) {
        Ok(Hold::Held) => {
            let stopped = silence(record);
            match stopped.map_or_else(|| Ok(ask_within(folder, &Request::Status, patience)), Err) {
                Err(why) => {
                    is_silent = true;
                    status(AttachmentState::Failed, why)
                }
                Ok(Ok(Answer::Status(status))) => status,
                Ok(Ok(_)) => {
                    status(AttachmentState::Failed, "its bridge process sent an invalid answer".to_string())
                }
                Ok(Err(why)) if why.is_passing() => match place::hold(folder) {
                    Ok(Hold::Gone) => return None,
                    Ok(Hold::Free(_lock)) => {
                        is_alive = false;
                        without_bridge(record, folder, lost.as_ref(), size_bytes)
                    }
                    Ok(Hold::Held) | Err(_) => {
                        is_silent = true;
                        status(AttachmentState::Changing, "it is being attached or detached".to_string())
                    }
                },
                Ok(Err(why)) => {
                    is_silent = true;
                    status(AttachmentState::Failed, format!("its bridge process does not answer: {why}"))
                }
            }
        }
        Ok(Hold::Gone) => return None,
        free => {
            is_alive = false;
            if free.is_ok() {
                end_requests(record, folder);
            }
            without_bridge(record, folder, lost.as_ref(), size_bytes)
        }
    };
    let (mut record, mut status) = (record.clone(), status);
    let is_node_free = lost.as_ref().is_some_and(|lost| lost.is_free);
    let lost = lost.and_then(|lost| {
        let node = record.node.take()?;
        let why = match status.state {
            AttachmentState::Changing => status.reason.clone().unwrap_or_default(),
            _ => lost.why(&node, is_alive),
        };
        Some((node, why))
    });
    if let Some((_, why)) = &lost
        && is_alive
        && status.state != AttachmentState::Changing
    {
        let advice =
            if is_node_free { "`pumice attach` attaches it" } else { "`pumice detach`, then attach it" };
        status = Status {
            state: AttachmentState::Failed,
            reason: Some(format!("{why}; {advice} again")),
            ..status
        };
    }
    let folder = folder.to_path_buf();
    Some(Attachment { record, status, lost, is_node_free, folder, is_alive, is_silent })
}

/// State of an attachment whose bridge has ended.
fn without_bridge(record: &Record, folder: &Path, lost: Option<&Lost>, size_bytes: u64) -> Status {
    let (state, reason) =
        if waiting(record, folder, NodeKind::ALL).ok().is_none_or(|waiting| waiting.is_some()) {
            let meanwhile = match record.way {
                Some(NodeKind::Loop) => "its device fails if its server ends, too",
                Some(NodeKind::Nbd) => "its device works as long as its server",
                _ => "requests wait",
            };
            let why =
                format!("its bridge process was killed, and {meanwhile}; `pumice attach` starts another one");
            (AttachmentState::Unattended, why)
        } else {
            let why = match lost.zip(record.node.as_deref()) {
                Some((lost, node)) => lost.why(node, false),
                None => "its bridge process has ended".to_string(),
            };
            (
                AttachmentState::Failed,
                format!("{why}; `pumice attach` attaches it again, `pumice detach` removes what is left"),
            )
        };
    Status { state, reason: Some(reason), ..Status::of_size(size_bytes) }
}

/// The process of a bridge.
fn process(record: &Record) -> Process {
    match record.bridge_started {
        Some(_) => Process { pid: record.bridge_pid, started: record.bridge_started },
        None => Process::of(record.bridge_pid),
    }
}

/// Returns why a bridge does not answer, if it was stopped.
fn silence(record: &Record) -> Option<String> {
    let pid = record.bridge_pid;
    process(record).is_stopped().then(|| stopped("bridge", pid))
}

fn stopped(what: &str, pid: u32) -> String {
    format!("its {what}, process {pid}, was stopped (SIGSTOP, or a debugger); `kill -CONT {pid}` resumes it")
}

/// Returns whether two paths lead to the same file or device.
pub fn is_same(one: &Path, other: &Path) -> bool {
    absolute(one) == absolute(other) || file_id(one).is_some_and(|it| file_id(other) == Some(it))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Reason why a drive that a server reports counts as the one of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// Same path, and no known property differs.
    Path,
    /// Same id and same file.
    Drive,
    /// Same opening of the drive as the bridge is connected to.
    Opening,
}

impl Record {
    /// A search for the server of the drive.
    pub fn search(&self) -> DriveSearch {
        match &self.identity {
            Some(identity) => identity.search(&self.path),
            None => DriveSearch::new(&self.path),
        }
    }

    /// Returns whether a drive that a server reports, or that is at its path, is the attached one, and why. A
    /// server may have opened another drive by the same path.
    pub fn matches(&self, report: &StatusReport) -> Option<Match> {
        let by_path = || self.is_served_at(&report.path).then_some(Match::Path);
        // A drive that is down has only a path.
        let Some(identity) = self.identity.as_ref().filter(|_| !report.uuid.is_empty()) else {
            return by_path();
        };
        if instance(report).is_some() && instance(report) == self.connected.as_ref() {
            return Some(Match::Opening);
        }
        if identity.file.is_some() && (&identity.uuid, &identity.file) == (&report.uuid, &report.backing.file)
        {
            return Some(Match::Drive);
        }
        let is_other = identity.uuid != report.uuid || identity.is_elsewhere(report, &self.path);
        if is_other { None } else { by_path() }
    }

    /// Returns whether the drive at `path` is attached by it, whatever path it was given.
    pub fn is_of(&self, path: &Path) -> bool {
        is_same(&self.path, path)
    }

    /// Returns whether its path leads to another file by now.
    pub fn is_replaced(&self) -> bool {
        self.backing.is_some_and(|backing| file_id(&self.path).is_some_and(|it| it != backing))
    }

    /// As [`Record::is_of`], also if that is only the path by which its server has the drive.
    pub fn is_served_at(&self, path: &Path) -> bool {
        self.is_of(path) || self.served.as_deref() == Some(path_text(&absolute(path)).as_str())
    }
}

impl Attachment {
    /// As [`Record::is_of`].
    pub fn is_of(&self, path: &Path) -> bool {
        self.record.is_of(path)
    }

    /// Returns why its bridge runs and does nothing: it was stopped, or has not answered for some seconds.
    /// `None` if it answers, or has ended. If it is to be killed, it has ten seconds in any case.
    pub fn hangs(&self, is_to_be_killed: bool) -> Option<String> {
        let since = Instant::now();
        while self.is_silent && matches!(place::hold(&self.folder), Ok(Hold::Held)) {
            let stopped = silence(&self.record);
            if stopped.is_none() && ask_within(&self.folder, &Request::Status, STATUS_PATIENCE).is_ok() {
                return None;
            }
            let patience = if is_to_be_killed { HANGS_FORCED } else { HANGS };
            let is_late = since.elapsed() >= patience;
            match stopped {
                Some(stopped) if is_late || !is_to_be_killed => return Some(stopped),
                None if is_late => {
                    let pid = self.record.bridge_pid;
                    return Some(format!("its bridge, process {pid}, does not answer"));
                }
                _ => thread::sleep(ASK_AGAIN),
            }
        }
        None
    }

    /// Returns whether its bridge lives, and has not answered.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Kills its bridge.
    ///
    /// # Errors
    /// If it does not end.
    pub fn kill_bridge(&self) -> Result<(), AttachError> {
        match process(&self.record).kill() {
            true => Ok(()),
            false => Err(AttachError::Refused(format!(
                "its bridge, process {}, does not end: it waits in the kernel",
                self.record.bridge_pid
            ))),
        }
    }

    /// Makes the requests of its loop device fail from now on, if its bridge has ended: who waits for them,
    /// such as `umount`, goes on.
    pub fn abort_requests(&self) {
        if let Ok(Hold::Free(_lock)) = place::hold(&self.folder) {
            abort_requests(&self.record, &self.folder);
        }
    }

    /// Returns whether it has a device that waits for a bridge, or that may do so soon.
    pub fn waits(&self) -> bool {
        self.status.state == AttachmentState::Unattended || self.is_silent
    }

    /// Process id of the server that its bridge has started, if that runs. The record may name its
    /// predecessor.
    pub fn own_server(&self) -> Option<u32> {
        left(&self.folder, &self.record).map(|server| server.pid)
    }

    /// Returns why the server that its bridge started does nothing, if it was stopped.
    pub fn stopped_server(&self) -> Option<String> {
        let server = place::server(&self.folder).filter(|server| server.is_stopped())?;
        Some(stopped("server", server.pid))
    }

    /// Returns whether its bridge has ended.
    pub fn has_ended(&self) -> bool {
        !self.is_alive
    }

    /// Returns whether it lost its node and no other device has it: nothing was lost with it.
    pub fn has_free_node(&self) -> bool {
        self.lost.is_some() && self.is_node_free && self.status.state != AttachmentState::Changing
    }

    /// Returns whether a process is detaching it now, or has detached it.
    pub fn is_ending(&self) -> bool {
        match place::hold(&self.folder) {
            Ok(Hold::Gone) => true,
            Ok(Hold::Held) => match ask_within(&self.folder, &Request::Status, STATUS_PATIENCE) {
                Ok(Answer::Status(status)) => status.state == AttachmentState::Changing,
                Ok(_) => false,
                Err(why) => why.is_passing(),
            },
            Ok(Hold::Free(_)) | Err(_) => false,
        }
    }

    /// Waits until it is not being attached or detached any more, by whatever process.
    pub fn settled(&self, patience: Duration) -> Settled {
        let since = Instant::now();
        loop {
            match place::hold(&self.folder) {
                Ok(Hold::Gone) => return Settled::Detached(None),
                Ok(Hold::Free(_)) | Err(_) => return Settled::Stays,
                Ok(Hold::Held) => {}
            }
            let left = patience.saturating_sub(since.elapsed()).max(ASK_AGAIN);
            match ask_within(&self.folder, &Request::AwaitDetach, left) {
                Ok(Answer::Detached(lost)) => return Settled::Detached(lost),
                Ok(Answer::Status(status)) if status.state == AttachmentState::Changing => {}
                Err(why) if why.is_passing() => {}
                Err(Unanswered::Late(_)) => return Settled::Changes,
                // An older program, or a broken socket: the next request reports it.
                Ok(_) | Err(_) => return Settled::Stays,
            }
            if since.elapsed() >= patience {
                return Settled::Changes;
            }
            thread::sleep(ASK_AGAIN);
        }
    }

    /// Detaches the drive. The caller has checked that nothing is mounted, unless it is forced while the
    /// device waits for a bridge. With `force`, changes that cannot be flushed are lost. Succeeds if another
    /// process has detached it meanwhile.
    ///
    /// # Errors
    /// If it is in use, or cannot be flushed.
    pub fn detach(&self, force: bool) -> Result<(), AttachError> {
        if !self.is_alive {
            return self.clear(force);
        }
        let detached = |lost: Option<String>| {
            lost.map_or(Ok(()), |lost| Err(AttachError::Refused(format!("detached, but {lost}"))))
        };
        match ask(&self.folder, &Request::Detach { force }, DETACH_PATIENCE) {
            Ok(Answer::Detached(lost)) => detached(lost),
            Ok(Answer::Refused(reason)) => Err(AttachError::Refused(reason)),
            Ok(Answer::Status(_)) => {
                Err(AttachError::Refused("the bridge sent an invalid answer".to_string()))
            }
            // It was killed, or another process has detached it.
            Err(why) => match why.is_passing().then(|| self.settled(ENDS)) {
                Some(Settled::Detached(lost)) => detached(lost),
                Some(Settled::Stays) if matches!(place::hold(&self.folder), Ok(Hold::Free(_))) => {
                    self.clear(force)
                }
                _ => Err(AttachError::Refused(format!(
                    "its bridge, process {}, does not answer: {why}; SIGTERM detaches, once it is not in use",
                    self.record.bridge_pid
                ))),
            },
        }
    }

    /// Marks it as one that the configuration asked for.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn mark_configured(&self) -> Result<(), AttachError> {
        place::mark_configured(&self.folder)
            .map_err(|source| AttachError::system(self.folder.display(), source))
    }

    /// Returns whether it is marked as one that the configuration asked for.
    pub fn is_configured(&self) -> bool {
        place::is_configured(&self.folder)
    }

    /// Removes the remains of a killed bridge.
    fn clear(&self, force: bool) -> Result<(), AttachError> {
        let at_folder = |source| AttachError::system(self.folder.display(), source);
        let _lock = match place::hold(&self.folder).map_err(at_folder)? {
            Hold::Free(lock) => lock,
            Hold::Gone => return Ok(()),
            Hold::Held => {
                let why = "another process is attaching or detaching it";
                return Err(AttachError::Refused(why.to_string()));
            }
        };
        // What was read before the lock may be outdated: another bridge has been there.
        let maker = |record: &Record| (record.bridge_pid, record.bridge_started);
        if Record::read(&self.folder).is_some_and(|now| maker(&now) != maker(&self.record)) {
            return Err(AttachError::Refused("it has changed meanwhile: try again".to_string()));
        }
        let stop_server = || match left(&self.folder, &self.record) {
            Some(server) => stop_process(server, force).map_err(|why| {
                AttachError::Refused(match force {
                    true => why.to_string(),
                    false => format!("{why}; --force kills it"),
                })
            }),
            None => Ok(()),
        };
        // The driver waits for the requests of a server that hangs.
        if force && self.record.way == Some(NodeKind::Ublk) {
            stop_server()?;
        }
        let remains = match self.status.state {
            AttachmentState::Unattended => Remains::Served,
            _ => Remains::Dead,
        };
        clear_stale(Some(&self.record), &self.folder, remains, force)?;
        stop_server()?;
        let node = self.record.node.as_ref().or(self.lost.as_ref().map(|(node, _)| node));
        if let Some(node) = node {
            sfx::clear(&self.record.path, node);
        }
        place::remove(&self.folder);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use status::{FileId, ServerReport};

    use super::*;
    use crate::identity::Identity;

    #[test]
    fn bridges_that_hang_are_waited_for_together() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut kept = Vec::new();
        let mut attach = |name: &str| {
            let folder = directory.path().join(name);
            fs::create_dir(&folder).expect("made");
            let lock = place::lock(&folder).expect("a lock").expect("free");
            let listener = UnixListener::bind(place::control_socket(&folder)).expect("bound");
            kept.push((lock, listener.try_clone().expect("a socket")));
            ((folder, Record::new(PathBuf::from("/srv").join(name))), listener)
        };
        let mut records: Vec<_> = (0..8).map(|number| attach(&format!("hangs{number}")).0).collect();
        let (healthy, listener) = attach("healthy");
        records.push(healthy);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                let status = Status::of_size(7);
                let _ = writeln!(
                    &stream,
                    "{}",
                    serde_json::to_string(&Answer::Status(status)).unwrap_or_default()
                );
            }
        });
        let (patience, since) = (Duration::from_secs(3), Instant::now());
        let found = with_status(&records, patience);
        assert!(since.elapsed() < patience * 3, "{:?}", since.elapsed());
        let silent =
            found.iter().filter(|it| it.is_silent && it.status.state == AttachmentState::Failed).count();
        assert_eq!((found.len(), silent), (9, 8));
        assert_eq!((found[8].status.state, found[8].status.size_bytes), (AttachmentState::Attached, 7));
        assert!(found.iter().zip(&records).all(|(found, (_, record))| found.record == *record));
    }

    #[test]
    fn a_drive_is_known_by_the_path_that_its_server_has() {
        let record = Record { served: Some("/srv/drive".into()), ..Record::new("/srv/link".into()) };
        assert!(record.is_served_at(Path::new("/srv/drive")) && record.is_served_at(Path::new("/srv/link")));
        assert!(!record.is_of(Path::new("/srv/drive")) && !record.is_served_at(Path::new("/srv/other")));
    }

    #[test]
    fn a_drive_is_not_taken_for_another_one_of_its_path() {
        let file = |inode| Some(FileId { device: "8:1".to_string(), inode: Some(inode) });
        let report = |uuid: &str, instance: &str, inode| {
            let server = ServerReport { instance: instance.to_string(), ..ServerReport::default() };
            let (path, uuid, server) = ("/srv/drive".into(), uuid.to_string(), Some(server));
            let mut report = StatusReport { path, uuid, server, ..StatusReport::default() };
            report.backing.file = file(inode);
            report
        };
        let identity = Identity::of(&report("a", "", 7));
        let connected = Some("one".to_string());
        let record =
            Record { identity: Some(identity), connected, ..Record::new(PathBuf::from("/srv/drive")) };
        let matched = |report: StatusReport| record.matches(&report);
        assert_eq!(matched(report("a", "one", 7)), Some(Match::Opening));
        assert_eq!(matched(report("a", "two", 7)), Some(Match::Drive), "it was restarted");
        let moved = StatusReport { path: "/srv/moved".into(), ..report("a", "two", 7) };
        assert_eq!(matched(moved), Some(Match::Drive));
        assert_eq!(matched(report("a", "two", 8)), None, "a copy that was at the path");
        assert_eq!(matched(report("b", "two", 8)), None, "another drive");
        let older = StatusReport { path: "/srv/drive".into(), uuid: "a".into(), ..StatusReport::default() };
        assert_eq!(matched(older), Some(Match::Path), "its server does not tell");
        let down = StatusReport { path: "/srv/drive".into(), ..StatusReport::default() };
        assert_eq!(matched(down), Some(Match::Path));
    }
}
