//! How many segments are kept back, and for what. Pure arithmetic: whoever plans a drive asks the same functions as the
//! drive itself.

use layout::pack::{HEADS, PACK_HEADER_BYTES};
use layout::record::RECORD_HEADER_BYTES;
use layout::{Entry, NODE_ENTRIES, PAGE_BYTES, ROOT, UNIT_BYTES};

use crate::pack_sizes::PACK_SOFT_BYTES;

/// What heads and a checkpoint need, in segments.
const RESERVE_MIN_SEGMENTS: u32 = 12;

/// Segments that data may not fill, of so many: over-provisioning for cleaning, the heads and the map.
fn reserve_segments(count: u32) -> u32 {
    // 7 %, as drives over-provision, and what the three heads are in and were promised, which holds little.
    (u64::from(count) * 7 / 100 + 6).max(RESERVE_MIN_SEGMENTS.into()) as u32
}

/// Bytes of live records that so many segments take at most, before what is kept for the map.
///
/// There are no more than cleaning can pack into what is left of the segments by the reserve; and no more than so many that,
/// when the host's head finds no segment left, a segment holds little enough to be worth cleaning. All but the free ones that
/// the host leaves to others, and those that the heads fill and were promised, are sealed then.
pub fn data_bytes_max(count: u32, segment_bytes: u32) -> u64 {
    let by_reserve = u64::from(count.saturating_sub(reserve_segments(count))) * u64::from(segment_bytes);
    let sealed = count.saturating_sub(host_floor_segments(count) + 2 * HEADS as u32);
    by_reserve.min(u64::from(sealed) * dense_bytes(segment_bytes))
}

/// A segment with at least so many bytes of live records is packed so densely that moving them gains nothing: they would lose as
/// much to headers and ends wherever they go.
pub(crate) fn dense_bytes(segment_bytes: u32) -> u64 {
    // What a pack loses to its header and to padding, at most.
    const PACK_LOSS_BYTES: u64 = (PACK_HEADER_BYTES + PAGE_BYTES) as u64;
    // The longest record that cleaning moves: so much may stay empty at the end of a segment.
    const RECORD_BYTES_MAX: u64 = Entry::FRAME_MAX_LEN_BYTES as u64;
    let packs = u64::from(segment_bytes).div_ceil(PACK_SOFT_BYTES as u64);
    let segment = u64::from(segment_bytes);
    // Nearly full ones cost more than they give.
    let most = segment * 97 / 100;
    let dense = (segment * 99 / 100).saturating_sub(packs * PACK_LOSS_BYTES + RECORD_BYTES_MAX);
    dense.min(most) / UNIT_BYTES as u64 * UNIT_BYTES as u64
}

/// What a block takes in a leaf at most, in bytes: a pair of slot and entry.
pub(crate) const PAIR_BYTES: u64 = 10;

/// What the map can grow by, in bytes, although nothing is added to it: leaves of frames are written as runs, and grow up to a
/// pair a block where single blocks are given up. A full drive must be able to take that, so it is kept free.
pub fn map_growth_bytes(blocks: u64, map_bytes: u64) -> u64 {
    (blocks * PAIR_BYTES).saturating_sub(map_bytes)
}

/// What is kept free beside the reserve for rewriting the map, in bytes, on a drive of so many segments whose map takes so much,
/// and may take so much above its leaves.
///
/// To move or to trim the small records of one segment changes a leaf for each of them, and all nodes above: on a small drive,
/// nearly all of the map. What that replaces is dead, but lies all over, so that it takes room until it is cleaned. Drives of a
/// thousand segments have room for that in their reserve.
pub fn map_churn_bytes(count: u32, segment_bytes: u32, map_bytes: u64, upper_bytes: u64) -> u64 {
    // Found by filling small drives with small records and trimming them: once is too little.
    const TIMES: u64 = 2;
    const SEGMENTS_MAX: u64 = 64;
    let segment_bytes = u64::from(segment_bytes);
    let leaves = map_bytes.saturating_mul(TIMES).min(SEGMENTS_MAX * segment_bytes);
    let in_reserve = u64::from(reserve_segments(count) - RESERVE_MIN_SEGMENTS) * segment_bytes;
    leaves.saturating_add(checkpoints_bytes(upper_bytes)).saturating_sub(in_reserve)
}

