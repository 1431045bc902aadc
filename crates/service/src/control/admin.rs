//! The admin socket: JSON requests and answers, one per line, over a Unix socket for the owner only.
//!
//! | request | answer |
//! | --- | --- |
//! | `{"command": "status"}` | `{"drives": [...]}`, one report per drive |
//! | `{"command": "change", "drive": UUID, "path": PATH, "change": CHANGE}` | `{"drive": {...}}`, its report afterwards |
//! | any that fails | `{"error": "..."}` |
//!
//! `path`, as in the status, is only needed if copies of the drive are served too. CHANGE is one of
//!
//! - `{"set-capacity": {"bytes": N}}`
//! - `{"set-size": {"bytes": N, "preallocate": false}}`
//! - `{"set-codec": {"codec": "zstd:3"}}`
//! - `{"start-scrub": {"bytes_per_second": N}}`, `"stop-scrub"`
//! - `"start-settle"`, `"stop-settle"`, `"train"`

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket_file::SocketFile;
use status::{DriveState, StatusAnswer, StatusReport, path_text, shown};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::control::resize::allocation;
use crate::control::runtime_dir::{make_runtime_dir, runtime_dirs, trusted};
use crate::error::ServiceError;
use crate::serving::drives::{Drives, WeakDrives};
use crate::serving::served::ServedDrive;
use log_limit::LogLimit;

/// Longest request line accepted.
const REQUEST_MAX_BYTES: u64 = 64 << 10;
/// Time limit of a client for a request, and of a server for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a change: a file system may have to allocate much space.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(600);
/// Most copies of one drive in one server that status finds.
const COPIES_MAX: usize = 64;
/// Connections waiting to be accepted.
const BACKLOG: i32 = 64;

#[derive(Deserialize, Serialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
enum Request {
    Status,
    Change {
        drive: String,
        /// Distinguishes copies of a drive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        change: Change,
    },
}

/// A change of a drive that a server can be asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// The logical capacity.
    SetCapacity {
        /// Capacity that hosts see.
        bytes: u64,
    },
    /// The physical size.
    SetSize {
        /// Bytes of the backing that the drive may use.
        bytes: u64,
        /// Allocate the space of a longer file at once.
        #[serde(default)]
        preallocate: bool,
    },
    /// Compression of new blocks.
    SetCodec {
        /// In the form of `pumice create --codec`.
        codec: String,
    },
    /// Starts a scrub, or changes the rate of the running one.
    StartScrub {
        /// Bytes of records per second.
        bytes_per_second: u64,
    },
    /// Stops it.
    StopScrub,
    /// Starts a run that settles everything, or joins the running one.
    StartSettle,
    /// Stops it.
    StopSettle,
    /// Trains a dictionary. The answer comes when that is done.
    Train,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Status(StatusAnswer),
    Changed { drive: Box<StatusReport> },
    Error { error: String },
}

/// A listening admin socket. It is removed when dropped.
pub struct AdminSocket {
    /// Dropped before the listener.
    file: SocketFile,
    _accepting: JoinSet<()>,
    /// Clients may stay connected for long. They keep no closed drive, whose backing could not be opened again.
    _drives: Drives,
}

