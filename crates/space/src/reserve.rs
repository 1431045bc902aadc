//! Number of segments held back, and amount of data in the others.

use layout::pack::{HEADS, PACK_HEADER_BYTES};
use layout::{Entry, PAGE_BYTES, UNIT_BYTES};

use crate::PACK_SOFT_BYTES;

/// Smallest number of segments for the heads and a checkpoint.
pub(crate) const RESERVE_MIN_SEGMENTS: u32 = 12;

/// Returns the number of segments, of `count`, that data may not fill: over-provisioning for cleaning, the
/// heads and the map.
pub(crate) fn reserve_segments(count: u32) -> u32 {
    // 7 %, the usual over-provisioning of drives, and two segments for each of the three heads: the one that
    // it fills, and the next one. These hold little.
    (u64::from(count) * 7 / 100 + 6).max(RESERVE_MIN_SEGMENTS.into()) as u32
}

/// Returns the largest number of bytes of live records in `count` segments, before the space kept for the map
/// is subtracted.
///
/// Two bounds apply. Live records must fit in the segments that the reserve leaves. And when no segment is
/// left for the host's head, at least one sealed segment must hold few enough of them to be worth cleaning.
/// All segments are sealed then, except the free ones that the host leaves to others, and two for each head.
/// `room_bytes` of each are for packs.
pub fn data_bytes_max(count: u32, room_bytes: u32) -> u64 {
    let by_reserve = u64::from(count.saturating_sub(reserve_segments(count))) * u64::from(room_bytes);
    let sealed = count.saturating_sub(host_floor_segments(count) + 2 * HEADS as u32);
    by_reserve.min(u64::from(sealed) * dense_bytes(room_bytes))
}

/// Returns the bytes of live records from which on a segment is so dense that moving them gains nothing: they
/// would lose as much to headers and the ends of segments elsewhere.
pub fn dense_bytes(room_bytes: u32) -> u64 {
    // Most bytes that a pack loses to its header and to padding.
    const PACK_LOSS_BYTES: u64 = (PACK_HEADER_BYTES + PAGE_BYTES) as u64;
    // The longest record that cleaning moves: this much may stay empty at the end of a segment.
    const RECORD_BYTES_MAX: u64 = Entry::FRAME_MAX_LEN_BYTES as u64;
    let packs = u64::from(room_bytes).div_ceil(PACK_SOFT_BYTES as u64);
    let segment = u64::from(room_bytes);
    // Nearly full segments cost more than they give.
    let most = segment * 97 / 100;
    let dense = (segment * 99 / 100).saturating_sub(packs * PACK_LOSS_BYTES + RECORD_BYTES_MAX);
    dense.min(most) / UNIT_BYTES as u64 * UNIT_BYTES as u64
}

/// Returns the bytes kept for small writes, of a limit for data and map: a file system whose data did not fit
/// must still be able to replay its journal.
pub fn kept_for_small(limit: u64) -> u64 {
    limit / 256
}

/// Returns the number of free segments that host writes must leave for cleaning. Segments for the changed map
/// are added to it.
pub fn host_floor_segments(count: u32) -> u32 {
    (count / 100).max(4)
}

/// Returns the critical and the low watermark: the numbers of free segments at which a checkpoint is needed,
/// and below which cleaning works. `live` is the number of segments that the live data would fill, `floor`
/// the number that the host head must leave.
///
/// Between floor and low watermark, cleaning keeps a stock of free segments, so that checkpoints are few: at
/// most a quarter of the segments that data leaves free.
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
