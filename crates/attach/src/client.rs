//! Bridges as `attach`, `detach` and `list` see them.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use status::path_text;

use crate::bridge::{Answer, KEEP, Report, Request, State, Status};
use crate::error::AttachError;
use crate::node::{self, Way, clear_stale, end_requests, waiting};
use crate::place::{self, Record, file_id};
use crate::process::Process;
use crate::server::{left, stop_process};
use crate::sfx;

/// Time for a bridge to accept a request.
const CONNECTING: Duration = Duration::from_secs(5);
/// Time for all bridges that are asked together to say how they are. A thread of each does nothing else.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// Time for one of them at least, if others have used up that.
const STATUS_PATIENCE_MIN: Duration = Duration::from_millis(200);
/// Time after which a bridge that does not answer is taken to hang, unless it was stopped.
const HANGS: Duration = Duration::from_secs(5);
/// Time after which a bridge that does not answer is killed, if that is asked for.
pub const HANGS_FORCED: Duration = Duration::from_secs(10);
/// Interval of questions to such a bridge.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Least time limit: zero would be none.
const TIME_MIN: Duration = Duration::from_millis(1);
/// Most bridges asked at a time.
const ASKED_MAX: usize = 256;
/// Time for a bridge that may be ending.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// Time for a bridge to detach: flushing, closing, the end of the server.
const DETACH_PATIENCE: Duration = Duration::from_secs(300);

/// A bridge that was just started. Dropping it without [`NewBridge::keep`] makes the bridge undo everything,
/// and waits for that. One that has taken over a device undoes nothing: it stays.
pub struct NewBridge {
    child: Child,
    input: Option<ChildStdin>,
    /// What it has made.
    pub record: Record,
}

/// An attachment on this machine.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// What is known of it.
    pub record: Record,
    /// How it is now.
    pub status: Status,
    /// The node that it had, which is not its any more, and why. `record` has none then.
    pub lost: Option<(PathBuf, String)>,
    folder: PathBuf,
    is_alive: bool,
    /// Its bridge lives, and says nothing.
    is_silent: bool,
}

/// Starts a bridge by `command` and waits until the node is there.
///
/// # Errors
/// The reason why there is none. Nothing is left behind.
pub fn start(path: &Path, mut command: Command) -> Result<NewBridge, AttachError> {
    let at_folder = |source| AttachError::system(place::folder(path).display(), source);
    // A server without a socket there would never be found.
    if let Some(dir) = service::runtime_dirs().first().filter(|dir| dir.exists() && !dir.is_dir()) {
        return Err(AttachError::Refused(format!("{}: not a directory (PUMICE_RUNTIME_DIR)", dir.display())));
    }
    must_hold_sockets(path)?;
    // What it has to say to the service manager, `attach` says.
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
    /// Leaves the bridge to itself.
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
    // A node may be another's by now, and a path may lead to another file.
    found.sort_by_key(|it| it.lost.is_some());
    found.into_iter().find(|it| is_node(&it.record) || it.record.is_of(path))
}

/// Returns the attachment that had this node, which is not its any more.
pub fn find_lost(node: &Path) -> Option<Attachment> {
    let found = chosen(|record| record.node.as_deref().is_some_and(|it| is_same(it, node)));
    found.into_iter().find(|it| it.lost.is_some())
}

