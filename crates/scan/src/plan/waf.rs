//! Write amplification in steady state, under uniform random overwrites of 4 KiB.
//!
//! If every block is equally likely to be overwritten, cleaning takes the oldest segment first. The drive's
//! cost-benefit rule (M. Rosenblum and J. Ousterhout, *The Design and Implementation of a Log-Structured File
//! System*, ACM TOCS 10, 1992, section 3.6) prefers the emptiest segments, and these are the oldest. Every
//! block has the same probability of surviving until its segment is cleaned. With *r* the live share of the
//! space occupied by data and *u* the live share of the segments cleaned:
//!
//! ```text
//! r = (1 - u) / ln(1 / u)        writes for each host write: 1 / (1 - u)
//! ```
//!
//! This is the relation of J. Menon and L. Stockmeyer (*An Age-Threshold Algorithm for Garbage Collection in
//! Log-Structured Arrays and File Systems*, IBM RJ 10120, 1998) and of LRU cleaning in P. Desnoyers
//! (*Analytic Modeling of SSD Write Performance*, SYSTOR 2012, section 4). Desnoyers shows that greedy
//! cleaning gives the same result where segments hold many blocks, as they do here. Skewed writes, sequential
//! writes and TRIM all give a lower amplification.

use drive::DEFAULT_CHECKPOINT_BYTES;
use layout::pack::PACK_HEADER_BYTES;
use layout::record::RECORD_HEADER_BYTES;
use layout::{BLOCK_BYTES, Checkpoint, Geometry, NODE_ENTRIES, PAGE_BYTES, UNIT_BYTES};
use serde::{Deserialize, Serialize};
use space::{LOG_RECORDS_MAX, PACK_SOFT_BYTES};

use super::low_watermark;

/// Bytes of the record of a full leaf.
const LEAF_BYTES: f64 = (RECORD_HEADER_BYTES + NODE_ENTRIES * 8) as f64;
/// Memory of a leaf in addition to its entries (`drive::node`).
const NODE_MEMORY_BYTES: f64 = 112.0;
/// Memory of a change to a leaf that is not loaded, and its size in the log.
const PAIR_MEMORY_BYTES: f64 = 16.0;
const PAIR_LOG_BYTES: f64 = 10.0;
/// Bytes of records in a full pack, without its header and an average padding of half a page.
const PACK_BYTES: f64 = PACK_SOFT_BYTES as f64;

/// A drive in use, as far as write amplification depends on it.
pub(crate) struct DriveModel<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) ratio: f64,
    pub(crate) live_bytes: f64,
    pub(crate) map_cache_bytes: u64,
}

/// Write amplification: bytes written to the backing device per byte written by the host, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waf {
    /// Sum of all kinds.
    pub total: f64,
    /// Host data, compressed, with headers.
    pub data: f64,
    /// Live data moved by cleaning.
    pub cleaning: f64,
    /// Map and checkpoints.
    pub map: f64,
    /// Live share of the segments that are cleaned.
    pub victim_live_share: f64,
}

impl Waf {
    pub(crate) fn new(state: &DriveModel<'_>) -> Waf {
        let share = state.live_bytes / occupied_bytes(state.geometry, state.live_bytes);
        let victim = live_share_of_victims(share);
        let packs = 1.0 + (PACK_HEADER_BYTES as f64 + PAGE_BYTES as f64 / 2.0) / PACK_BYTES;
        let data = packs / state.ratio;
        // Half of the moved records need another unit for the origin of 8 bytes.
        let record = BLOCK_BYTES as f64 / state.ratio;
        let moved = (record + UNIT_BYTES as f64 / 2.0) / record;
        let cleaning = data * moved * victim / (1.0 - victim);
        let map = map_bytes_a_block(state, record) / BLOCK_BYTES as f64;
        Waf { total: data + cleaning + map, data, cleaning, map, victim_live_share: victim }
    }
}

/// Number of segments that hold data, live or dead, while cleaning keeps up: all except the free segments
/// that cleaning maintains and the three that the heads will fill next.
pub fn occupied_segments(geometry: &Geometry, live_bytes: f64) -> u32 {
    const PROMISED: u32 = 3;
    geometry.segments().saturating_sub(low_watermark(geometry, live_bytes) + PROMISED)
}

fn occupied_bytes(geometry: &Geometry, live_bytes: f64) -> f64 {
    // Headers and padding of packs take space there too.
    let packs = 1.0 + (PACK_HEADER_BYTES as f64 + PAGE_BYTES as f64 / 2.0) / PACK_BYTES;
    f64::from(occupied_segments(geometry, live_bytes)) * f64::from(geometry.segment_bytes) / packs
}

