//! Memory of packs. An open pack may grow to the largest size; a sealed one keeps what it contains until it
//! is written, which may take any time.

use std::sync::Arc;

use media::IoBuf;
use space::PACK_HARD_BYTES;

use crate::planted::{Planted, PlantedBug};

/// Most buffers kept for the next open packs.
const SPARE_MAX: usize = 16;

/// Buffers for open packs.
pub(super) struct Buffers {
    spare: Vec<IoBuf>,
    planted: Planted,
}

impl Buffers {
    pub(super) fn new(planted: Planted) -> Buffers {
        Buffers { spare: Vec::new(), planted }
    }

    /// Returns how much a sealed pack counts against the limit of what may wait for the medium.
    pub(super) fn counted_bytes(&self, buf: &IoBuf) -> u64 {
        match self.planted.has(PlantedBug::SealedPackKeepsAll) {
            true => buf.len() as u64,
            false => buf.capacity() as u64,
        }
    }

    /// Returns a buffer for the largest pack. Its content is unspecified.
    pub(super) fn of_open_pack(&mut self) -> IoBuf {
        self.spare.pop().unwrap_or_else(|| IoBuf::zeroed(PACK_HARD_BYTES))
    }

    /// Returns the buffer of a pack that is sealed, with its content, in at most half the memory of an open
    /// pack if that suffices. More is not copied: whoever counts memory counts capacities.
    pub(super) fn of_sealed_pack(&mut self, open: IoBuf) -> IoBuf {
        if open.len() > PACK_HARD_BYTES / 2 || self.planted.has(PlantedBug::SealedPackKeepsAll) {
            return open;
        }
        let mut sealed = IoBuf::pooled(open.len());
        sealed.copy_from_slice(&open);
        self.keep(open);
        sealed
    }

    /// Takes back the buffer of a written pack.
    pub(super) fn recycle(&mut self, buf: Arc<IoBuf>) {
        if let Some(buf) = Arc::into_inner(buf).filter(|buf| buf.capacity() >= PACK_HARD_BYTES) {
            self.keep(buf);
        }
    }

    fn keep(&mut self, mut buf: IoBuf) {
        if self.spare.len() < SPARE_MAX {
            buf.set_len(PACK_HARD_BYTES);
            self.spare.push(buf);
        }
    }
}
