//! The admin socket of a server: it answers the requests of [`ask::protocol`], for the
//! owner only.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ask::names;
use ask::protocol::{Answer, Change, Request};
use ask::runtime_dir::{make_runtime_dir, may_be_given, runtime_dirs};
use drive::{WipeOptions, WipeTarget};
use log_limit::LogLimit;
use socket_file::SocketFile;
use status::{StatusAnswer, path_text, shown};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::error::ServiceError;
use crate::serving::drives::{Drives, WeakDrives};
use crate::serving::grow::allocation;
use crate::serving::served::ServedDrive;

/// Longest request line accepted.
const REQUEST_MAX_BYTES: u64 = 64 << 10;
/// Time limit of a client for a request, and for receiving the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most copies of one drive in one server that status finds.
const COPIES_MAX: usize = 64;
/// Most clients at a time. A further one ends the connection of the oldest one for which nothing is being
/// changed: clients that send nothing, or do not read the answer, cannot exclude others or exhaust the
/// descriptors of the server.
const CLIENTS_MAX: usize = 128;
/// Connections waiting to be accepted.
const BACKLOG: i32 = 64;

/// A listening admin socket. It is removed when dropped.
pub struct AdminSocket {
    /// Dropped before the listener.
    file: SocketFile,
    _accepting: JoinSet<()>,
    /// Weak: a client that stays connected must not keep a closed drive, because its backing could not be
    /// reopened.
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
                error @ (socket_file::Error::TooLong(_) | socket_file::Error::NoDirectory(_)) => error.into(),
                error => io::Error::new(io::ErrorKind::AddrInUse, error),
            })
            .map_err(failed("listen at"))?;
        let listener = UnixListener::from_std(listener).map_err(failed("listen at"))?;
        let drives = drives.into();
        let answered = drives.downgrade();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let (failures, refusals) = (LogLimit::new(), LogLimit::new());
            let mut clients = Clients::default();
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
                        if !clients.make_room() {
                            if let Some(held_back) = refusals.pass() {
                                tracing::warn!(
                                    held_back,
                                    "refused a client of the admin socket: {CLIENTS_MAX} others wait for changes"
                                );
                            }
                            continue;
                        }
                        let (drives, state) = (answered.clone(), Arc::new(ClientState::default()));
                        let asked = state.clone();
                        let answering = tokio::spawn(async move {
                            // A client may hang up or never ask.
                            let _ = answer_all(stream, user, &drives, &asked).await;
                        });
                        clients.0.push_back((answering, state));
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

    /// Listens for requests about `drive` where [`find_served`](crate::find_served) looks.
    ///
    /// # Errors
    ///
    /// As for [`AdminSocket::listen`].
    pub fn listen_for(drive: &Arc<ServedDrive>) -> Result<AdminSocket, ServiceError> {
        let dir = runtime_dir()?;
        let (uuid, pid) = (drive.uuid(), std::process::id());
        // Copies of a drive have its id, and may be served too, by this server as well.
        let mut tried = AdminSocket::listen(&dir.join(names::of_drive(uuid)), drive.clone());
        for name in (1..=COPIES_MAX).map(|copy| names::of_copy(uuid, pid, copy)) {
            if tried.is_ok() {
                break;
            }
            tried = AdminSocket::listen(&dir.join(name), drive.clone());
        }
        tried
    }

    /// Listens for requests about a server's drives that could not be opened, where
    /// [`find_drives`](crate::find_drives) looks.
    ///
    /// # Errors
    ///
    /// As for [`AdminSocket::listen`].
    pub fn listen_for_down(drives: &Drives) -> Result<AdminSocket, ServiceError> {
        let path = runtime_dir()?.join(names::of_down(std::process::id()));
        AdminSocket::listen(&path, drives.only_down())
    }

    /// Gives the socket to a user that this process is about to become, and its directory if that serves for
    /// sockets alone, so that the user can create, remove and use sockets there. A file that cannot be given
    /// away is left behind when the server ends, and sockets of later drives are created in another
    /// directory.
    pub fn give(&self, user: u32, group: u32) {
        if let Some(directory) = self.path().parent().filter(|directory| may_be_given(directory)) {
            self.file.give(user, group);
            if std::fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir() && found.uid() == 0) {
                let _ = std::os::unix::fs::lchown(directory, Some(user), Some(group));
            }
        }
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Admits root and the user of this process, also if the mode of the socket was changed. Returns the user id
/// of the client, also as the error, if it is known.
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

/// Clients, the oldest first.
#[derive(Default)]
struct Clients(VecDeque<(JoinHandle<()>, Arc<ClientState>)>);

/// State of a client that other tasks use.
#[derive(Default)]
struct ClientState {
    /// Notified when it has to disconnect.
    leave: Notify,
    /// Set from the beginning of a change until its answer is sent.
    is_changing: AtomicBool,
}

impl Clients {
    /// Makes room for one more client. Returns false if all of them wait for changes.
    fn make_room(&mut self) -> bool {
        self.0.retain(|(answering, _)| !answering.is_finished());
        if self.0.len() < CLIENTS_MAX {
            return true;
        }
        let oldest = self.0.iter().position(|(_, state)| !state.is_changing.load(Ordering::Relaxed));
        let Some((_, state)) = oldest.and_then(|oldest| self.0.remove(oldest)) else { return false };
        state.leave.notify_one();
        true
    }
}

