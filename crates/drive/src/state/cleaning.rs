//! A segment that is being cleaned.

use layout::NodeId;
use media::IoBuf;

use crate::state::found_record::FoundRecord;
use crate::state::pins::Pin;

/// Result of cleaning a segment so far.
#[derive(Default)]
pub(crate) struct Pass {
    /// Corrupt map nodes. Whether the records that they map live is unknown.
    pub(crate) corrupt_nodes: Vec<NodeId>,
    /// The medium returned an error. Another attempt may succeed.
    pub(crate) unreadable: bool,
    /// Everything must be moved, because the segment will be gone.
    pub(crate) must_move: bool,
    /// The segment is bad: what lives in it leaves, even if it becomes larger by that.
    pub(crate) must_leave: bool,
    /// Reads that failed.
    pub(crate) failed_reads: u32,
    /// Pages are compared with what parity says of them.
    pub(crate) verifies: bool,
    /// Records are looked for also where no pack says that there are any.
    pub(crate) scans: bool,
    /// Units that stay: live map nodes, until the next checkpoint writes them elsewhere, and records that
    /// would only become larger.
    pub(crate) left_units: u64,
    /// A write would be refused if nothing is gained: what is packed anew is made as small as possible.
    pub(crate) thorough: bool,
    /// Records that need a retired dictionary may be moved as they are.
    pub(crate) as_is: bool,
    /// Retired dictionaries that the remaining records need.
    pub(crate) needed: Vec<u16>,
    /// Number of times that the number of records handled at once was halved.
    pub(crate) halved: u32,
    /// The next window, if it cannot be read as a whole and is read in pieces.
    pub(crate) pieces: Option<Pieces>,
}

impl Pass {
    /// A pass that must move everything.
    pub(crate) fn of_everything() -> Pass {
        Pass { must_move: true, ..Pass::default() }
    }
}

/// A window as far as it was read in pieces.
pub(crate) struct Pieces {
    /// Zeros where it cannot be read.
    pub(crate) bytes: IoBuf,
    /// Bytes of it that are done.
    pub(crate) done: usize,
    /// Up to this byte of it, single pages are read.
    pub(crate) pages_until: usize,
    /// Nothing of it could be read.
    pub(crate) is_empty: bool,
    /// Pages of it cannot be read.
    pub(crate) has_holes: bool,
}

/// Live records of a segment that were not found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losses {
    None,
    Some,
    /// Not all of it can be read.
    Unread,
}

/// A segment that is partly cleaned. It belongs to the state of the drive and not of a future, so that
/// cleaning can pause. It is lost if a step is abandoned, and the segment is then started again.
pub(crate) struct Cleaning {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    /// Byte of the backing where the next window begins.
    pub(crate) at: u64,
    /// Records that end before this byte of the backing were found.
    pub(crate) found_to: u64,
    pub(crate) window: Option<Window>,
    pub(crate) pass: Pass,
    /// There was no room to move anything.
    pub(crate) stuck: bool,
    /// Nothing of it was looked at.
    pub(crate) is_new: bool,
    /// Held while it is being read and moved.
    pub(crate) pin: Option<Pin>,
}

/// A part of it that was read.
pub(crate) struct Window {
    pub(crate) bytes: IoBuf,
    pub(crate) found: Vec<FoundRecord>,
    /// Number of found records that are done.
    pub(crate) done: usize,
    /// Beginning of the next window.
    pub(crate) end: u64,
}
