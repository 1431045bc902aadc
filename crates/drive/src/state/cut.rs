//! A checkpoint that is being written.

use std::collections::{BTreeSet, VecDeque};

use crate::state::segments::OthersHeld;
use layout::pack::HEADS;
use layout::{Counters, HeadPosition, LEAF_LEVEL, NodeId, ROOT};

/// A checkpoint being written.
pub(crate) struct InProgress {
    pub(crate) number: u64,
    pub(crate) sequence: u64,
    pub(crate) clean: bool,
    pub(crate) others_held: OthersHeld,
    pub(crate) heads: [HeadPosition; HEADS],
    pub(crate) counters: Counters,
    pub(crate) live_blocks: u64,
    pub(crate) mix: layout::Mix,
    pub(crate) fill_blocks: u64,
    /// Sealed segments that hold nothing live by the table of the cut, adjusted for the nodes that this
    /// checkpoint wrote.
    pub(crate) dead: BTreeSet<u32>,
    /// Segments that heads were in at the cut. They are not freed.
    pub(crate) open: Vec<u32>,
    /// Bytes of log before the cut, and records in them, that an opening reads until this checkpoint is
    /// durable.
    pub(crate) log_bytes: u64,
    pub(crate) log_records: u64,
    /// Leaves still to be written, in rising order.
    pub(crate) leaves: VecDeque<NodeId>,
    /// Nodes above the leaves to be written, lowest level first.
    pub(crate) upper: BTreeSet<NodeId>,
    pub(crate) overlay_records: u64,
    /// Unreadable nodes on the path to leaves of which only changes are in memory. Those are written without
    /// them.
    pub(crate) unreadable: BTreeSet<NodeId>,
    /// Bytes of nodes and overlays written so far.
    pub(crate) written_bytes: u64,
    /// Its place may hold a part of it.
    pub(crate) is_placed: bool,
    pub(crate) encode_buffer: Vec<u8>,
}

impl InProgress {
    /// Bytes that it has written so far.
    pub(crate) fn estimate_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns the node to write next: the lowest node above the leaves under which no more leaf follows,
    /// else a leaf.
    pub(crate) fn next(&self) -> Option<NodeId> {
        let Some(leaf) = self.leaves.front() else { return self.upper.first().copied() };
        let ready = |level: u8| {
            let first = self.upper.range(NodeId { level, index: 0 }..).next()?;
            (*first < leaf.ancestor(level)).then_some(*first)
        };
        (LEAF_LEVEL + 1..=ROOT.level).find_map(ready).or(Some(*leaf))
    }

    /// A node is done.
    pub(crate) fn done(&mut self, id: NodeId) {
        if id.level == LEAF_LEVEL {
            self.leaves.pop_front();
        } else {
            self.upper.remove(&id);
        }
    }
}