/// Answers requests until the client disconnects or has to, or the socket is gone. Completes and answers a
/// change first.
async fn answer_all(
    stream: UnixStream,
    user: u32,
    drives: &WeakDrives,
    state: &ClientState,
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = tokio::io::BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut read).take(REQUEST_MAX_BYTES);
        let asked = tokio::time::timeout(TIMEOUT, limited.read_until(b'\n', &mut line));
        let asked_bytes = tokio::select! {
            biased;
            () = state.leave.notified() => return Ok(()),
            asked = asked => asked??,
        };
        if asked_bytes == 0 {
            return Ok(());
        }
        debug_assert!(line.len() as u64 <= REQUEST_MAX_BYTES, "the length of a request is bounded");
        let whole = line.ends_with(b"\n");
        let answer = match line.len() as u64 {
            REQUEST_MAX_BYTES if !whole => Answer::Error { error: too_long() },
            _ => match drives.upgrade() {
                Some(drives) => answer_one(&line, user, drives, &state.is_changing).await,
                None => return Ok(()),
            },
        };
        let mut answer = serde_json::to_vec(&answer)?;
        answer.push(b'\n');
        tokio::select! {
            biased;
            () = state.leave.notified(), if !state.is_changing.load(Ordering::Relaxed) => return Ok(()),
            taken = tokio::time::timeout(TIMEOUT, write.write_all(&answer)) => taken??,
        }
        state.is_changing.store(false, Ordering::Relaxed);
        if !whole {
            return Ok(());
        }
    }
}

fn too_long() -> String {
    format!("a request is one line of at most {REQUEST_MAX_BYTES} bytes")
}

async fn answer_one(line: &[u8], user: u32, drives: Drives, is_changing: &AtomicBool) -> Answer {
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
            let shown = shown(found.path()).to_string();
            is_changing.store(true, Ordering::Relaxed);
            let changed = match change {
                Change::Erase { sector_bytes, logical_capacity_bytes, only_if_empty } => {
                    let (eraser, drive) = (found.eraser(), (found.path().to_path_buf(), found.uuid()));
                    // A reference would keep it from being reopened.
                    drop((served, drives));
                    let options = WipeOptions {
                        sector_bytes,
                        logical_capacity_bytes,
                        // Its file is opened again by its path, where another drive may be by then.
                        target: WipeTarget::Id(drive.1.into_bytes()),
                    };
                    match eraser {
                        Some(eraser) => {
                            let erased = eraser.erase(drive, options, only_if_empty).await;
                            erased.map_err(|error| error.to_string())
                        }
                        None => Err(format!("{shown}: cannot be erased while it is served: stop its server")),
                    }
                }
                _ => {
                    let made = make(found, &change).await;
                    made.map(|()| found.report()).map_err(|error| error.to_string())
                }
            };
            match changed {
                Ok(report) => {
                    tracing::info!(drive = %shown, user, ?change, "changed by an administrator");
                    Answer::Changed { drive: Box::new(report) }
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

/// Makes a change.
async fn make(drive: &ServedDrive, change: &Change) -> Result<(), ServiceError> {
    let refused = |why: &str| Err(ServiceError::Refused(why.to_string()));
    match change {
        Change::SetCapacity { bytes } => drive.set_logical_capacity(*bytes).await,
        Change::SetSize { bytes, preallocate } => {
            drive.set_physical_size(*bytes, allocation(*preallocate)).await
        }
        Change::SetCodec { codec } => {
            let policy = codec.parse::<codec::Policy>()?;
            drive.set_codec(policy).await
        }
        Change::SetParity { parity } => match parity.parse() {
            Ok(form) => drive.set_parity(form).await,
            Err(error) => Err(ServiceError::Refused(format!("parity '{parity}': {error}"))),
        },
        Change::StartScrub { bytes_per_second: 0 } => {
            refused("rate must be greater than 0; stop-scrub stops a scrub")
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
        // The server handles that.
        Change::Erase { .. } => refused("a drive cannot erase itself"),
        Change::Train => drive.train().await.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_whose_changes_are_made_stay() {
        let mut clients = Clients::default();
        for _ in 0..CLIENTS_MAX {
            assert!(clients.make_room());
            clients.0.push_back((tokio::spawn(std::future::pending()), Arc::default()));
        }
        let states: Vec<_> = clients.0.iter().map(|(_, state)| state.clone()).collect();
        states[0].is_changing.store(true, Ordering::Relaxed);
        assert!(clients.make_room());
        // The second had to leave.
        tokio::time::timeout(TIMEOUT, states[1].leave.notified()).await.expect("it is notified");
        assert_eq!(clients.0.len(), CLIENTS_MAX - 1);
        assert!(Arc::ptr_eq(&clients.0[0].1, &states[0]));
        clients.0.push_back((tokio::spawn(std::future::pending()), Arc::default()));
        clients.0.iter().for_each(|(_, state)| state.is_changing.store(true, Ordering::Relaxed));
        assert!(!clients.make_room(), "nobody may be cut off");
    }

    #[test]
    fn clients_that_ask_nothing_exclude_no_others() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("admin.sock");
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let _socket = AdminSocket::listen(&path, Drives::default())?;
            let mut silent = Vec::new();
            for number in 0..CLIENTS_MAX + 10 {
                let mut client = UnixStream::connect(&path).await?;
                // Some send a part of a request.
                client.write_all(&b"{\"command\": \"sta"[..number % 3 * 5]).await?;
                silent.push(client);
                // Accepted: the queue of those that wait is short.
                tokio::task::yield_now().await;
            }
            let mut client = UnixStream::connect(&path).await?;
            client.write_all(b"{\"command\": \"status\"}\n").await?;
            let mut answer = String::new();
            tokio::io::BufReader::new(&mut client).read_line(&mut answer).await?;
            assert!(answer.contains("\"drives\":[]"), "{answer}");
            // The oldest were sent away before their time was over.
            let left = tokio::time::timeout(TIMEOUT / 2, silent[0].read_u8()).await?;
            assert_eq!(left.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
            Ok(())
        })
    }
}