/// Nodes above the leaves that a drive of so many blocks can have, by level.
pub(crate) fn upper_nodes(blocks: u64) -> [u64; ROOT.level as usize] {
    // One more for what is the drive's own.
    let nodes_at = |level: u32| blocks.div_ceil(1 << (9 * (level + 1))) + 1;
    [nodes_at(1), nodes_at(2), nodes_at(3)]
}

/// What all nodes above the leaves take at most, in bytes, on a drive of so many blocks of which so many are mapped, by a map of so
/// many bytes.
pub fn upper_bytes(blocks: u64, mapped: u64, map_bytes: u64) -> u64 {
    let leaves = leaves_max(mapped, map_bytes);
    ancestors_bytes(upper_nodes(blocks), leaves, leaves)
}

/// Leaves that there can be.
pub(crate) fn leaves_max(mapped: u64, map_bytes: u64) -> u64 {
    // The shortest record of a node: its header, and one pair.
    const NODE_BYTES_MIN: u64 = (RECORD_HEADER_BYTES as u64 + PAIR_BYTES).next_multiple_of(UNIT_BYTES as u64);
    mapped.min(map_bytes / NODE_BYTES_MIN)
}

/// What the ancestors of so many nodes take at most, in bytes, on a drive with so many leaves.
pub(crate) fn ancestors_bytes(upper_nodes: [u64; ROOT.level as usize], nodes: u64, leaves: u64) -> u64 {
    // As many records as there can be ancestors, each of so many bytes; or, where the drive holds little, headers
    // (with padding), and a pair for each child, of which there are no more than leaves and these nodes.
    const NODE_BYTES: u64 = NODE_ENTRIES as u64 * 8 + 32;
    const HEADER_BYTES: u64 = 32;
    let ancestors: u64 = upper_nodes.iter().map(|&most| most.min(nodes)).sum();
    let children = leaves.saturating_add(nodes).saturating_add(ancestors);
    (ancestors * NODE_BYTES).min(children.saturating_mul(PAIR_BYTES).saturating_add(ancestors * HEADER_BYTES))
}

/// What is kept free for writing so much map, now and once more at an opening after a crash.
fn checkpoints_bytes(map_bytes: u64) -> u64 {
    with_ends(map_bytes).saturating_mul(2)
}

/// What so much map takes in segments, the ends of which are too short for a node.
pub(crate) fn with_ends(map_bytes: u64) -> u64 {
    map_bytes.saturating_add(map_bytes / 4)
}

/// What is kept for small writes, of so much that data and map may take: a file system whose data did not fit has its journal
/// to replay.
pub fn kept_for_small(limit: u64) -> u64 {
    limit / 256
}

/// Free segments that host writes must leave for cleaning, before what the changed map would take.
pub fn host_floor_segments(count: u32) -> u32 {
    (count / 100).max(4)
}

/// Free segments that a checkpoint, and below which cleaning, is wanted at: the critical and the low watermark. `live`
/// is how many segments the live data would fill, `floor` what the host head must leave.
///
/// Cleaning keeps a stock, so that checkpoints are few, of at most a quarter of what data leaves free.
pub fn watermarks(count: u32, live: u32, floor: u32) -> (u32, u32) {
    let stock = (count / 20).min(count.saturating_sub(live + floor) / 4).max(3);
    (floor + 2, floor + 2 + stock)
}

/// How fast background work should go, and how fast writers may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Share of its time that cleaning should take, from 0 to 1.
    pub cleaning_share: f64,
    /// How many times as fast as they have been lately writers should go, so that space is not used up faster than it is
    /// made: 1 keeps the rate, less slows down. `None`: as fast as they like.
    pub writers: Option<f64>,
}

impl Pace {
    /// Nothing to clean, nobody held back.
    pub const FREE: Pace = Pace { cleaning_share: 0.0, writers: None };
}

/// Free and soon free space, in segments; fractions are what is left of the one that the host head fills.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// Free.
    pub free: f64,
    /// Free, and dead but not freed by a checkpoint yet.
    pub available: f64,
    /// What host writes must leave.
    pub floor: f64,
    /// The critical and the low watermark, as of [`watermarks`].
    pub marks: (f64, f64),
    /// No host has written for a while.
    pub idle: bool,
}

