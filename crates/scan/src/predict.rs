//! What a Pumice drive would make of the data: records with their headers, the map, and the drive that holds it all.
//!
//! Data is taken to be written in large pieces, 128 KiB or more at multiples of 32 KiB, so that neighbours go into frames.
//! The sizes are the drive's own: record headers and rounding from `layout`, payloads from `codec`, map nodes by the
//! encoder that writes them, reserve from `drive`.

use layout::record::RECORD_HEADER_BYTES;
use layout::{BLOCK_BYTES, Entry, Geometry, LEAF_LEVEL, NODE_ENTRIES, PAGE_BYTES, ROOT, UNIT_BYTES};
use serde::{Deserialize, Serialize};
use space::{data_bytes_max, kept_for_small, map_churn_bytes, map_growth_bytes};

use crate::estimate::Interval;
use crate::frames::{ENTRY_BYTES, Kept};

/// A pack is sealed once it holds so much.
const PACK_BYTES: u64 = space::PACK_SOFT_BYTES as u64;

/// What a drive would take, in bytes unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedDrive {
    /// How the drive compresses (`--codec` of `pumice create`).
    pub codec: String,
    /// Logical bytes / physical bytes in use, headers and map counted: `compression_ratio` of `pumice status`.
    pub ratio: Interval,
    /// The same if every block were written by itself, so that there are no frames.
    #[serde(default)]
    pub ratio_of_random_writes: Option<Interval>,
    /// The same once the drive has compressed all of it again as cold data, without a dictionary; `None` if no larger units
    /// were read.
    #[serde(default)]
    pub ratio_settled: Option<Interval>,
    /// Logical bytes / bytes of the smallest drive that holds them: reserve and fixed structures counted too.
    pub ratio_of_size: Interval,
    /// Blocks written to the drive, fills in, holes not.
    pub logical_used_bytes: u64,
    /// Of these, zeros and other fills.
    pub logical_fill_bytes: Interval,
    /// Compressed blocks with their headers.
    pub records_bytes: Interval,
    /// The map.
    pub map_bytes: Interval,
    /// Records and map: `physical_used_bytes` of `pumice status`.
    pub physical_used_bytes: Interval,
    /// Headers and padding of packs, until cleaning; they come out of the reserve.
    pub pack_overhead_bytes: u64,
    /// Smallest physical size of a drive that takes the data.
    pub physical_size_bytes: Interval,
    /// Of that (at the estimate), what host data may not fill.
    pub physical_reserve_bytes: u64,
    /// Of that, superblock, checkpoints and the odd rest.
    pub physical_fixed_bytes: u64,
}

/// What is known of the data: sums if everything was read, else intervals for means over blocks.
pub(crate) struct Evidence {
    pub(crate) codec: String,
    /// Blocks written.
    pub(crate) blocks: u64,
    /// Share of blocks that are fills.
    pub(crate) fills: Interval,
    /// Written in large pieces.
    pub(crate) framed: Usage,
    /// Written block by block.
    pub(crate) single: Usage,
    /// After settling.
    pub(crate) settled: Option<Usage>,
}

/// What blocks take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Bytes of record, a block.
    pub(crate) records: Interval,
    /// Bytes of record and least bytes of map, a block.
    pub(crate) mapped: Interval,
    /// All leaves of the map, where everything was read.
    pub(crate) leaves: Option<LeafSum>,
}

impl Usage {
    /// Bytes that so many blocks take, records and map.
    fn used(&self, blocks: u64) -> Interval {
        let scale = blocks as f64;
        let records = self.records.scaled(scale);
        if let Some(leaves) = self.leaves {
            return Interval::exact(records.estimate + (leaves.bytes + upper_bytes(leaves.count)) as f64);
        }
        let leaves = blocks.div_ceil(NODE_ENTRIES as u64);
        let above = (leaves * RECORD_HEADER_BYTES as u64 + upper_bytes(leaves)) as f64;
        let mapped = self.mapped.scaled(scale);
        // At least what each group adds to its leaf; at most every leaf dense.
        let high = records.high + scale * ENTRY_BYTES as f64 + above + PAGE_BYTES as f64;
        Interval { estimate: (mapped.estimate + above).min(high), low: mapped.low.max(above), high }
    }
}

