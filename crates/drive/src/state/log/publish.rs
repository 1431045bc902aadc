//! What of the log is published in its memory, and who waits for room in it.

use layout::Head;
use layout::memory::MemoryHeader;
use media::{Arena, IoBuf};
use space::UNWRITTEN_MAX_BYTES;

use super::Log;
use super::memory::OpenFill;

/// Who appends. Each leaves memory to those behind it, which free what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appender {
    /// Batches of hosts.
    Host,
    /// Cleaning, settling.
    Background,
    /// Nodes of a checkpoint.
    Checkpoint,
}

impl Appender {
    /// Number of the largest packs for which there must be memory before a step.
    fn packs_kept(self) -> usize {
        match self {
            Appender::Host => 14,
            // 64 frames fill nine.
            Appender::Background => 12,
            Appender::Checkpoint => 2,
        }
    }
}

impl Log {
    /// Publishes in the memory what has changed since, and what was sealed and not taken from the outbox yet:
    /// see the [module](memory).
    pub(crate) fn publish(&mut self) {
        if self.memory.has_overflowed() {
            let is_outside = |buf: &IoBuf| self.memory.unit_of(buf).is_none();
            let open = &self.heads[Head::Host as usize].open;
            let is_missing = open.as_ref().is_some_and(|open| is_outside(&open.buf))
                || self.in_memory.values().any(|buf| is_outside(buf))
                || self.kept.iter().any(|(_, buf)| is_outside(buf));
            self.memory.publish_lapse(is_missing);
        }
        self.memory.publish(&self.outbox, self.open_fill(), (self.checkpoint, self.durable_told()));
    }

    pub(super) fn open_fill(&self) -> Option<OpenFill> {
        let state = &self.heads[Head::Host as usize];
        let open = state.open.as_ref().filter(|open| open.records > 0)?;
        let unit = self.memory.unit_of(&open.buf)?;
        let (segment, offset, parity) = (state.current, state.offset, state.parity);
        Some(OpenFill { unit, segment, offset, parity, used: open.used, records: open.records })
    }

    /// Returns whether the memory is marked as lapsed.
    pub(crate) fn memory_has_lapsed(&self) -> bool {
        self.memory.has_lapsed()
    }

    /// The memory of packs.
    pub(crate) fn arena(&self) -> &Arena {
        self.memory.arena()
    }

    /// Writes in the memory what it is of. Nothing may be appended yet.
    pub(crate) fn begin_memory(&mut self, header: &MemoryHeader) {
        self.memory.begin(header, self.sequence, self.checkpoint);
    }

    /// Returns whether an appender has to wait for packs to be written. If none is being written, it has not:
    /// it would wait for ever.
    pub(crate) fn must_wait(&mut self, appender: Appender) -> bool {
        self.unwritten_bytes > UNWRITTEN_MAX_BYTES
            || self.unwritten_bytes > 0 && !self.memory.has_room_for(appender.packs_kept())
    }
}
