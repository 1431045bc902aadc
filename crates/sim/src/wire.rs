//! An NBD client on a connection in memory. Its numbers are those of the specification, independent of the
//! server's constants, so that mistakes in those are found.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drive::Spawner;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::Error;

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_EXPORT_NAME: u32 = 1;
/// Fixed newstyle, and no zeros at the end of the negotiation.
const CLIENT_FLAGS: u32 = 0b11;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Greeting: two magic numbers and flags.
const GREETING_BYTES: usize = 18;
/// Reply to the option: size and flags.
const EXPORT_BYTES: usize = 10;
const REPLY_BYTES: usize = 16;

/// A request, with its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// NBD_CMD_READ
    Read = 0,
    /// NBD_CMD_WRITE
    Write = 1,
    /// NBD_CMD_FLUSH
    Flush = 3,
    /// NBD_CMD_TRIM
    Trim = 4,
    /// NBD_CMD_WRITE_ZEROES
    WriteZeroes = 6,
}

/// The request must be durable before the reply.
pub const FLAG_FUA: u16 = 1;
/// The range stays allocated.
pub const FLAG_NO_HOLE: u16 = 2;

struct Waiting {
    /// Bytes that follow a reply without an error.
    payload_bytes: usize,
    answer: oneshot::Sender<Result<Vec<u8>, u32>>,
}

struct State {
    /// By cookie.
    waiting: Mutex<FxHashMap<u64, Waiting>>,
    is_lost: Arc<AtomicBool>,
    cut: Notify,
}

impl State {
    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        // Makes all waiting requests fail.
        self.waiting.lock().clear();
    }
}

/// A connection after its negotiation. It handles many concurrent requests.
pub struct Wire {
    state: Arc<State>,
    /// Whole requests, so that a request whose client gives up is not cut in the middle.
    requests: mpsc::UnboundedSender<Vec<u8>>,
    next_cookie: AtomicU64,
}

impl Wire {
    /// Negotiates for the export without a name. Sets `is_lost` when the connection is unusable, which the
    /// server then knows of its stream.
    ///
    /// # Errors
    /// If the server disconnects, or does not follow the protocol.
    pub async fn connect(
        mut stream: DuplexStream,
        is_lost: Arc<AtomicBool>,
        spawner: &Spawner,
    ) -> io::Result<Wire> {
        let mut greeting = [0; GREETING_BYTES];
        stream.read_exact(&mut greeting).await?;
        if &greeting[..8] != b"NBDMAGIC" || &greeting[8..16] != OPTION_MAGIC {
            return Err(io::Error::other("no greeting of a server of the newstyle kind"));
        }
        let mut option = CLIENT_FLAGS.to_be_bytes().to_vec();
        option.extend_from_slice(OPTION_MAGIC);
        option.extend_from_slice(&OPTION_EXPORT_NAME.to_be_bytes());
        option.extend_from_slice(&0_u32.to_be_bytes());
        stream.write_all(&option).await?;
        stream.read_exact(&mut [0; EXPORT_BYTES]).await?;
        let (read, write) = split(stream);
        let state = Arc::new(State { waiting: Mutex::default(), is_lost, cut: Notify::new() });
        let (requests, queue) = mpsc::unbounded_channel();
        spawner(Box::pin(send(write, queue)));
        spawner(Box::pin(receive(read, state.clone())));
        Ok(Wire { state, requests, next_cookie: AtomicU64::new(1) })
    }

    /// Returns whether the connection is unusable.
    pub fn is_lost(&self) -> bool {
        self.state.is_lost.load(Ordering::Relaxed)
    }

    /// Disconnects, whatever is in flight.
    pub fn cut(&self) {
        self.state.lose();
        self.state.cut.notify_one();
    }

    /// Sends a request and waits for its reply. Returns the data of a READ.
    ///
    /// # Errors
    /// The error in the reply, or [`Error::ConnectionLost`] if there was no reply.
    pub async fn request(
        &self,
        command: Command,
        flags: u16,
        (offset, len): (u64, u32),
        data: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let cookie = self.next_cookie.fetch_add(1, Ordering::Relaxed);
        let mut request = Vec::with_capacity(28 + data.len());
        request.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        request.extend_from_slice(&flags.to_be_bytes());
        request.extend_from_slice(&(command as u16).to_be_bytes());
        request.extend_from_slice(&cookie.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&len.to_be_bytes());
        request.extend_from_slice(data);
        let payload_bytes = if command == Command::Read { len as usize } else { 0 };
        let (answer, answered) = oneshot::channel();
        self.state.waiting.lock().insert(cookie, Waiting { payload_bytes, answer });
        if self.is_lost() || self.requests.send(request).is_err() {
            return Err(Error::ConnectionLost);
        }
        match answered.await {
            Ok(Ok(data)) => Ok(data),
            Ok(Err(errno)) => Err(error_of(errno)),
            Err(_) => Err(Error::ConnectionLost),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Converts an error number of the protocol to the drive's error.
fn error_of(errno: u32) -> Error {
    match errno {
        1 => Error::NotPermitted,
        5 => Error::FailedOrDamaged("by NBD".into()),
        22 => Error::Invalid("by NBD".into()),
        28 => Error::NoSpace,
        other => Error::Answered(other),
    }
}

async fn send(mut stream: WriteHalf<DuplexStream>, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(request) = queue.recv().await {
        if stream.write_all(&request).await.is_err() {
            return;
        }
    }
}

async fn receive(mut stream: ReadHalf<DuplexStream>, state: Arc<State>) {
    tokio::select! {
        biased;
        () = state.cut.notified() => {}
        _ = take_replies(&mut stream, &state) => {}
    }
    state.lose();
}

async fn take_replies(stream: &mut ReadHalf<DuplexStream>, state: &State) -> io::Result<()> {
    loop {
        let mut reply = [0; REPLY_BYTES];
        stream.read_exact(&mut reply).await?;
        let word = |at: usize| u32::from_be_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]]);
        let cookie = u64::from(word(8)) << 32 | u64::from(word(12));
        let waiting = state.waiting.lock().remove(&cookie);
        let (true, Some(Waiting { payload_bytes, answer })) = (word(0) == REPLY_MAGIC, waiting) else {
            return Err(io::Error::other("an answer to nothing"));
        };
        let result = match word(4) {
            0 => {
                let mut data = vec![0; payload_bytes];
                stream.read_exact(&mut data).await?;
                Ok(data)
            }
            errno => Err(errno),
        };
        // The requester may have given up.
        let _ = answer.send(result);
    }
}
