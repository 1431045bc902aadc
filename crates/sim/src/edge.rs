//! A host that goes to the end of the drive: the last blocks, those after the former end of a grown drive,
//! and those beyond the end.

use media::SimRng;

use crate::content::SECTOR_BYTES;
use crate::extents::ask_range;
use crate::oracle::Kind;
use crate::requests::{read_range, write_once, zero_once};
use crate::{Error, Subject, World};

/// Largest distance from the end, in sectors: two to this power.
const REACH_BITS: u64 = 9;

/// Sends one request near the end.
pub(crate) async fn touch_end<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    if !S::HAS_SPACE {
        return;
    }
    let sector = u64::from(world.config.sector_bytes) / SECTOR_BYTES as u64;
    let end = world.capacity_bytes() / SECTOR_BYTES as u64;
    let reach = (1 + rng.skewed(REACH_BITS)).next_multiple_of(sector);
    let first = match world.config.capacity_bytes() / SECTOR_BYTES as u64 {
        old if old < end && rng.chance(1, 2) => old - rng.below(reach) / sector * sector,
        _ => end - reach,
    };
    // Mostly up to the end, if it is in reach.
    let count = if rng.chance(2, 3) { reach } else { (1 + rng.below(reach)).next_multiple_of(sector) };
    let count = count.min(end - first);
    world.count(if first + count == end { "edge: last block of the drive" } else { "edge: close to an end" });
    if world.capacity_bytes() > world.config.capacity_bytes() {
        world.count("edge: of a drive that has grown");
    }
    match rng.below(10) {
        0..4 => {
            let (filler, fua) = (world.config.draw_filler(rng), rng.chance(1, 8));
            write_once(world, rng, first, count, filler, fua).await;
        }
        4 => zero_once(world, rng, Kind::Trim, first, count).await,
        5 => zero_once(world, rng, Kind::Zeroes, first, count).await,
        6 => ask_range(world, rng, first, count).await,
        7 => beyond(world, end, sector).await,
        _ => read_range(world, rng, first, count).await,
    }
}

/// Checks that requests beyond the end are refused. (Not with a server, which returns other errors, nor on a
/// drive that grows, which may have the range by then.)
async fn beyond<S: Subject>(world: &World<S>, end: u64, sector: u64) {
    if world.config.is_served() || world.config.backing_bytes > world.config.physical_bytes {
        return;
    }
    world.count("edge: beyond the end");
    let (offset, len) = ((end - sector) * SECTOR_BYTES as u64, 2 * sector * SECTOR_BYTES as u64);
    let mut data = vec![0; len as usize];
    let read = world.subject.read(offset, &mut data).await;
    let wrote = world.subject.write(offset, &data, false).await;
    let trimmed = world.subject.trim(offset, len, false).await;
    for (what, result) in [("read", read), ("write", wrote), ("trim", trimmed)] {
        if !matches!(result, Err(Error::Invalid(_) | Error::ReadOnly(_))) {
            world.fail(format!("a {what} across the end of the drive: {result:?}"));
        }
    }
}
