//! Blocks that one request holds: see [`hold`](crate::io::hold).

use crate::state::batch::Seen;

/// The blocks, and counts since the drive was opened.
#[derive(Debug, Default)]
pub(crate) struct Held {
    blocks: Vec<u64>,
    /// Requests that held blocks.
    pub(crate) holds_count: u64,
    /// Times that a request waited for blocks that another one held.
    pub(crate) waits_count: u64,
    /// Changes of a block by others while a request held it: none, ever.
    pub(crate) overruns_count: u64,
    /// Most conflicts of a request.
    pub(crate) conflicts_most: u32,
}

impl Held {
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Notes the number of conflicts of a request so far.
    pub(crate) fn note_conflict(&mut self, conflicts: u32) {
        self.conflicts_most = self.conflicts_most.max(conflicts);
    }

    /// Takes blocks, in addition to those that are held.
    pub(crate) fn take(&mut self, expected: &[Seen]) {
        self.holds_count += u64::from(self.blocks.is_empty());
        for seen in expected {
            if !self.blocks.contains(&seen.block) {
                self.blocks.push(seen.block);
            }
        }
    }

    pub(crate) fn give_back(&mut self) {
        self.blocks.clear();
    }
}
