//! Which faults a seed has.

use layout::{Checkpoint, Geometry, PAGE_BYTES, Superblock};
use media::{Faults, SimCache, SimRng, TEAR_BYTES};

use crate::executor::SLOTS_END_BYTES;

/// What a seed's backing is like, and what goes wrong on it.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// The faults that are on while clients are at work. None in most seeds.
    pub faults: Faults,
    /// What reads show after a failed sync.
    pub cache: SimCache,
    /// What a power cut tears into.
    pub tear_bytes: usize,
    /// The backing stays as full as it is also while nothing else goes wrong.
    pub stays_full: bool,
    /// Of a million writes, so many find no room, and some after them, also over what is there.
    pub full_on_overwrite_ppm: u32,
    /// Pages that take no write from the beginning, in bytes of the backing. Superblocks and checkpoints are spared.
    pub bad_bytes: Vec<u64>,
    /// A page of one copy of superblock or checkpoints that takes no write once the drive is made: which, of all of them.
    pub bad_copy: Option<BadCopy>,
}

/// A page of a copy.
#[derive(Clone, Copy, Debug)]
pub struct BadCopy {
    /// The first copy or the second.
    copy: usize,
    /// Of the superblock, or of the checkpoints of a slot.
    slot: Option<usize>,
    /// Which page, counted round.
    page: u64,
}

impl BadCopy {
    /// In so many seeds without other lasting faults there is one.
    const ONE_SEED_IN: u64 = 6;

    pub(super) fn draw(rng: &mut SimRng) -> Option<BadCopy> {
        let of_superblock = rng.chance(1, 3);
        let drawn =
            BadCopy { copy: rng.index(2), slot: (!of_superblock).then(|| rng.index(2)), page: rng.skewed(6) };
        rng.chance(1, BadCopy::ONE_SEED_IN).then_some(drawn)
    }

    /// Where it lies on a drive of which this is the beginning.
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
    /// Nothing goes wrong but crashes.
    pub(super) fn none(rng: &mut SimRng) -> Trouble {
        let cache = if rng.chance(1, 2) { SimCache::Cached } else { SimCache::Direct };
        let tear_bytes = if rng.chance(3, 4) { TEAR_BYTES } else { 4096 };
        Trouble { cache, tear_bytes, ..Trouble::default() }
    }

    pub(super) fn draw(rng: &mut SimRng, physical_bytes: u64, segment_bytes: u32) -> Trouble {
        let mut trouble = Trouble::none(rng);
        // Segments begin there.
        trouble.faults.spare_below_bytes = SLOTS_END_BYTES;
        // One kind of trouble at a time, mostly: several at once hide each other.
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
                self.cache = if rng.chance(3, 4) { SimCache::Cached } else { SimCache::Direct };
            }
            7 | 8 => faults.rot_ppm = ppm * 8,
            9 => {
                faults.misdirect_ppm = ppm * 8;
                // Copies of superblock and checkpoints.
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
                // Where it writes first, mostly: at the beginnings of the first segments.
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
