//! How many segments are kept back, and for what. Pure arithmetic: whoever plans a drive asks the same functions as the
//! drive itself.

/// Segments that data may not fill, of so many: over-provisioning for cleaning, the heads and the map.
pub fn reserve_segments(count: u32) -> u32 {
    // 7 %, as drives over-provision; never less than what the heads and a checkpoint need.
    (u64::from(count) * 7 / 100).max(12) as u32
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
