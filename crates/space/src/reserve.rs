//! Number of segments held back, and amount of data in the others.

use layout::pack::{HEADS, PACK_HEADER_BYTES};
use layout::{Entry, PAGE_BYTES, UNIT_BYTES};

use crate::PACK_SOFT_BYTES;

/// Segments that heads and a checkpoint need.
pub(crate) const RESERVE_MIN_SEGMENTS: u32 = 12;

/// Returns how many of `count` segments data may not fill: over-provisioning for cleaning, the heads and the map.
pub(crate) fn reserve_segments(count: u32) -> u32 {
    // 7 %, the usual over-provisioning of drives, and the segments that the three heads are in and were promised,
    // which hold little.
    (u64::from(count) * 7 / 100 + 6).max(RESERVE_MIN_SEGMENTS.into()) as u32
}

/// Returns the most bytes of live records in so many segments, before what is kept for the map.
///
/// No more than cleaning can pack into the segments that the reserve leaves; and no more than so many that, when the
/// host's head finds no segment left, a segment holds little enough to be worth cleaning. All but the free ones that
/// the host leaves to others, and those that the heads fill and were promised, are sealed then.
pub fn data_bytes_max(count: u32, segment_bytes: u32) -> u64 {
    let by_reserve = u64::from(count.saturating_sub(reserve_segments(count))) * u64::from(segment_bytes);
    let sealed = count.saturating_sub(host_floor_segments(count) + 2 * HEADS as u32);
    by_reserve.min(u64::from(sealed) * dense_bytes(segment_bytes))
}

/// A segment with at least so many bytes of live records is packed so densely that moving them gains nothing: they
/// would lose as much to headers and ends wherever they go.
pub fn dense_bytes(segment_bytes: u32) -> u64 {
    // Most bytes that a pack loses to its header and to padding.
    const PACK_LOSS_BYTES: u64 = (PACK_HEADER_BYTES + PAGE_BYTES) as u64;
    // The longest record that cleaning moves: this much may stay empty at the end of a segment.
    const RECORD_BYTES_MAX: u64 = Entry::FRAME_MAX_LEN_BYTES as u64;
    let packs = u64::from(segment_bytes).div_ceil(PACK_SOFT_BYTES as u64);
    let segment = u64::from(segment_bytes);
    // Nearly full segments cost more than they give.
    let most = segment * 97 / 100;
    let dense = (segment * 99 / 100).saturating_sub(packs * PACK_LOSS_BYTES + RECORD_BYTES_MAX);
    dense.min(most) / UNIT_BYTES as u64 * UNIT_BYTES as u64
}

/// Returns what is kept for small writes, of a limit for data and map: a file system whose data did not fit has its
/// journal to replay.
pub fn kept_for_small(limit: u64) -> u64 {
    limit / 256
}

/// Returns the number of free segments that host writes must leave for cleaning, before what the changed map would
/// take.
pub fn host_floor_segments(count: u32) -> u32 {
    (count / 100).max(4)
}

/// Returns the numbers of free segments at which a checkpoint is needed, and below which cleaning works: the critical
/// and the low watermark. `live` is the number of segments that the live data would fill, `floor` what the host head
/// must leave.
///
/// Cleaning keeps a stock, so that checkpoints are few, of at most a quarter of what data leaves free.
pub fn watermarks(count: u32, live: u32, floor: u32) -> (u32, u32) {
    let stock = (count / 20).min(count.saturating_sub(live + floor) / 4).max(3);
    (floor + 2, floor + 2 + stock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit in bytes is a whole number of units, as the drive counts.
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
}