/// The pace for a supply.
///
/// Cleaning's share rises with what is missing at the low watermark, and is all of its time where a quarter of the stock is
/// missing: a drive under light load is cleaned a little all the time, and one that nobody uses slowly. Where that does not
/// suffice writers are held back, so that they meet the rate of cleaning while most of the stock is still there
/// (checkpoints then stay few), rather than run into the floor and wait for whole segments. Independently, what is free
/// must last while a checkpoint is written: the last two segments above the floor are given out ever more slowly.
pub fn pace(supply: &Supply) -> Pace {
    // Shares of the stock that are missing: where cleaning works without pause, and where writers keep their rate.
    const FULL_SPEED: f64 = 0.25;
    const BALANCE: f64 = 0.375;
    // The rate halves for so much more of the stock missing.
    const HALVING: f64 = 0.125;
    const IDLE_SHARE_MAX: f64 = 0.25;
    const RUNWAY_SEGMENTS: f64 = 2.0;
    let (critical, low) = supply.marks;
    let missing = (low - supply.available) / (low - critical).max(1.0);
    let share = (missing / FULL_SPEED).clamp(0.0, 1.0);
    let cleaning_share = if supply.idle { share.min(IDLE_SHARE_MAX) } else { share };
    let runway = ((supply.free - supply.floor) / RUNWAY_SEGMENTS).clamp(0.0, 1.0);
    let writers = if missing > FULL_SPEED {
        Some(((BALANCE - missing) / HALVING).exp2() * runway)
    } else {
        (runway < 1.0).then_some(runway)
    };
    Pace { cleaning_share, writers }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `limit` says in bytes is whole units, as the drive counts.
    #[test]
    fn segments_hold_whole_units_and_never_more_than_there_is() {
        for segment_bytes in (19..29).map(|bits| 1_u32 << bits) {
            assert!(dense_bytes(segment_bytes).is_multiple_of(UNIT_BYTES as u64));
            for count in 0..2000 {
                let most = data_bytes_max(count, segment_bytes);
                let reserve = u64::from(reserve_segments(count)) * u64::from(segment_bytes);
                assert!(most <= (u64::from(count) * u64::from(segment_bytes)).saturating_sub(reserve));
            }
        }
    }

    fn at(available: f64, free: f64) -> Pace {
        pace(&Supply { free, available, floor: 10.0, marks: (12.0, 52.0), idle: false })
    }

    #[test]
    fn cleaning_works_harder_the_less_there_is() {
        let shares: Vec<f64> = (0..=60).map(|a| at(f64::from(a), 30.0).cleaning_share).collect();
        assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
        assert_eq!((shares[52], shares[60]), (0.0, 0.0));
        assert_eq!((shares[42], shares[12], shares[0]), (1.0, 1.0, 1.0));
        assert!((at(47.0, 30.0).cleaning_share - 0.5).abs() < 1e-9);
        let idle =
            pace(&Supply { free: 11.0, available: 11.0, floor: 10.0, marks: (12.0, 52.0), idle: true });
        assert_eq!(idle.cleaning_share, 0.25);
    }

    #[test]
    fn writers_are_free_until_cleaning_cannot_keep_up_and_then_slow_down_steadily() {
        assert_eq!(at(42.0, 30.0).writers, None);
        let factors: Vec<f64> =
            (12..42).map(|a| at(f64::from(a), 30.0).writers.expect("held back")).collect();
        assert!(factors.is_sorted_by(|a, b| a < b), "{factors:?}");
        // Three eighths of the stock missing: they keep the rate they have.
        assert!((at(37.0, 30.0).writers.expect("held back") - 1.0).abs() < 1e-9);
        assert!(factors[0] < 0.05 && factors[29] > 1.5, "{factors:?}");
    }

    #[test]
    fn the_last_free_segments_are_given_out_slowly_whatever_a_checkpoint_will_free() {
        assert_eq!(at(60.0, 12.0).writers, None);
        assert_eq!(at(60.0, 11.0).writers, Some(0.5));
        assert_eq!(at(60.0, 10.0).writers, Some(0.0));
        assert_eq!(at(60.0, 9.0).writers, Some(0.0));
    }
}
