//! A host that fills the drive until it refuses writes, and then uses the full drive.

use std::sync::Arc;

use media::SimRng;

use crate::client::{change_parity, read};
use crate::content::{Filler, SECTOR_BYTES};
use crate::executor::yield_now;
use crate::oracle::{ATOMIC_BYTES_MAX, Kind};
use crate::requests::{flush, write_once, zero_once};
use crate::{Error, Subject, World};

/// Refused writes in a row after which the drive counts as full.
const REFUSALS: u32 = 2;
const BLOCK_SECTORS: u64 = 4096 / SECTOR_BYTES as u64;
const WRITE_SECTORS_MAX: u64 = ATOMIC_BYTES_MAX / SECTOR_BYTES as u64;

/// First sector and number of sectors.
type Range = (u64, u64);

/// Performs one operation after the other, writes that fill the drive first.
pub async fn filler<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    let sectors = world.config.logical_bytes / SECTOR_BYTES as u64;
    let mut at = rng.below(sectors) / BLOCK_SECTORS * BLOCK_SECTORS;
    let mut written = Vec::new();
    let mut refusals = 0;
    for _ in 0..world.config.operations {
        if world.is_stopped() {
            break;
        }
        if refusals < REFUSALS {
            // Smaller writes after a refusal, so that the last space is filled too.
            let most = WRITE_SECTORS_MAX >> (refusals * 3);
            // Mostly large writes, to fill the drive with few of them: the operations on the full drive come
            // afterwards.
            let count =
                if rng.chance(3, 4) { most } else { (1 + rng.below(most / BLOCK_SECTORS)) * BLOCK_SECTORS };
            let range = (at, count.min(sectors - at));
            match put(&world, &mut rng, range).await {
                Some(Err(Error::NoSpace)) => {
                    refusals += 1;
                    if refusals == REFUSALS {
                        world.count("full: filled to refusal");
                    }
                }
                _ => {
                    written.push(range);
                    at = (at + range.1) % sectors;
                }
            }
        } else {
            refusals = use_full(&world, &mut rng, &mut written).await;
        }
        world.made_progress();
    }
    world.leave();
}

/// Performs an operation on a full drive. Returns the number of refusals to continue with: fewer if there may
/// be space now.
async fn use_full<S: Subject>(world: &World<S>, rng: &mut SimRng, written: &mut Vec<Range>) -> u32 {
    if written.is_empty() {
        // Filled in an earlier life, or by other clients.
        written.push(world.config.draw_range(rng));
    }
    let pick = rng.index(written.len());
    let range = written[pick];
    match rng.below(16) {
        0..6 => {
            let name = |is_taken| match (world.is_full(), is_taken) {
                (true, true) => "full: overwrite in place, taken",
                (true, false) => "full: overwrite in place, refused",
                (false, _) => "full: overwrite in place, room by then",
            };
            let part = part(world, rng, range);
            let result = put(world, rng, part).await;
            world.count(name(result == Some(Ok(()))));
        }
        6..9 => flush(world, rng).await,
        9 => read(world, rng).await,
        10 => zero_once(world, rng, Kind::Zeroes, range.0, range.1).await,
        11 => {
            let (first, count) = part(world, rng, range);
            zero_once(world, rng, Kind::Trim, first, count).await;
            world.count("full: trim of a part");
        }
        12 if world.config.changes_parity => change_parity(world, rng).await,
        12 => yield_now().await,
        13 => return 0,
        _ => {
            zero_once(world, rng, Kind::Trim, range.0, range.1).await;
            if rng.chance(1, 2) {
                flush(world, rng).await;
            }
            let result = put(world, rng, range).await;
            world.count(match result {
                Some(Ok(())) => "full: refill after a trim, taken",
                _ => "full: refill after a trim, refused",
            });
            if result == Some(Err(Error::NoSpace)) {
                written.swap_remove(pick);
            }
        }
    }
    REFUSALS
}

async fn put<S: Subject>(
    world: &World<S>,
    rng: &mut SimRng,
    (first, count): Range,
) -> Option<Result<(), Error>> {
    let fua = rng.chance(1, 16);
    write_once(world, rng, first, count, Filler::Random, fua).await
}

/// Draws a part of a range, mostly of whole blocks.
fn part<S: Subject>(world: &World<S>, rng: &mut SimRng, (first, count): Range) -> Range {
    let sector = u64::from(world.config.sector_bytes) / SECTOR_BYTES as u64;
    let align = if rng.chance(1, 4) { sector } else { BLOCK_SECTORS };
    let from = rng.below(count) / align * align;
    let len = (1 + rng.below(count - from)).next_multiple_of(align);
    (first + from, len.min(count - from))
}
