//! Prediction of a Pumice drive that holds the scanned data: records with their headers, the map, and the
//! physical size.
//!
//! The data is assumed to be written in large pieces, 128 KiB or more at multiples of 32 KiB, so that
//! adjacent blocks form frames. Sizes come from the code of the drive: record headers and rounding from
//! `layout`, payloads from `codec`, map nodes from the encoder that writes them, the reserve from `space`.

use layout::record::RECORD_HEADER_BYTES;
use layout::{
    BLOCK_BYTES, Entry, Geometry, LEAF_LEVEL, NODE_ENTRIES, PAGE_BYTES, ParityForm, ROOT, UNIT_BYTES,
};
use serde::{Deserialize, Serialize};
use space::{data_bytes_max, kept_for_small, map_churn_bytes, map_growth_bytes};

use crate::estimate::Interval;
use crate::frames::{ENTRY_BYTES, Kept};

/// Number of bytes at which a pack is sealed.
const PACK_BYTES: u64 = space::PACK_SOFT_BYTES as u64;

/// Predicted use of space. Values are in bytes unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedDrive {
    /// Codec of the drive (`--codec` of `pumice create`).
    pub codec: String,
    /// Logical bytes / physical bytes in use, including headers and map: `compression_ratio` of
    /// `pumice status`.
    pub ratio: Interval,
    /// The ratio without fills: what the rest of a drive's capacity may be expected to reach. `None` if there
    /// is no other data.
    #[serde(default)]
    pub ratio_without_fills: Option<Interval>,
    /// The ratio if every block is written separately, without frames.
    #[serde(default)]
    pub ratio_of_random_writes: Option<Interval>,
    /// The ratio after the drive has compressed all data again as cold data, without a dictionary; `None` if
    /// no larger units were read, or if the drive does not compress.
    #[serde(default)]
    pub ratio_settled: Option<Interval>,
    /// Logical bytes / bytes of the smallest drive that holds them, including reserve and fixed structures.
    pub ratio_of_size: Interval,
    /// Bytes of blocks written to the drive, including fills but not holes.
    pub logical_used_bytes: u64,
    /// Part of the logical bytes that is zeros and other fills.
    pub logical_fill_bytes: Interval,
    /// Compressed blocks with their headers.
    pub records_bytes: Interval,
    /// Bytes of the map.
    pub map_bytes: Interval,
    /// Records and map: `physical_used_bytes` of `pumice status`.
    pub physical_used_bytes: Interval,
    /// Headers and padding of packs before cleaning. They are part of the reserve.
    pub pack_overhead_bytes: u64,
    /// Smallest physical size of a drive that holds the data.
    pub physical_size_bytes: Interval,
    /// Part of the estimated physical size that segments set apart for parity (`--parity` of
    /// `pumice create`).
    #[serde(default)]
    pub physical_parity_bytes: u64,
    /// Part of the estimated physical size that host data cannot fill.
    pub physical_reserve_bytes: u64,
    /// Part of the estimated physical size for the superblock, checkpoints and the remainder.
    pub physical_fixed_bytes: u64,
}

/// Results of the measurement: sums if everything was read, else intervals for means over blocks.
pub(crate) struct Evidence {
    pub(crate) codec: String,
    pub(crate) parity: ParityForm,
    /// Number of blocks written.
    pub(crate) blocks: u64,
    /// Share of blocks that are fills.
    pub(crate) fills: Interval,
    /// Space taken if written in large pieces.
    pub(crate) framed: Usage,
    /// Space taken if written block by block.
    pub(crate) single: Usage,
    /// Space taken after settling.
    pub(crate) settled: Option<Usage>,
}

/// Space taken per block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Bytes of records per block.
    pub(crate) records: Interval,
    /// Bytes of records and lower bound of the map bytes, per block.
    pub(crate) mapped: Interval,
    /// All leaves of the map, if everything was read.
    pub(crate) leaves: Option<LeafSum>,
}