impl PredictedDrive {
    pub(crate) fn new(evidence: &Evidence) -> Option<PredictedDrive> {
        if evidence.blocks == 0 {
            return None;
        }
        let logical = evidence.blocks * BLOCK_BYTES as u64;
        let records = evidence.framed.records.scaled(evidence.blocks as f64);
        let used = evidence.framed.used(evidence.blocks);
        let ratio = |usage: &Usage| usage.used(evidence.blocks).dividing(logical as f64);
        let map = Interval {
            estimate: used.estimate - records.estimate,
            low: (used.low - records.low).max(0.0).min(used.estimate - records.estimate),
            high: used.high - records.high,
        };
        let fills = evidence.fills.scaled(evidence.blocks as f64).low as u64;
        let bytes = map.estimate as u64;
        let growth_bytes = map_growth_bytes(evidence.blocks.saturating_sub(fills), bytes);
        let needs = MapNeeds { blocks: evidence.blocks, bytes, growth_bytes };
        let size = |used: f64| {
            smallest_drive(used as u64, needs).map_or(0.0, |drive| drive.physical_size_bytes as f64)
        };
        let sizes = Interval { estimate: size(used.estimate), low: size(used.low), high: size(used.high) };
        let drive = smallest_drive(used.estimate as u64, needs)?;
        let segments = drive.segments();
        let all = u64::from(segments) * u64::from(drive.segment_bytes);
        let reserve = all - limit_bytes(&drive, needs);
        let fixed = drive.physical_size_bytes - all;
        let packs = (records.estimate as u64).div_ceil(PACK_BYTES);
        Some(PredictedDrive {
            codec: evidence.codec.clone(),
            ratio: used.dividing(logical as f64),
            ratio_of_random_writes: Some(ratio(&evidence.single)),
            ratio_settled: evidence.settled.as_ref().map(ratio),
            ratio_of_size: sizes.dividing(logical as f64),
            logical_used_bytes: logical,
            logical_fill_bytes: evidence.fills.scaled(logical as f64),
            records_bytes: records,
            map_bytes: map,
            physical_used_bytes: used,
            // The last page of a pack is half full on average.
            pack_overhead_bytes: packs * (layout::pack::PACK_HEADER_BYTES as u64 + PAGE_BYTES as u64 / 2),
            physical_size_bytes: sizes,
            physical_reserve_bytes: reserve,
            physical_fixed_bytes: fixed,
        })
    }
}

/// What is known of a map, as far as it bears on what fits on a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapNeeds {
    /// Blocks mapped.
    pub blocks: u64,
    /// What it takes.
    pub bytes: u64,
    /// What it can still grow by.
    pub growth_bytes: u64,
}

/// Bytes that live data may fill on a drive with such a map.
pub fn limit_bytes(geometry: &Geometry, map: MapNeeds) -> u64 {
    let segments = geometry.segments();
    let data = data_bytes_max(segments, geometry.segment_bytes);
    let upper = space::upper_bytes(map.blocks, map.blocks, map.bytes);
    let churn = map_churn_bytes(segments, geometry.segment_bytes, map.bytes, upper);
    let limit = data.saturating_sub(map.growth_bytes + churn);
    limit - kept_for_small(limit / UNIT_BYTES as u64) * UNIT_BYTES as u64
}

/// The smallest drive, in whole MiB, that takes so many live bytes with such a map. `None` beyond what a drive can be.
pub fn smallest_drive(used_bytes: u64, map: MapNeeds) -> Option<Geometry> {
    const STEP: u64 = 1 << 20;
    let fits = |mib: u64| {
        Geometry::new(mib * STEP, None).is_ok_and(|geometry| limit_bytes(&geometry, map) >= used_bytes)
    };
    let mut high = (used_bytes / STEP + 1).max(16);
    while !fits(high) {
        high = high.checked_mul(2).filter(|mib| *mib <= 1 << 34)?;
    }
    // Sizes at which segments grow make steps in this; around them it is near enough the smallest.
    let mut low = high / 2;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle }
    }
    Geometry::new(high * STEP, None).ok()
}

/// Bytes of the record of a node with so many children, all of them records.
fn upper_node_bytes(children: u64) -> u64 {
    let payload = (children * 10).min((NODE_ENTRIES * 8) as u64);
    (RECORD_HEADER_BYTES as u64 + payload).next_multiple_of(UNIT_BYTES as u64)
}

