//! Bridges as `attach`, `detach` and `list` see them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::bridge::{Answer, KEEP, Report, Request, State, Status};
use crate::error::AttachError;
use crate::node::{Way, clear_stale, waiting};
use crate::place::{self, Record, file_id};
use crate::server::{left, stop_process};
use crate::sfx;

/// Time for a bridge to accept a request.
const CONNECTING: Duration = Duration::from_secs(5);
/// Time for a bridge to say how it is.
const STATUS_PATIENCE: Duration = Duration::from_secs(5);
/// Time for a bridge that may be ending.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// Time for a bridge to detach: flushing, closing, the end of the server.
const DETACH_PATIENCE: Duration = Duration::from_secs(300);

/// A bridge that was just started. Dropping it without [`NewBridge::keep`] makes the bridge undo everything, and waits for that. One
/// that has taken over a device undoes nothing: it stays.
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
    let of = |(folder, record): (PathBuf, Record)| {
        let is_alive = matches!(place::lock(&folder), Ok(None));
        let size_bytes = record.shape.as_ref().map_or(0, |shape| shape.size_bytes);
        let status = |state, reason: String| Status { state, reason: Some(reason), size_bytes };
        let mut is_silent = false;
        let status = if is_alive {
            match ask(&folder, &Request::Status, STATUS_PATIENCE) {
                Ok(Answer::Status(status)) => status,
                Ok(_) => status(State::Failed, "its bridge process gives a wrong answer".to_string()),
                Err(error) => {
                    is_silent = true;
                    status(State::Failed, format!("its bridge process does not answer: {error}"))
                }
            }
        } else if waiting(&record, Way::ALL).ok().is_none_or(|waiting| waiting.is_some()) {
            let reason =
                "its bridge process was killed, and requests wait; `pumice attach` starts another one";
            status(State::Unattended, reason.to_string())
        } else {
            let reason = "its bridge process has ended; `pumice detach` removes what is left";
            status(State::Failed, reason.to_string())
        };
        Attachment { record, status, folder, is_alive, is_silent }
    };
    place::all().into_iter().map(of).collect()
}

/// Returns the attachment with this node or drive.
pub fn find(path: &Path) -> Option<Attachment> {
    let is_it = |it: &Attachment| it.record.node.as_deref().is_some_and(|node| is_same(node, path));
    all().into_iter().find(|it| is_it(it) || it.is_of(path))
}

/// Returns whether two paths lead to the same file or device.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    absolute(one) == absolute(other) || file_id(one).is_some_and(|it| file_id(other) == Some(it))
}

impl Attachment {
    /// Returns whether the drive at `path` is attached by it, whatever path it was given.
    pub fn is_of(&self, path: &Path) -> bool {
        is_same(&self.record.path, path)
    }

    /// Returns whether it has a device that waits for a bridge, or that may do so soon.
    pub fn waits(&self) -> bool {
        self.status.state == State::Unattended || (self.is_silent && self.record.way == Some(Way::Ublk))
    }

    /// Detaches the drive. The caller has checked that nothing is mounted, unless it is forced while the device waits for a bridge. With
    /// `force`, what cannot be flushed is lost.
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
        if let Some(node) = &self.record.node {
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

fn ask(folder: &Path, request: &Request, patience: Duration) -> std::io::Result<Answer> {
    let mut stream = socket_file::connect(&place::control_socket(folder), CONNECTING)?;
    stream.set_read_timeout(Some(patience))?;
    writeln!(stream, "{}", serde_json::to_string(request)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