/// Asks the bridges side by side, within `patience` for all.
fn with_status(records: &[(PathBuf, Record)], patience: Duration) -> Vec<Attachment> {
    let since = Instant::now();
    let ask = |(folder, record): &(PathBuf, Record)| {
        let left = patience.saturating_sub(since.elapsed()).max(STATUS_PATIENCE_MIN.min(patience));
        attachment(folder, record, left)
    };
    if let [only] = records {
        return vec![ask(only)];
    }
    let ask_some = |some: &[(PathBuf, Record)]| -> Vec<Attachment> {
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
    records.chunks(ASKED_MAX).flat_map(ask_some).collect()
}

fn attachment(folder: &Path, record: &Record, patience: Duration) -> Attachment {
    let lock = place::lock(folder);
    let is_alive = matches!(lock, Ok(None));
    if let Ok(Some(_)) = &lock {
        end_requests(record, folder);
    }
    drop(lock);
    let size_bytes = record.shape.as_ref().map_or(0, |shape| shape.size_bytes);
    let status = |state, reason: String| Status { state, reason: Some(reason), size_bytes };
    let mut is_silent = false;
    let stopped = is_alive.then(|| silence(record)).flatten();
    let status = if let Some(why) = stopped {
        is_silent = true;
        status(State::Failed, why)
    } else if is_alive {
        match ask_within(folder, &Request::Status, patience) {
            Ok(Answer::Status(status)) => status,
            Ok(_) => status(State::Failed, "its bridge process gives a wrong answer".to_string()),
            Err(error) => {
                is_silent = true;
                status(State::Failed, format!("its bridge process does not answer: {error}"))
            }
        }
    } else if waiting(record, Way::ALL).ok().is_none_or(|waiting| waiting.is_some()) {
        let reason = "its bridge process was killed, and requests wait; `pumice attach` starts another one";
        status(State::Unattended, reason.to_string())
    } else {
        let reason = "its bridge process has ended; `pumice detach` removes what is left";
        status(State::Failed, reason.to_string())
    };
    let (mut record, mut status) = (record.clone(), status);
    let lost = node::lost(&record, folder).and_then(|why| Some((record.node.take()?, why)));
    if let Some((_, why)) = &lost
        && status.state != State::Unattended
    {
        let reason = format!("{why}; `pumice detach`, then attach it again");
        status = Status { state: State::Failed, reason: Some(reason), ..status };
    }
    Attachment { record, status, lost, folder: folder.to_path_buf(), is_alive, is_silent }
}

/// The process of a bridge.
fn process(record: &Record) -> Process {
    match record.bridge_started {
        Some(_) => Process { pid: record.bridge_pid, started: record.bridge_started },
        None => Process::of(record.bridge_pid),
    }
}

/// Returns why a bridge says nothing, if it was stopped.
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

impl Record {
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

    /// Returns why its bridge lives and does nothing: it was stopped, or does not answer for some seconds.
    /// `None` if it answers, or has ended. If it is to be killed, it has ten seconds in any case.
    pub fn hangs(&self, is_to_be_killed: bool) -> Option<String> {
        let since = Instant::now();
        while self.is_silent && matches!(place::lock(&self.folder), Ok(None)) {
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

    /// Kills its bridge. What that has not flushed is lost if its server ends, too.
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

    /// Returns whether it has a device that waits for a bridge, or that may do so soon.
    pub fn waits(&self) -> bool {
        self.status.state == State::Unattended || (self.is_silent && self.record.way == Some(Way::Ublk))
    }

    /// Process id of the server that its bridge has started, if that runs. The record may name its
    /// predecessor.
    pub fn own_server(&self) -> Option<u32> {
        left(&self.folder, &self.record).map(|server| server.pid)
    }

    /// Returns why the server that its bridge has started does nothing, if it was stopped.
    pub fn stopped_server(&self) -> Option<String> {
        let server = place::server(&self.folder).filter(|server| server.is_stopped())?;
        Some(stopped("server", server.pid))
    }

    /// Detaches the drive. The caller has checked that nothing is mounted, unless it is forced while the
    /// device waits for a bridge. With `force`, what cannot be flushed is lost.
    ///
    /// # Errors
    /// If it is in use, or cannot be flushed.
    pub fn detach(&self, force: bool) -> Result<(), AttachError> {
        if !self.is_alive {
            return self.clear(force);
        }
        match ask(&self.folder, &Request::Detach { force }, DETACH_PATIENCE) {
            Ok(Answer::Detached(None)) => Ok(()),
            Ok(Answer::Detached(Some(lost))) => Err(AttachError::Refused(format!("detached, but {lost}"))),
            Ok(Answer::Refused(reason)) => Err(AttachError::Refused(reason)),
            Ok(Answer::Status(_)) => Err(AttachError::Refused("the bridge gives a wrong answer".to_string())),
            // It was being killed.
            Err(_) if matches!(place::lock(&self.folder), Ok(Some(_))) => self.clear(force),
            Err(source) => {
                let pid = self.record.bridge_pid;
                let what = format!(
                    "its bridge, process {pid}, does not answer; SIGTERM detaches, once it is not in use"
                );
                Err(AttachError::system(what, source))
            }
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

    /// Removes what a killed bridge has left.
    fn clear(&self, force: bool) -> Result<(), AttachError> {
        let at_folder = |source| AttachError::system(self.folder.display(), source);
        let Some(_lock) = place::lock(&self.folder).map_err(at_folder)? else {
            return Err(AttachError::Refused("it is being attached again".to_string()));
        };
        clear_stale(Some(&self.record), &self.folder, force)?;
        if let Some(server) = left(&self.folder, &self.record) {
            stop_process(server, force).map_err(|why| {
                AttachError::Refused(match force {
                    true => why,
                    false => format!("{why}; --force kills it"),
                })
            })?;
        }
        let node = self.record.node.as_ref().or(self.lost.as_ref().map(|(node, _)| node));
        if let Some(node) = node {
            sfx::clear(&self.record.path, node);
        }
        place::remove(&self.folder);
        Ok(())
    }
}

/// Returns whether a bridge has a folder, and answers.
pub(crate) fn is_answering(folder: &Path) -> bool {
    ask(folder, &Request::Status, ANSWER_PATIENCE).is_ok()
}

fn ask(folder: &Path, request: &Request, patience: Duration) -> io::Result<Answer> {
    let stream = socket_file::connect(&place::control_socket(folder), CONNECTING)?;
    ask_on(stream, request, patience)
}

/// As [`ask`], with one limit for connecting and the answer.
fn ask_within(folder: &Path, request: &Request, patience: Duration) -> io::Result<Answer> {
    let since = Instant::now();
    let stream = socket_file::connect(&place::control_socket(folder), patience)?;
    let left = patience.saturating_sub(since.elapsed());
    ask_on(stream, request, left.max(TIME_MIN))
}

fn ask_on(mut stream: UnixStream, request: &Request, patience: Duration) -> io::Result<Answer> {
    stream.set_read_timeout(Some(patience))?;
    writeln!(stream, "{}", serde_json::to_string(request)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;

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
                let status = Status { state: State::Attached, reason: None, size_bytes: 7 };
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
        let silent = found.iter().filter(|it| it.is_silent && it.status.state == State::Failed).count();
        assert_eq!((found.len(), silent), (9, 8));
        assert_eq!((found[8].status.state, found[8].status.size_bytes), (State::Attached, 7));
        assert!(found.iter().zip(&records).all(|(found, (_, record))| found.record == *record));
    }

    #[test]
    fn a_drive_is_known_by_the_path_that_its_server_has() {
        let record = Record { served: Some("/srv/drive".into()), ..Record::new("/srv/link".into()) };
        assert!(record.is_served_at(Path::new("/srv/drive")) && record.is_served_at(Path::new("/srv/link")));
        assert!(!record.is_of(Path::new("/srv/drive")) && !record.is_served_at(Path::new("/srv/other")));
    }
}
