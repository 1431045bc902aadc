//! Memories that earlier runs left, as an opening is given them.

use std::io;
use std::sync::Arc;

use media::Arena;

/// A memory that an earlier run left. It is read whole, and only words of its table are written.
///
/// It need not be mapped: a store to a page that a full file system has no room for would kill the process.
pub trait KeptMemory: Send + Sync {
    /// All bytes.
    ///
    /// # Errors
    /// Errors of the system. An opening is refused then.
    fn bytes(&self) -> io::Result<Vec<u8>>;

    /// Stores a word of the table. `at` is its offset in bytes.
    ///
    /// # Errors
    /// Errors of the system.
    fn store(&self, at: usize, word: u64) -> io::Result<()>;

    /// Returns whether no opening has begun with it for a while: another one is tried, although several have
    /// died.
    fn has_rested(&self) -> bool {
        false
    }

    /// Takes note of what an opening found. One for reading needs nothing, and finds nothing over.
    fn judged(&self, verdict: Verdict) {
        let _ = verdict;
    }
}

/// What an opening found of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody needs it any more.
    Over,
    /// It cannot be used, and what only it holds is lost. Nothing was written.
    Refused,
    /// It alone proves that something durable is missing on the backing. Nothing was written.
    Contradicts,
    /// Three openings with it came to no end. It is tried again once it [has rested](KeptMemory::has_rested).
    Stuck,
}

impl KeptMemory for Arena {
    fn bytes(&self) -> io::Result<Vec<u8>> {
        Ok(Arena::bytes(self))
    }

    fn store(&self, at: usize, word: u64) -> io::Result<()> {
        Arena::store(self, at, word);
        Ok(())
    }
}

/// A memory that an earlier run left, and where that run had the drive.
#[derive(Clone)]
pub struct Left {
    /// The memory.
    pub memory: Arc<dyn KeptMemory>,
    /// That run had the drive on another backing: the drive was moved, or one of the two is a copy. It is
    /// used if it fits, left to the other one, and otherwise passed over.
    pub is_elsewhere: bool,
}
