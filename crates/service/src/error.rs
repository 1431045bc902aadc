//! Errors of the service.

use std::io;
use std::path::PathBuf;

use media::LeaseLost;
use status::shown;

/// A drive could not be opened, served or asked. The message is one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The backing cannot be opened.
    #[error(transparent)]
    Media(#[from] media::MediaError),
    /// The engine refuses the drive.
    #[error("{}: {source}", shown(path))]
    Drive {
        /// Path of the backing.
        path: PathBuf,
        /// Error of the engine.
        source: drive::Error,
    },
    /// The memory that a killed server left cannot be used.
    #[error(
        "{}: the server before was killed, and what it has left in {} cannot be used: {why}; {}",
        shown(path),
        shown(memory),
        if *may_serve_later { LATER } else { NEVER }
    )]
    LeftMemory {
        /// Path of the backing.
        path: PathBuf,
        /// Path of the memory.
        memory: PathBuf,
        /// Why it cannot be used.
        why: String,
        /// It may be used once the reason is gone.
        may_serve_later: bool,
        /// The reason may be gone soon, and another attempt does no harm.
        passes: bool,
    },
    /// What an opening has to know is unknown just now: memory or descriptors may be short.
    #[error("{}: {what}: {source}", shown(path))]
    Unknown {
        /// Path of the backing.
        path: PathBuf,
        /// What cannot be done.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// A block device has the drive, and what is on that must not go on after a loss.
    #[error(
        "{}: attached, and acknowledged writes are lost: {why}; `pumice detach --force` ends the device, `pumice serve \
         --forget-memory` lets it go on with what is left",
        shown(path)
    )]
    LostBelow {
        /// Path of the backing.
        path: PathBuf,
        /// Why the memory of the last server is of no use.
        why: String,
    },
    /// The drive cannot be opened for writing, because the file system or volume under its backing has no
    /// room.
    #[error(
        "{}: cannot be opened for writing, because the file system or volume under it is full: {source}; make room \
         there, or use `pumice serve --read-only`, which writes nothing",
        shown(path)
    )]
    BackingFull {
        /// Path of the backing.
        path: PathBuf,
        /// Error of the engine.
        source: drive::Error,
    },
    /// A drive cannot be created or wiped, because the file system or volume under its backing has no room.
    #[error(
        "{}: cannot be {verb}, because the file system or volume under it is full; make room there",
        shown(path)
    )]
    NoRoom {
        /// Path of the backing.
        path: PathBuf,
        /// What was to be done: a participle.
        verb: &'static str,
    },
    /// A drive cannot be created or wiped, because of a limit on the size of files.
    #[error("{}: cannot be {verb}, because {limit}", shown(path))]
    BeyondLimit {
        /// Path of the backing.
        path: PathBuf,
        /// What was to be done: a participle.
        verb: &'static str,
        /// The limit.
        limit: media::SizeLimit,
    },
    /// The drive cannot be opened for writing, because of a limit on the size of files.
    #[error(
        "{}: cannot be opened for writing, because {limit}; or use `pumice serve --read-only`, which writes nothing",
        shown(path)
    )]
    SizeLimit {
        /// Path of the backing.
        path: PathBuf,
        /// The limit.
        limit: media::SizeLimit,
    },
    /// A worker thread cannot be started.
    #[error("cannot start worker thread {index}: {source}; try fewer threads")]
    Worker {
        /// Counted from 0.
        index: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// io_uring was required and is not available.
    #[error("io_uring is not available here: {0}; use --io auto or --io plain")]
    NoUring(io::Error),
    /// The system provides no random numbers.
    #[error("the system's random number generator failed: {0}; try again")]
    Entropy(String),
    /// A worker thread is gone.
    #[error("a worker thread has stopped (see the preceding log messages)")]
    WorkerGone,
    /// A server could not be asked.
    #[error(transparent)]
    Ask(#[from] ask::AskError),
    /// A backing could not be prepared for a new drive.
    #[error(transparent)]
    Prepare(PrepareError),
    /// The backing may not be changed.
    #[error("{}: {source}", shown(path))]
    LeaseLost {
        /// Path of the backing.
        path: PathBuf,
        /// Which process has it now.
        source: LeaseLost,
    },
    /// A codec is unknown.
    #[error(transparent)]
    Codec(#[from] codec::ParsePolicyError),
    /// The request is refused.
    #[error("{0}")]
    Refused(String),
    /// A server has the backing, and no admin socket reports it.
    #[error(
        "{}: in use by process {pid}, a server that does not report it: it is opening or closing the drive, has it by \
         a loop device, or uses another PUMICE_RUNTIME_DIR; try again, or see `pumice list`",
        shown(path)
    )]
    Opening {
        /// Path of the backing.
        path: PathBuf,
        /// Process id of the server.
        pid: u32,
    },
    /// An admin socket cannot be created.
    #[error("{}: cannot {action} the admin socket: {source}", shown(path))]
    Admin {
        /// Path of the socket.
        path: PathBuf,
        /// A verb.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

/// What to do about a memory that may be used later.
const LATER: &str = "remove the reason, or stop the server and start it once with --forget-memory, which sets the \
                     memory aside: acknowledged writes that were not flushed are lost then";
/// What to do about a memory that cannot be used.
const NEVER: &str = "the next server sets it aside: acknowledged writes that were not flushed are lost then, unless \
                     the backing that belongs to it comes back first";

/// Reason why a backing was not prepared.
pub type PrepareError = Box<dyn std::error::Error + Send + Sync>;
