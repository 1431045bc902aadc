//! Result of a check.

use std::fmt;

use layout::geometry::OWN_FIRST_BLOCK;
use layout::{BLOCK_BYTES, Entry, Geometry, NODE_ENTRIES, NodeId};

use super::own::OwnBlock;
use crate::state::dictionaries::Dictionaries;

/// Most faults listed. All are counted.
const FAULTS_MAX: usize = 1000;

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckProgress {
    /// The map is being walked.
    Map {
        /// Nodes so far.
        nodes_count: u64,
    },
    /// Records are being read.
    Records {
        /// Bytes of records verified so far.
        done_bytes: u64,
        /// Total.
        total_bytes: u64,
    },
    /// Segments with parity are being read by place.
    Places {
        /// The one read last.
        segment: u32,
        /// Segments on the drive.
        segments_count: u32,
    },
}

/// Everything that a check examined.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Both copies of the superblock.
    pub superblocks: Vec<CopyFound>,
    /// Both copies of both checkpoint slots.
    pub checkpoints: Vec<CopyFound>,
    /// Segments on the drive.
    pub segments_count: u32,
    /// Number of free ones.
    pub segments_free_count: u32,
    /// Number of those set aside because they hold records that cannot be read.
    pub segments_damaged_count: u32,
    /// Map nodes by level, leaves first.
    pub nodes_counts: [u64; 4],
    /// Bytes of their images on the medium.
    pub nodes_bytes: u64,
    /// Blocks with a record.
    pub records_count: u64,
    /// Bytes of records on the medium, including owed ones.
    pub records_bytes: u64,
    /// Blocks that are a fill.
    pub fills_count: u64,
    /// Records that were replaced but count as live until their leaf is loaded.
    pub owed_count: u64,
    /// Fills of that kind.
    pub owed_fills_count: u64,
    /// Every record was read, verified and decompressed.
    pub deep: bool,
    /// Number of whole ones.
    pub records_verified_count: u64,
    /// Pages with parity, and of parity, that were read.
    pub protected_pages_count: u64,
    /// Number of those that are not as they were written. What cannot be made again is a fault of its own.
    pub protected_pages_bad_count: u64,
    /// The first thousand faults.
    pub faults: Vec<Fault>,
    /// Number of all faults.
    pub faults_count: u64,
}

impl CheckReport {
    /// Adds a fault found elsewhere.
    pub fn add_fault(&mut self, what: String) {
        self.faults.push(Fault::new(what));
        self.faults_count += 1;
    }
}

/// One copy of a superblock or checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFound {
    /// Slot of the checkpoint, 0 for superblocks.
    pub slot: usize,
    /// Which copy, 0 or 1.
    pub copy: usize,
    /// Its place on the backing, in bytes.
    pub position_bytes: u64,
    /// State of the copy.
    pub state: CopyState,
}

/// State of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Whole.
    Whole {
        /// Update number of a superblock, number of a checkpoint.
        number: u64,
        /// The checkpoint was written when the drive was closed. False for a superblock.
        clean: bool,
        /// The checkpoint was made when the drive was created or wiped: there is none before it.
        first: bool,
    },
    /// Not of this drive as it is now: from before it was created anew or wiped, or from a wipe that was cut
    /// short. Whole or not.
    Obsolete,
    /// Nothing but zeros.
    Blank,
    /// Something else.
    Foreign,
    /// Damaged, for this reason.
    Damaged(String),
}

/// What a fault is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A copy of the superblock or of a checkpoint.
    Copy,
    /// A map node. If [`Fault::logical_len_bytes`] is missing, it leads to nothing but the dictionaries.
    Map,
    /// Data of hosts.
    Data,
    /// Damaged data that recovery has met in the newest log.
    Log,
    /// The dictionaries, or their catalog.
    Dictionaries,
    /// What the drive counts, and all else.
    Other,
}

