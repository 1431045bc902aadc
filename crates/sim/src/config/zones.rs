//! Ranges of the drive that the clients of a seed use.

use media::SimRng;

use super::Style;

/// Size of the largest frame: eight blocks.
pub(crate) const GROUP_BYTES: u64 = 8 * 4096;

/// Most ranges written in a round.
const ROUND_PLACES_MAX: u64 = 8;

/// A range of the drive that clients prefer, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// Draws the zones. The first one is used most. Zones may overlap and have any position.
pub(super) fn draw_zones(
    rng: &mut SimRng,
    style: Style,
    physical_bytes: u64,
    logical_bytes: u64,
) -> Vec<Zone> {
    let share = rng.index(4);
    let mut zone = |len: u64| {
        let len = len.min(logical_bytes);
        Zone { start: rng.below(logical_bytes - len + 1) / 4096 * 4096, len: len / 4096 * 4096 }
    };
    match style {
        Style::Fill | Style::Full => vec![zone(16 << 20), zone(16 << 20), zone(1 << 20)],
        Style::Churn => {
            // From almost no cleaning to almost nothing else.
            let share = [15, 30, 45, 60][share];
            vec![zone(physical_bytes * share / 100), zone(1 << 20), zone(64 << 10)]
        }
        Style::Sparse => vec![zone(logical_bytes), zone(64 << 30), zone(1 << 30), zone(64 << 10)],
        Style::Rounds => vec![zone(1 << 20)],
        Style::Frames => vec![zone(1 << (18 + share)), zone(64 << 10)],
        Style::Large => Vec::new(),
        Style::Mixed => vec![zone(32 << 10), zone(512 << 10), zone(2 << 20), zone(logical_bytes)],
    }
}

/// Draws the ranges written in a round: first sector and length in sectors, of whole blocks that do not
/// overlap. Mostly small ones: what is written between them decides how soon a segment is full.
pub(super) fn draw_rounds(rng: &mut SimRng, logical_bytes: u64) -> Vec<(u64, u64)> {
    let blocks = logical_bytes / 4096;
    let large = [8, 16, 32, 64][rng.index(4)];
    let mut at = rng.below(blocks - ROUND_PLACES_MAX * 64);
    let mut places = Vec::new();
    for _ in 0..2 + rng.below(ROUND_PLACES_MAX - 1) {
        let count = if rng.chance(1, 2) { 1 } else { large };
        places.push((at * 8, count * 8));
        at += count;
    }
    places
}

/// Draws the zone for groups that are written as a whole: room for 4 to 256 groups.
pub(super) fn draw_groups(rng: &mut SimRng, logical_bytes: u64) -> Zone {
    let len = ((4 << rng.below(7)) * GROUP_BYTES).min(logical_bytes / GROUP_BYTES * GROUP_BYTES);
    Zone { start: rng.below((logical_bytes - len) / GROUP_BYTES + 1) * GROUP_BYTES, len }
}