/// Live share *u* of segments at cleaning, from the live share *r* of the occupied space: r = (1 - u) / ln(1
/// / u).
pub fn live_share_of_victims(share: f64) -> f64 {
    // Above this share nothing can be cleaned any more.
    const SHARE_MAX: f64 = 0.999;
    let share = share.clamp(0.0, SHARE_MAX);
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..60 {
        let u = f64::midpoint(low, high);
        // The expression rises from 0 to 1 with u.
        if (1.0 - u) / (1.0 / u).ln() < share { low = u } else { high = u }
    }
    low
}

/// Number of live bytes at which cleaning moves `moved` bytes per byte written by the host.
pub(crate) fn live_for_cleaning(geometry: &Geometry, moved: f64) -> f64 {
    let u = moved / (1.0 + moved);
    let share = (1.0 - u) / (1.0 / u).ln();
    // The number of free segments depends on the live bytes. One iteration is close, the second is exact to a
    // segment.
    let mut live = share * f64::from(geometry.segments()) * f64::from(geometry.segment_bytes);
    for _ in 0..4 {
        live = share * occupied_bytes(geometry, live);
    }
    live
}

/// Bytes of map and checkpoints per block that the host overwrites at random, with records of `record` bytes.
fn map_bytes_a_block(state: &DriveModel<'_>, record: f64) -> f64 {
    let logical = state.live_bytes * state.ratio;
    let leaves = (logical / (NODE_ENTRIES * BLOCK_BYTES) as f64).max(1.0);
    let by_log = (DEFAULT_CHECKPOINT_BYTES as f64 / record).min(LOG_RECORDS_MAX as f64);
    let dirty_max = state.map_cache_bytes as f64 / 2.0;
    let in_memory = leaves * (NODE_MEMORY_BYTES + NODE_ENTRIES as f64 * 8.0) <= state.map_cache_bytes as f64;
    let (blocks, bytes) = if in_memory {
        // Leaves changed by this number of random blocks. A checkpoint is written when half of the cache is
        // dirty.
        let touched = |blocks: f64| leaves * (1.0 - (-blocks / leaves).exp());
        let most = dirty_max / (NODE_MEMORY_BYTES + NODE_ENTRIES as f64 * 8.0);
        let by_map = if most < leaves { -leaves * (1.0 - most / leaves).ln() } else { f64::INFINITY };
        let blocks = by_log.min(by_map);
        (blocks, touched(blocks) * LEAF_BYTES)
    } else {
        // Changes to leaves that are not loaded are logged as changes, again with each checkpoint, until they
        // fill the cache. Then some leaves are loaded and written as a whole.
        let blocks = by_log.min(dirty_max / (NODE_MEMORY_BYTES + PAIR_MEMORY_BYTES));
        (blocks, blocks * (PAIR_LOG_BYTES + 2.0 * RECORD_HEADER_BYTES as f64))
    };
    let copies = state.geometry.copies();
    let table = (copies * Checkpoint::encoded_len(state.geometry.segments() as usize)) as f64;
    (bytes + table) / blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn victims_are_emptier_than_the_rest() {
        assert!(live_share_of_victims(0.0) < 1e-6);
        // u = 0.5: r = 0.5 / ln 2.
        assert!((live_share_of_victims(0.5 / std::f64::consts::LN_2) - 0.5).abs() < 1e-9);
        // Desnoyers 2012: with an over-provisioning of 25 % (r = 0.8), LRU cleaning costs 2.7 writes per host
        // write.
        let amplification = 1.0 / (1.0 - live_share_of_victims(0.8));
        assert!((2.6..2.8).contains(&amplification), "{amplification}");
        let mut last = 0.0;
        for share in 1..100 {
            let u = live_share_of_victims(f64::from(share) / 100.0);
            assert!(u >= last && u < f64::from(share) / 100.0 + 1e-9);
            last = u;
        }
    }

    #[test]
    fn as_measured_on_the_engine() {
        // lab/engine.md: with 51 % of the physical space live and data at about 2:1, cleaning is 0.19.
        let geometry = Geometry::new(1 << 30, None).expect("a drive");
        let live = 0.51 * f64::from(geometry.segments()) * f64::from(geometry.segment_bytes);
        let state =
            DriveModel { geometry: &geometry, ratio: 2.0, live_bytes: live, map_cache_bytes: 128 << 20 };
        let waf = Waf::new(&state);
        assert!((0.14..0.24).contains(&waf.cleaning), "{waf:?}");
    }

    #[test]
    fn the_live_share_for_some_cleaning_gives_that_cleaning() {
        let geometry = Geometry::new(1 << 40, None).expect("a drive");
        let live = live_for_cleaning(&geometry, 1.0);
        let u = live_share_of_victims(live / occupied_bytes(&geometry, live));
        assert!((u - 0.5).abs() < 0.01, "{u}");
    }
}