impl AdminSocket {
    /// Listens at `path` for requests about `drives`, including those added later, on the current runtime.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Admin`], also if another server listens there.
    pub fn listen(path: &Path, drives: impl Into<Drives>) -> Result<AdminSocket, ServiceError> {
        let failed = |action| move |source| ServiceError::Admin { path: path.to_path_buf(), action, source };
        let (listener, file) = socket_file::listen(path, BACKLOG)
            .map_err(|error| match error {
                socket_file::Error::Io(error) => error,
                error => io::Error::new(io::ErrorKind::AddrInUse, error),
            })
            .map_err(failed("listen at"))?;
        let listener = UnixListener::from_std(listener).map_err(failed("listen at"))?;
        let drives = drives.into();
        let answered = drives.downgrade();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let (failures, refusals) = (LogLimit::new(), LogLimit::new());
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let user = match admit(&stream) {
                            Ok(user) => user,
                            Err(uid) => {
                                if let Some(held_back) = refusals.pass() {
                                    tracing::warn!(
                                        uid,
                                        held_back,
                                        "refused a client of the admin socket: another user"
                                    );
                                }
                                continue;
                            }
                        };
                        let drives = answered.clone();
                        tokio::spawn(async move {
                            // A client may hang up or never ask.
                            let _ = answer_all(stream, user, &drives).await;
                        });
                    }
                    // Probably out of file descriptors: a pause avoids spinning.
                    Err(error) => {
                        if let Some(held_back) = failures.pass() {
                            tracing::warn!(%error, held_back, "the admin socket cannot accept");
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(AdminSocket { file, _accepting: accepting, _drives: drives })
    }

    /// Listens for requests about `drive` where [`find_served`] looks.
    ///
    /// # Errors
    ///
    /// As for [`AdminSocket::listen`].
    pub fn listen_for(drive: &Arc<ServedDrive>) -> Result<AdminSocket, ServiceError> {
        let dir = runtime_dir()?;
        let (uuid, pid) = (drive.uuid(), std::process::id());
        // Copies of a drive have its id, and may be served too, by this server as well.
        let others = (2..=COPIES_MAX).map(|copy| format!("{uuid}-{pid}-{copy}.sock"));
        let mut tried = AdminSocket::listen(&dir.join(format!("{uuid}.sock")), drive.clone());
        for name in std::iter::once(format!("{uuid}-{pid}.sock")).chain(others) {
            if tried.is_ok() {
                break;
            }
            tried = AdminSocket::listen(&dir.join(name), drive.clone());
        }
        tried
    }

    /// Listens for requests about a server's drives that could not be opened, where [`find_drives`] looks.
    ///
    /// # Errors
    ///
    /// As for [`AdminSocket::listen`].
    pub fn listen_for_down(drives: &Drives) -> Result<AdminSocket, ServiceError> {
        let path = runtime_dir()?.join(format!("down-{}.sock", std::process::id()));
        AdminSocket::listen(&path, drives.only_down())
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Admits root and the user of this process, also if the mode of the socket was changed. Returns the user id of the
/// client, also as the error, if it is known.
fn admit(stream: &UnixStream) -> Result<u32, Option<u32>> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw() => Ok(peer.uid()),
        peer => Err(peer.ok().map(|peer| peer.uid())),
    }
}

fn runtime_dir() -> Result<PathBuf, ServiceError> {
    make_runtime_dir().map_err(|source| ServiceError::Admin {
        path: runtime_dirs().into_iter().next().unwrap_or_default(),
        action: "make a directory for",
        source,
    })
}

/// Answers requests until the client leaves or the socket is gone.
async fn answer_all(stream: UnixStream, user: u32, drives: &WeakDrives) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = tokio::io::BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut read).take(REQUEST_MAX_BYTES);
        if tokio::time::timeout(TIMEOUT, limited.read_until(b'\n', &mut line)).await?? == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n");
        let answer = match line.len() as u64 {
            REQUEST_MAX_BYTES if !whole => Answer::Error { error: too_long() },
            _ => match drives.upgrade() {
                Some(drives) => answer_one(&line, user, &drives).await,
                None => return Ok(()),
            },
        };
        let mut answer = serde_json::to_vec(&answer)?;
        answer.push(b'\n');
        tokio::time::timeout(TIMEOUT, write.write_all(&answer)).await??;
        if !whole {
            return Ok(());
        }
    }
}

fn too_long() -> String {
    format!("a request is one line of at most {REQUEST_MAX_BYTES} bytes")
}

async fn answer_one(line: &[u8], user: u32, drives: &Drives) -> Answer {
    let request = serde_json::from_slice(line);
    match request {
        Ok(Request::Status) => Answer::Status(StatusAnswer { drives: drives.reports() }),
        Ok(Request::Change { drive, path, change }) => {
            let mut served = drives.all();
            served.retain(|served| {
                served.uuid().to_string() == drive
                    && path.as_ref().is_none_or(|path| *path == path_text(served.path()))
            });
            let found = match &served[..] {
                [found] => found,
                [] => return Answer::Error { error: format!("drive {drive} is not served here") },
                _ => {
                    return Answer::Error {
                        error: format!("copies of drive {drive} are served here: add its path"),
                    };
                }
            };
            let shown = shown(found.path());
            match make(found, &change).await {
                Ok(()) => {
                    tracing::info!(drive = %shown, user, ?change, "changed by an administrator");
                    Answer::Changed { drive: Box::new(found.report()) }
                }
                Err(error) => {
                    tracing::info!(drive = %shown, user, ?change, %error, "a change by an administrator failed");
                    Answer::Error { error }
                }
            }
        }
        Err(error) => Answer::Error { error: format!("not a request this server knows: {error}") },
    }
}