impl Usage {
    /// Bytes of records and map for this number of blocks.
    fn used(&self, blocks: u64) -> Interval {
        let scale = blocks as f64;
        let records = self.records.scaled(scale);
        if let Some(leaves) = self.leaves {
            return Interval::exact(records.estimate + (leaves.bytes + upper_bytes(leaves.count)) as f64);
        }
        let leaves = blocks.div_ceil(NODE_ENTRIES as u64);
        let above = (leaves * RECORD_HEADER_BYTES as u64 + upper_bytes(leaves)) as f64;
        let mapped = self.mapped.scaled(scale);
        // Lower bound: what each group adds to its leaf. Upper bound: every leaf is dense.
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
            smallest_drive(used as u64, needs, evidence.parity)
                .map_or(0.0, |drive| drive.physical_size_bytes as f64)
        };
        let sizes = Interval { estimate: size(used.estimate), low: size(used.low), high: size(used.high) };
        let drive = smallest_drive(used.estimate as u64, needs, evidence.parity)?;
        let segments = drive.segments();
        let all = u64::from(segments) * u64::from(drive.segment_bytes);
        let far = far_room_bytes(&drive);
        let parity = u64::from(segments) * u64::from(drive.segment_bytes - drive.room_bytes());
        let reserve = (all - far - limit_bytes(&drive, needs)).saturating_sub(parity);
        let fixed = drive.physical_size_bytes - all + far;
        let packs = (records.estimate as u64).div_ceil(PACK_BYTES);
        Some(PredictedDrive {
            codec: evidence.codec.clone(),
            ratio: used.dividing(logical as f64),
            ratio_without_fills: without_fills(logical as f64, &evidence.fills, &used),
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
            physical_parity_bytes: parity,
            physical_reserve_bytes: reserve,
            physical_fixed_bytes: fixed,
        })
    }
}

/// Returns the ratio of the data that is no fill.
fn without_fills(logical: f64, fills: &Interval, used: &Interval) -> Option<Interval> {
    let ratio =
        |fills: f64, used: f64| if used > 0.0 { logical * (1.0 - fills).max(0.0) / used } else { 0.0 };
    let estimate = ratio(fills.estimate, used.estimate);
    let high = ratio(fills.low, used.low).max(estimate);
    (estimate > 0.0).then(|| Interval { estimate, low: ratio(fills.high, used.high).min(estimate), high })
}

/// Properties of a map that affect how much data fits on a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapNeeds {
    /// Number of mapped blocks.
    pub blocks: u64,
    /// Bytes of the map.
    pub bytes: u64,
    /// Bytes by which the map can still grow.
    pub growth_bytes: u64,
}

/// What packs could fill of the segments that hold the far copies.
fn far_room_bytes(geometry: &Geometry) -> u64 {
    geometry.far_segments().len() as u64 * u64::from(geometry.room_bytes())
}

/// Returns the number of live bytes that a drive with such a map can hold.
pub fn limit_bytes(geometry: &Geometry, map: MapNeeds) -> u64 {
    let segments = geometry.segments();
    let data = data_bytes_max(segments, geometry.room_bytes()).saturating_sub(far_room_bytes(geometry));
    let upper = space::upper_bytes(map.blocks, map.blocks, map.bytes);
    let churn = map_churn_bytes(segments, geometry.room_bytes(), map.bytes, upper);
    let limit = data.saturating_sub(map.growth_bytes + churn);
    limit - kept_for_small(limit / UNIT_BYTES as u64) * UNIT_BYTES as u64
}

/// Returns the smallest drive, in whole MiB, that holds this number of live bytes with such a map and this
/// parity. Returns `None` if no drive is large enough.
pub fn smallest_drive(used_bytes: u64, map: MapNeeds, parity: ParityForm) -> Option<Geometry> {
    const STEP: u64 = 1 << 20;
    let fits = |mib: u64| {
        Geometry::with_parity(mib * STEP, None, parity)
            .is_ok_and(|geometry| limit_bytes(&geometry, map) >= used_bytes)
    };
    let mut high = (used_bytes / STEP + 1).max(16);
    while !fits(high) {
        high = high.checked_mul(2).filter(|mib| *mib <= 1 << 34)?;
    }
    // The limit drops at sizes where the segment size grows. Near these sizes the result is only close to the
    // smallest.
    let mut low = high / 2;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle }
    }
    Geometry::with_parity(high * STEP, None, parity).ok()
}

