//! Memory of packs, and what of it is published.
//!
//! An open pack may grow to the largest size; a sealed one keeps what it contains until it is written, which
//! may take any time. If the memory outlives the process, the next one finds there what was acknowledged and
//! not written. It finds what was published: when the critical section is left, before anything is
//! acknowledged or sent to the medium. First the packs that were sealed in it, in the order of their numbers,
//! then how far the host's open pack is filled, and this one store is the commit of all that was appended. A
//! kill between two stores leaves what was acknowledged before, and perhaps the beginning of a divided batch,
//! which takes effect only with its rest.

use layout::ParityForm;
use layout::memory::{self, MemoryHeader};
use layout::pack::NextSegment;
use media::{Arena, ArenaShape, IoBuf};
use space::PACK_HARD_BYTES;

use super::SealedPack;
use crate::planted::{Planted, PlantedBug};

/// Bytes of a unit: regions of packs are whole units.
const UNIT_BYTES: usize = 64 << 10;
/// Number of units: 32 MiB.
const UNITS: usize = 512;

/// Sizes of the memory of a run.
pub const MEMORY_SHAPE: ArenaShape = ArenaShape {
    table_bytes: MemoryHeader::table_bytes(UNITS),
    unit_bytes: UNIT_BYTES,
    units: UNITS,
    largest_bytes: PACK_HARD_BYTES,
};

/// The host's open pack, as published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenFill {
    pub(super) unit: usize,
    pub(super) segment: NextSegment,
    pub(super) offset: u32,
    pub(super) parity: ParityForm,
    pub(super) used: usize,
    pub(super) records: u32,
}

/// Memory for packs.
pub(super) struct PackMemory {
    arena: Arena,
    /// The host's open pack.
    open: Option<OpenFill>,
    checkpoint: u64,
    durable: u64,
    /// The memory was too small for a pack.
    overflowed: bool,
    has_lapsed: bool,
    planted: Planted,
}

impl PackMemory {
    /// Memory in `arena`, of which nothing is published.
    pub(super) fn new(arena: Arena, planted: Planted) -> PackMemory {
        PackMemory {
            arena,
            open: None,
            checkpoint: 0,
            durable: 0,
            overflowed: false,
            has_lapsed: false,
            planted,
        }
    }

    /// Writes what the memory is of, and the newest pack and checkpoint before it.
    pub(super) fn begin(&mut self, header: &MemoryHeader, sequence: u64, checkpoint: u64) {
        self.arena.store(memory::SEQUENCE_AT, sequence);
        self.publish_checkpoint(checkpoint);
        // The magic number last.
        for (i, word) in header.words().into_iter().enumerate().rev() {
            self.arena.store(i * 8, word);
        }
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Returns how much a sealed pack counts against the limit of what may wait for the medium.
    pub(super) fn counted_bytes(&self, buf: &IoBuf) -> u64 {
        match self.planted.has(PlantedBug::SealedPackKeepsAll) {
            true => buf.len() as u64,
            false => buf.capacity() as u64,
        }
    }

    /// Returns a buffer for the largest pack. Its content is unspecified. If the memory is too small, it is
    /// elsewhere, and does not outlive the process.
    pub(super) fn of_open_pack(&mut self) -> IoBuf {
        if self.planted.has(PlantedBug::RegionReusedEarly) {
            self.arena.reclaim(|_| {});
        }
        if let Some(buf) = self.arena.take(PACK_HARD_BYTES) {
            return buf;
        }
        self.publish_free();
        self.arena.take(PACK_HARD_BYTES).unwrap_or_else(|| {
            self.overflowed = true;
            IoBuf::pooled(PACK_HARD_BYTES)
        })
    }

    /// Makes the buffer of a pack that is sealed keep what it contains.
    pub(super) fn of_sealed_pack(&self, mut buf: IoBuf) -> IoBuf {
        if !self.planted.has(PlantedBug::SealedPackKeepsAll) {
            buf.shrink();
        }
        buf
    }

    /// Returns whether there is room for this many open packs.
    pub(super) fn has_room_for(&self, packs: usize) -> bool {
        self.arena.has_room(packs) || {
            self.publish_free();
            self.arena.has_room(packs)
        }
    }

    /// Returns the unit where a buffer's region begins. `None` if the buffer is elsewhere.
    pub(super) fn unit_of(&self, buf: &IoBuf) -> Option<usize> {
        self.arena.unit_of(buf)
    }

    /// Returns whether a pack may be elsewhere.
    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Returns what [`PackMemory::publish_lapse`] has said last.
    pub(super) fn has_lapsed(&self) -> bool {
        self.has_lapsed
    }

    /// Says whether something is elsewhere that was, or is going to be acknowledged.
    pub(super) fn publish_lapse(&mut self, is_missing: bool) {
        self.overflowed = is_missing;
        if std::mem::replace(&mut self.has_lapsed, is_missing) != is_missing {
            self.arena.store(memory::LAPSED_AT, is_missing.into());
        }
    }

    /// A sync failed: what was written before it may be gone.
    pub(super) fn publish_failed_sync(&self) {
        self.arena.store(memory::SYNC_FAILED_AT, 1);
    }

    /// Publishes what a critical section has changed, which is left now: packs that were sealed in it, the
    /// host's open pack, the newest durable checkpoint, and up to which number all packs are durable.
    pub(super) fn publish(
        &mut self,
        sealed: &[SealedPack],
        open: Option<OpenFill>,
        (checkpoint, durable): (u64, u64),
    ) {
        self.publish_sealed(sealed);
        self.publish_open(open);
        self.publish_free();
        self.publish_checkpoint(checkpoint);
        if std::mem::replace(&mut self.durable, durable) != durable {
            self.arena.store(memory::DURABLE_AT, durable);
        }
    }

    /// Publishes packs that were sealed, in rising order.
    fn publish_sealed(&mut self, packs: &[SealedPack]) {
        let Some(newest) = packs.last() else { return };
        for pack in packs {
            let Some(unit) = self.unit_of(&pack.buf) else { continue };
            self.open = self.open.filter(|open| open.unit != unit);
            let state = memory::sealed_state(pack.sequence, pack.is_announced);
            self.arena.store(memory::state_at(unit), state);
        }
        self.arena.store(memory::SEQUENCE_AT, newest.sequence);
    }

    /// Publishes the fill of the host's open pack.
    pub(super) fn publish_open(&mut self, fill: Option<OpenFill>) {
        let Some(fill) = fill.filter(|fill| self.open != Some(*fill)) else { return };
        let at = memory::state_at(fill.unit);
        let begins = self.open.is_none_or(|open| open.unit != fill.unit);
        if begins {
            let [segment, offset] = memory::place_words(fill.segment, fill.offset, fill.parity);
            self.arena.store(at + 16, segment);
            self.arena.store(at + 24, offset);
        }
        self.arena.store(at + 8, memory::fill_word(fill.used, fill.records));
        if begins {
            self.arena.store(at, memory::OPEN);
        }
        self.open = Some(fill);
    }

    /// Publishes that regions are free whose packs are used no more. Possible at any time: nothing that
    /// follows makes such a pack necessary again.
    fn publish_free(&self) {
        self.arena.reclaim(|unit| self.arena.store(memory::state_at(unit), memory::FREE));
    }

    /// Publishes the newest durable checkpoint.
    fn publish_checkpoint(&mut self, checkpoint: u64) {
        if std::mem::replace(&mut self.checkpoint, checkpoint) != checkpoint {
            self.arena.store(memory::CHECKPOINT_AT, checkpoint);
        }
    }
}