/// Makes a change. Returns the reason if it fails.
async fn make(drive: &ServedDrive, change: &Change) -> Result<(), String> {
    let changed = match change {
        Change::SetCapacity { bytes } => drive.set_logical_capacity(*bytes).await,
        Change::SetSize { bytes, preallocate } => {
            drive.set_physical_size(*bytes, allocation(*preallocate)).await
        }
        Change::SetCodec { codec } => {
            let policy = codec.parse::<codec::Policy>().map_err(|error| error.to_string())?;
            drive.set_codec(policy).await
        }
        Change::StartScrub { bytes_per_second: 0 } => {
            return Err("rate must be greater than 0 (use stop-scrub to stop)".into());
        }
        Change::StartScrub { bytes_per_second } => {
            drive.start_scrub(*bytes_per_second);
            Ok(())
        }
        Change::StopScrub => {
            drive.stop_scrub();
            Ok(())
        }
        Change::StartSettle => {
            drive.start_settle();
            Ok(())
        }
        Change::StopSettle => {
            drive.stop_settle();
            Ok(())
        }
        Change::Train => drive.train().await.map(|_| ()),
    };
    changed.map_err(|error| error.to_string())
}

/// Asks the server at an admin socket for the status of its drives.
///
/// # Errors
///
/// [`ServiceError::Admin`] if there is no answer in time, or a wrong one.
pub fn ask_status(socket: &Path) -> Result<StatusAnswer, ServiceError> {
    match ask(socket, &Request::Status, TIMEOUT)? {
        Answer::Status(answer) => Ok(answer),
        Answer::Changed { .. } | Answer::Error { .. } => Err(odd_answer(socket)),
    }
}

/// Asks the server that has the drive at `path`, if there is one, to change it. Returns the status afterwards.
///
/// # Errors
///
/// [`ServiceError::Refused`] with the server's message; [`ServiceError::Admin`] if there is no answer.
pub fn change(path: &Path, change: &Change) -> Result<Option<StatusReport>, ServiceError> {
    let found = find_sockets(Some(path)).into_iter().find(|(_, report)| report.state != DriveState::Down);
    let Some((socket, report)) = found else { return Ok(None) };
    let (drive, path) = (report.uuid, Some(path_text(&report.path)));
    match ask(&socket, &Request::Change { drive, path, change: change.clone() }, CHANGE_TIMEOUT)? {
        Answer::Changed { drive } => Ok(Some(*drive)),
        Answer::Error { error } => Err(ServiceError::Refused(error)),
        Answer::Status(_) => Err(odd_answer(&socket)),
    }
}

fn odd_answer(socket: &Path) -> ServiceError {
    let source = io::Error::new(io::ErrorKind::InvalidData, "the answer is to another question");
    ServiceError::Admin { path: socket.to_path_buf(), action: "ask", source }
}

fn ask(socket: &Path, request: &Request, timeout: Duration) -> Result<Answer, ServiceError> {
    let ask = || -> io::Result<Answer> {
        let mut stream = socket_file::connect(socket, TIMEOUT)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    };
    ask().map_err(|source| ServiceError::Admin { path: socket.to_path_buf(), action: "ask", source })
}

/// Returns the drives that the servers of this machine (as far as this user may ask them) have open; with `path`,
/// only the drive there. Removes sockets that servers left behind.
pub fn find_served(path: Option<&Path>) -> Vec<StatusReport> {
    find_drives(path).into_iter().filter(|report| report.state != DriveState::Down).collect()
}

/// The same, followed by the drives that a server is configured to serve and could not open.
pub fn find_drives(path: Option<&Path>) -> Vec<StatusReport> {
    let mut found: Vec<StatusReport> = find_sockets(path).into_iter().map(|(_, report)| report).collect();
    // The sort is stable, so that the order of the sockets stays otherwise.
    found.sort_by_key(|report| report.state == DriveState::Down);
    found
}

/// The same, with the socket of each.
fn find_sockets(path: Option<&Path>) -> Vec<(PathBuf, StatusReport)> {
    let mut found = Vec::new();
    for dir in runtime_dirs().iter().filter(|dir| trusted(dir)) {
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        let mut sockets: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        sockets.retain(|socket| socket.extension().is_some_and(|extension| extension == "sock"));
        sockets.sort();
        for socket in sockets {
            match ask_status(&socket) {
                Ok(answer) => found.extend(answer.drives.into_iter().map(|report| (socket.clone(), report))),
                Err(_) => socket_file::remove_if_dead(&socket),
            }
        }
    }
    if let Some(path) = path {
        // A drive that is down may have no file.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        found.retain(|(_, report)| report.path == absolute || same_file(&report.path, path));
    }
    found
}

/// Returns whether two paths lead to the same file or device.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        // A device is the same wherever its node is.
        Some(if metadata.rdev() != 0 { (0, 0, metadata.rdev()) } else { (metadata.dev(), metadata.ino(), 0) })
    };
    identity(a).is_some_and(|identity_a| identity(b) == Some(identity_a))
}