/// Something that is not as it must be. Displayed on one line: what, where, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it is in.
    pub subject: Subject,
    /// Description of the fault, without the place.
    pub what: String,
    /// First byte of logical space that is lost by it. None for what hosts cannot reach.
    pub logical_offset_bytes: Option<u64>,
    /// Number of bytes from there.
    pub logical_len_bytes: Option<u64>,
    /// Segment.
    pub segment: Option<u32>,
    /// Byte of the backing.
    pub position_bytes: Option<u64>,
    /// Only a second copy is affected: nothing is lost.
    pub spare: bool,
}

impl Fault {
    pub(super) fn new(what: String) -> Fault {
        Fault {
            subject: Subject::Other,
            what,
            logical_offset_bytes: None,
            logical_len_bytes: None,
            segment: None,
            position_bytes: None,
            spare: false,
        }
    }

    pub(super) fn in_segment(segment: u32, what: String) -> Fault {
        Fault { segment: Some(segment), ..Fault::new(what) }
    }

    pub(super) fn of_copy(position: u64, what: String) -> Fault {
        Fault { subject: Subject::Copy, position_bytes: Some(position), spare: true, ..Fault::new(what) }
    }

    fn at(geometry: &Geometry, subject: Subject, position: u64, what: String) -> Fault {
        let segment = geometry.locate(position).map(|(segment, _)| segment);
        Fault { subject, segment, position_bytes: Some(position), ..Fault::new(what) }
    }

    /// The record of a block, or of all blocks of its frame, is bad.
    pub(super) fn of_record(
        geometry: &Geometry,
        dictionaries: &Dictionaries,
        block: u64,
        entry: Entry,
        why: &str,
    ) -> Fault {
        let position = entry.position_bytes();
        if let Some(own) = OwnBlock::of(block, dictionaries) {
            let what = format!("{}: {why}", own.name);
            return Fault {
                spare: own.is_spare,
                ..Fault::at(geometry, Subject::Dictionaries, position, what)
            };
        }
        let first = entry.first_block(block);
        let what = match entry.blocks() {
            1 => format!("record of block {block}: {why}"),
            several => format!("record of {several} blocks from {first} on: {why}"),
        };
        Fault {
            logical_offset_bytes: Some(first * BLOCK_BYTES as u64),
            logical_len_bytes: Some(entry.blocks() * BLOCK_BYTES as u64),
            ..Fault::at(geometry, Subject::Data, position, what)
        }
    }

    /// A map node is bad on a drive of `capacity_blocks`. What it maps beyond them is the drive's own.
    pub(super) fn of_node(
        geometry: &Geometry,
        capacity_blocks: u64,
        id: NodeId,
        position: u64,
        why: &str,
    ) -> Fault {
        let span = (NODE_ENTRIES as u64) << (9 * u32::from(id.level));
        let first = id.index * span;
        let blocks = capacity_blocks.saturating_sub(first).min(span);
        let owns = match (first + span > OWN_FIRST_BLOCK, blocks) {
            (false, _) => "",
            (true, 0) => ", which leads to the drive's dictionaries",
            (true, _) => ", which leads to the drive's dictionaries too",
        };
        let what = format!("map node {} of level {}{owns}: {why}", id.index, id.level);
        let is_for_hosts = blocks > 0;
        Fault {
            logical_offset_bytes: is_for_hosts.then_some(first * BLOCK_BYTES as u64),
            logical_len_bytes: is_for_hosts.then_some(blocks * BLOCK_BYTES as u64),
            ..Fault::at(geometry, Subject::Map, position, what)
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(offset), Some(len)) = (self.logical_offset_bytes, self.logical_len_bytes) {
            write!(f, "logical bytes {offset} to {}, ", offset + len - 1)?;
        }
        if let Some(segment) = self.segment {
            write!(f, "segment {segment}, ")?;
        }
        if let Some(position) = self.position_bytes {
            write!(f, "byte {position:#x} of the backing, ")?;
        }
        write!(f, "{}", self.what)
    }
}

/// Faults found so far.
#[derive(Default)]
pub(super) struct Faults {
    listed: Vec<Fault>,
    count: u64,
}

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.count += 1;
        if self.listed.len() < FAULTS_MAX {
            self.listed.push(fault);
        }
    }

    pub(super) fn into_parts(self) -> (Vec<Fault>, u64) {
        (self.listed, self.count)
    }
}
