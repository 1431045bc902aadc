//! Size of the map, its possible growth, and the space to rewrite it.

use layout::record::RECORD_HEADER_BYTES;
use layout::{NODE_ENTRIES, ROOT, UNIT_BYTES};

use crate::reserve::{RESERVE_MIN_SEGMENTS, reserve_segments};

/// Most bytes of a block in a leaf: a pair of slot and entry.
pub const PAIR_BYTES: u64 = 10;

/// Returns the growth of the map, in bytes, that is possible without a new block: leaves of frames are
/// written as runs, and grow up to one pair per block if single blocks are trimmed. That space is kept free,
/// because a full drive must accept trims.
pub fn map_growth_bytes(blocks: u64, map_bytes: u64) -> u64 {
    (blocks * PAIR_BYTES).saturating_sub(map_bytes)
}

/// Returns the bytes kept free for rewriting the map, in addition to the reserve, on a drive of `count`
/// segments, `room_bytes` of each for packs, with a map of `map_bytes`, of which `upper_bytes` are nodes
/// above the leaves.
///
/// Moving or trimming the small records of one segment changes a leaf for each of them, and all nodes above:
/// on a small drive, nearly all of the map. The replaced nodes are dead but scattered, so they take space
/// until it is cleaned. Drives of a thousand segments have that space in their reserve.
pub fn map_churn_bytes(count: u32, room_bytes: u32, map_bytes: u64, upper_bytes: u64) -> u64 {
    // Found by filling small drives with small records and trimming them: once is too little.
    const TIMES: u64 = 2;
    const SEGMENTS_MAX: u64 = 64;
    let room_bytes = u64::from(room_bytes);
    let leaves = map_bytes.saturating_mul(TIMES).min(SEGMENTS_MAX * room_bytes);
    let in_reserve = u64::from(reserve_segments(count) - RESERVE_MIN_SEGMENTS) * room_bytes;
    leaves.saturating_add(checkpoints_bytes(upper_bytes)).saturating_sub(in_reserve)
}

/// Returns the largest number of nodes above the leaves, by level, on a drive of `blocks` blocks.
pub fn upper_nodes(blocks: u64) -> [u64; ROOT.level as usize] {
    // One more for the drive's own blocks.
    let nodes_at = |level: u32| blocks.div_ceil(1 << (9 * (level + 1))) + 1;
    [nodes_at(1), nodes_at(2), nodes_at(3)]
}

/// Returns the largest number of bytes of all nodes above the leaves, on a drive of `blocks` blocks of which
/// `mapped` are mapped, by a map of `map_bytes`.
pub fn upper_bytes(blocks: u64, mapped: u64, map_bytes: u64) -> u64 {
    let leaves = leaves_max(mapped, map_bytes);
    ancestors_bytes(upper_nodes(blocks), leaves, leaves)
}

/// Returns the largest number of leaves of a map of `map_bytes` with `mapped` blocks.
pub fn leaves_max(mapped: u64, map_bytes: u64) -> u64 {
    // The shortest record of a node: its header, and one pair.
    const NODE_BYTES_MIN: u64 = (RECORD_HEADER_BYTES as u64 + PAIR_BYTES).next_multiple_of(UNIT_BYTES as u64);
    mapped.min(map_bytes / NODE_BYTES_MIN)
}

/// Returns the largest number of bytes of the ancestors of `nodes` nodes, on a drive with `leaves` leaves.
pub fn ancestors_bytes(upper_nodes: [u64; ROOT.level as usize], nodes: u64, leaves: u64) -> u64 {
    // The smaller of two bounds: a full node for each ancestor; or, on an almost empty drive, a header with
    // padding for each ancestor and a pair for each child. Children are leaves, these nodes, or ancestors.
    const NODE_BYTES: u64 = NODE_ENTRIES as u64 * 8 + 32;
    const HEADER_BYTES: u64 = 32;
    let ancestors: u64 = upper_nodes.iter().map(|&most| most.min(nodes)).sum();
    let children = leaves.saturating_add(nodes).saturating_add(ancestors);
    (ancestors * NODE_BYTES).min(children.saturating_mul(PAIR_BYTES).saturating_add(ancestors * HEADER_BYTES))
}

/// Returns the bytes kept free for writing `map_bytes` of map, now and once more at an opening after a crash.
fn checkpoints_bytes(map_bytes: u64) -> u64 {
    with_ends(map_bytes).saturating_mul(2)
}

/// Returns the space that `map_bytes` of map takes in segments, with the ends of segments that are too short
/// for a node.
pub fn with_ends(map_bytes: u64) -> u64 {
    map_bytes.saturating_add(map_bytes / 4)
}