/// Bytes of the record of a node with this number of children, if none of them is a fill.
fn upper_node_bytes(children: u64) -> u64 {
    let payload = (children * 10).min((NODE_ENTRIES * 8) as u64);
    (RECORD_HEADER_BYTES as u64 + payload).next_multiple_of(UNIT_BYTES as u64)
}

/// Bytes of all nodes above this number of leaves.
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

/// Collects blocks into leaves of the map, as if stored consecutively on a drive.
#[derive(Default)]
pub(crate) struct Leaves {
    entries: Vec<(u16, Entry)>,
    slot: u16,
    positions: u64,
    payload: Vec<u8>,
    /// Sum over all finished leaves.
    pub(crate) sum: LeafSum,
}

/// Sum over leaves of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeafSum {
    /// Bytes of their records.
    pub(crate) bytes: u64,
    /// Number of leaves that are not empty.
    pub(crate) count: u64,
}

impl LeafSum {
    pub(crate) fn add(&mut self, other: LeafSum) {
        self.bytes += other.bytes;
        self.count += other.count;
    }
}

impl Leaves {
    /// Adds the next block, or all blocks of a record.
    pub(crate) fn push(&mut self, kept: Kept) {
        let entry = match kept {
            Kept::Fill(word) => Entry::fill(word),
            Kept::Record { bytes, blocks } => {
                // Any position will do if it differs from the others.
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

    /// Sets the slot of the next block in the leaf. Skipped slots are holes and not mapped.
    pub(crate) fn skip_to(&mut self, slot: u64) {
        self.slot = self.slot.max(slot.min(NODE_ENTRIES as u64 - 1) as u16);
    }

    /// Finishes the current leaf. The next block starts a new one.
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
        // Ten blocks of a leaf: ten pairs of ten bytes.
        leaves.skip_to(100);
        (0..10).for_each(|_| leaves.push(single));
        leaves.end_leaf();
        assert_eq!(leaves.sum, sum(4112 + 32 + 128, 3));
        leaves.skip_to(511);
        leaves.end_leaf();
        assert_eq!(leaves.sum.count, 3);
        // Frames: one run each.
        let mut leaves = Leaves::default();
        (0..64).for_each(|_| leaves.push(Kept::Record { bytes: 9600, blocks: 8 }));
        assert_eq!(leaves.sum, sum(16 + 64 * 12, 1));
    }

    #[test]
    fn the_smallest_drive_is_the_smallest() {
        for used in [0, 1 << 20, 100 << 20, 10 << 30, 3 << 40] {
            let none = ParityForm::None;
            let drive = smallest_drive(used, MapNeeds::default(), none).expect("a drive");
            assert!(limit_bytes(&drive, MapNeeds::default()) >= used);
            let smaller = Geometry::new(drive.physical_size_bytes - (1 << 20), None);
            assert!(
                smaller.map_or(0, |smaller| limit_bytes(&smaller, MapNeeds::default())) < used.max(1),
                "{used}"
            );
        }
        assert!(smallest_drive(u64::MAX / 2, MapNeeds::default(), ParityForm::None).is_none());
    }

    #[test]
    fn parity_makes_the_smallest_drive_larger_by_its_share() {
        for used in [100_u64 << 20, 10 << 30, 3 << 40] {
            let size = |form| {
                let drive = smallest_drive(used, MapNeeds::default(), form).expect("a drive");
                assert!(limit_bytes(&drive, MapNeeds::default()) >= used);
                drive.physical_size_bytes as f64
            };
            let none = size(ParityForm::None);
            for (form, part) in
                [(ParityForm::Part64, 64.0), (ParityForm::Part32, 32.0), (ParityForm::Part16, 16.0)]
            {
                let more = size(form) / none - 1.0;
                // Small drives have whole reserve segments, and 16 MiB ones from 16 GiB on.
                assert!((0.9 / part..2.0 / part + 0.02).contains(&more), "{used} {form}: {more}");
            }
        }
    }
}