/// Bytes of all nodes above so many leaves.
pub(crate) fn upper_bytes(leaves: u64) -> u64 {
    let (mut below, mut bytes) = (leaves, 0);
    for _ in LEAF_LEVEL..ROOT.level {
        let (full, rest) = (below / NODE_ENTRIES as u64, below % NODE_ENTRIES as u64);
        bytes += full * upper_node_bytes(NODE_ENTRIES as u64);
        if rest > 0 {
            bytes += upper_node_bytes(rest);
        }
        below = below.div_ceil(NODE_ENTRIES as u64);
    }
    bytes
}

/// Puts blocks together to leaves of the map, as they would lie one behind the other on a drive.
#[derive(Default)]
pub(crate) struct Leaves {
    entries: Vec<(u16, Entry)>,
    slot: u16,
    positions: u64,
    payload: Vec<u8>,
    /// Of all leaves that were ended.
    pub(crate) sum: LeafSum,
}

/// Leaves of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeafSum {
    /// Bytes of their records.
    pub(crate) bytes: u64,
    /// Leaves that hold something.
    pub(crate) count: u64,
}

impl LeafSum {
    pub(crate) fn add(&mut self, other: LeafSum) {
        self.bytes += other.bytes;
        self.count += other.count;
    }
}

impl Leaves {
    /// The next block, or blocks.
    pub(crate) fn push(&mut self, kept: Kept) {
        let entry = match kept {
            Kept::Fill(word) => Entry::fill(word),
            Kept::Record { bytes, blocks } => {
                // Any place will do, as long as it is another one.
                self.positions += Entry::MAX_LEN_BYTES as u64;
                Entry::of_blocks(self.positions % (1 << 53), bytes as usize, blocks.into())
            }
        };
        for _ in 0..kept.blocks() {
            self.entries.push((self.slot, entry));
            self.slot += 1;
        }
        if self.slot >= NODE_ENTRIES as u16 {
            self.end_leaf();
        }
    }

    /// The next block is this one of the leaf; what was left out is a hole, and not mapped.
    pub(crate) fn skip_to(&mut self, slot: u64) {
        self.slot = self.slot.max(slot.min(NODE_ENTRIES as u64 - 1) as u16);
    }

    /// What comes next begins a leaf.
    pub(crate) fn end_leaf(&mut self) {
        if !self.entries.is_empty() {
            self.payload.clear();
            layout::node::encode_node(|| self.entries.iter().copied(), &mut self.payload);
            self.sum.bytes += (RECORD_HEADER_BYTES + self.payload.len()).next_multiple_of(UNIT_BYTES) as u64;
            self.sum.count += 1;
        }
        self.entries.clear();
        self.slot = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_cost_what_the_encoder_writes() {
        let single = Kept::Record { bytes: 1328, blocks: 1 };
        let sum = |bytes, count| LeafSum { bytes, count };
        let mut leaves = Leaves::default();
        (0..512).for_each(|_| leaves.push(single));
        assert_eq!(leaves.sum, sum(4112, 1));
        // Zeros only: one run of 12 bytes.
        (0..512).for_each(|_| leaves.push(Kept::Fill(0)));
        assert_eq!(leaves.sum, sum(4112 + 32, 2));
        // Ten blocks of a leaf: pairs of ten bytes.
        leaves.skip_to(100);
        (0..10).for_each(|_| leaves.push(single));
        leaves.end_leaf();
        assert_eq!(leaves.sum, sum(4112 + 32 + 128, 3));
        leaves.skip_to(511);
        leaves.end_leaf();
        assert_eq!(leaves.sum.count, 3);
        // Frames: a run each.
        let mut leaves = Leaves::default();
        (0..64).for_each(|_| leaves.push(Kept::Record { bytes: 9600, blocks: 8 }));
        assert_eq!(leaves.sum, sum(16 + 64 * 12, 1));
    }

    #[test]
    fn the_smallest_drive_is_the_smallest() {
        for used in [0, 1 << 20, 100 << 20, 10 << 30, 3 << 40] {
            let drive = smallest_drive(used, MapNeeds::default()).expect("a drive");
            assert!(limit_bytes(&drive, MapNeeds::default()) >= used);
            let smaller = Geometry::new(drive.physical_size_bytes - (1 << 20), None);
            assert!(
                smaller.map_or(0, |smaller| limit_bytes(&smaller, MapNeeds::default())) < used.max(1),
                "{used}"
            );
        }
        assert!(smallest_drive(u64::MAX / 2, MapNeeds::default()).is_none());
    }
}
