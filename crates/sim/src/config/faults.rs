//! Faults of a seed.

use layout::{Checkpoint, Geometry, PAGE_BYTES, Superblock};
use media::{Faults, SimGhosts, SimRng, TEAR_BYTES};

use crate::executor::SLOTS_END_BYTES;

/// Kind of a seed's backing, and its faults.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// Faults in effect while clients work. None in most seeds.
    pub faults: Faults,
    /// Content that reads return after a failed sync.
    pub ghosts: SimGhosts,
    /// Unit that a power cut tears writes into, in bytes.
    pub tear_bytes: usize,
    /// True if the backing stays full also while no other faults are in effect.
    pub stays_full: bool,
    /// Probability, in parts per million, that a write and some after it are refused for lack of space, also
    /// overwrites.
    pub full_on_overwrite_ppm: u32,
    /// Pages that accept no writes from the beginning, as byte offsets in the backing. Superblocks and
    /// checkpoints are spared.
    pub bad_bytes: Vec<u64>,
    /// A page of one copy of superblock or checkpoints that accepts no writes once the drive is created.
    pub bad_copy: Option<BadCopy>,
}

/// A page of a copy of superblock or checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct BadCopy {
    /// Index of the copy: 0 or 1.
    copy: usize,
    /// Slot of the checkpoint. `None`: the superblock.
    slot: Option<usize>,
    /// Index of the page, modulo the number of pages of a checkpoint.
    page: u64,
}

impl BadCopy {
    /// One in this many seeds without other lasting faults has a bad copy.
    const ONE_SEED_IN: u64 = 6;

    pub(super) fn draw(rng: &mut SimRng) -> Option<BadCopy> {
        let of_superblock = rng.chance(1, 3);
        let drawn =
            BadCopy { copy: rng.index(2), slot: (!of_superblock).then(|| rng.index(2)), page: rng.skewed(6) };
        rng.chance(1, BadCopy::ONE_SEED_IN).then_some(drawn)
    }

    /// Returns the offset of the page on a drive whose backing begins with `superblock`.
    pub fn byte(&self, superblock: &[u8]) -> Option<u64> {
        let geometry = Superblock::decode(superblock).ok()?.geometry;
        Some(match self.slot {
            None => Geometry::superblock_offset(self.copy),
            Some(slot) => {
                let pages = Checkpoint::encoded_len(geometry.segments() as usize) / PAGE_BYTES;
                geometry.checkpoint_offset(slot, self.copy) + self.page % pages as u64 * PAGE_BYTES as u64
            }
        })
    }
}

impl Trouble {
    /// No faults other than crashes.
    pub(super) fn none(rng: &mut SimRng) -> Trouble {
        let ghosts = if rng.chance(1, 2) { SimGhosts::Shown } else { SimGhosts::Hidden };
        let tear_bytes = if rng.chance(3, 4) { TEAR_BYTES } else { 4096 };
        Trouble { ghosts, tear_bytes, ..Trouble::default() }
    }

    pub(super) fn draw(rng: &mut SimRng, physical_bytes: u64, segment_bytes: u32) -> Trouble {
        let mut trouble = Trouble::none(rng);
        // Segments begin there.
        trouble.faults.spare_below_bytes = SLOTS_END_BYTES;
        // Mostly one kind of fault at a time: several at once hide each other.
        for _ in 0..1 + rng.below(2) {
            trouble.add(rng, physical_bytes, segment_bytes);
        }
        trouble.faults.no_discard = rng.chance(1, 4);
        trouble
    }

    fn add(&mut self, rng: &mut SimRng, physical_bytes: u64, segment_bytes: u32) {
        let faults = &mut self.faults;
        let ppm = 1000 << rng.below(4);
        match rng.below(14) {
            0 => faults.read_error_ppm = ppm * 5,
            1 => faults.sticky_read_error_ppm = ppm,
            2 | 3 => faults.write_error_ppm = ppm,
            4..7 => {
                faults.sync_error_ppm = ppm * 8;
                self.ghosts = if rng.chance(3, 4) { SimGhosts::Shown } else { SimGhosts::Hidden };
            }
            7 | 8 => faults.rot_ppm = ppm * 8,
            9 => {
                faults.misdirect_ppm = ppm * 8;
                // Superblock and checkpoints have copies.
                faults.misdirect_once_below_bytes = SLOTS_END_BYTES;
            }
            10 => {
                faults.full_pages = Some(physical_bytes / 4096 / (2 + rng.below(4)));
                self.stays_full = rng.chance(1, 2);
                faults.room_made_ppm = if self.stays_full { 0 } else { 1_000_000 >> rng.below(5) };
            }
            11 => {
                faults.lost_range_ppm = ppm;
                faults.lost_range_bytes = segment_bytes.into();
            }
            12 => faults.bad_page_ppm = ppm * 2,
            _ => {
                // Mostly near the places that are written first: the beginnings of the first segments.
                let segments = (physical_bytes - SLOTS_END_BYTES) / u64::from(segment_bytes);
                let near = if rng.chance(3, 4) { 12 } else { segments };
                let pages_bits = u64::from((segment_bytes / 4096).ilog2());
                let count = 1 + rng.below(6);
                let mut bad = || rng.below(near) * u64::from(segment_bytes) + rng.skewed(pages_bits) * 4096;
                self.bad_bytes = (0..count).map(|_| SLOTS_END_BYTES + bad()).collect();
            }
        }
    }
}
