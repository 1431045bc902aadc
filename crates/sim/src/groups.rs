//! A host that writes aligned groups of eight blocks as a whole and then discards single blocks of them. This
//! makes frames with any combination of dead blocks, in segments where everything else dies.

use std::sync::Arc;

use media::SimRng;

use crate::client::change_codec;
use crate::config::GROUP_BYTES;
use crate::content::{Filler, SECTOR_BYTES};
use crate::executor::yield_now;
use crate::oracle::{ATOMIC_BYTES_MAX, Kind};
use crate::requests::{flush, read_range, write_once, zero_once};
use crate::{Subject, World};

const GROUP_SECTORS: u64 = GROUP_BYTES / SECTOR_BYTES as u64;
const BLOCK_SECTORS: u64 = 4096 / SECTOR_BYTES as u64;
const GROUP_BLOCKS: u64 = GROUP_SECTORS / BLOCK_SECTORS;
/// Length of a trim on a full drive.
const ROOM_SECTORS: u64 = (4 << 20) / SECTOR_BYTES as u64;
const GROUPS_A_WRITE_MAX: u64 = ATOMIC_BYTES_MAX / GROUP_BYTES;

/// Performs one operation after the other.
pub async fn weaver<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    for _ in 0..world.config.operations {
        if world.is_stopped() {
            break;
        }
        if world.is_full() && rng.chance(3, 4) {
            give_room(&world, &mut rng).await;
        }
        match rng.below(100) {
            0..10 => weave(&world, &mut rng).await,
            10..30 => {
                let group = world.config.draw_group(&mut rng);
                unravel(&world, &mut rng, group).await;
            }
            30..80 => churn(&world, &mut rng).await,
            80..90 => {
                let group = world.config.draw_group(&mut rng);
                read_range(&world, &mut rng, group, GROUP_SECTORS).await;
            }
            90..96 => flush(&world, &mut rng).await,
            96 if world.config.changes_codec() => change_codec(&world, &mut rng).await,
            _ => yield_now().await,
        }
        world.made_progress();
    }
    world.leave();
}

/// Writes neighbouring groups as a whole.
async fn weave<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let first = world.config.draw_group(rng);
    let most = (world.config.logical_bytes / SECTOR_BYTES as u64 - first) / GROUP_SECTORS;
    let groups = (1 + rng.below(GROUPS_A_WRITE_MAX)).min(most);
    let filler = world.config.draw_filler_of_group(rng);
    let fua = rng.chance(1, 8);
    world.count("frames: groups written as a whole");
    write_once(world, rng, first, groups * GROUP_SECTORS, filler, fua).await;
    // The rest of these groups is all that is live in their segment, as soon as its other data dies.
    if rng.chance(1, 2) {
        for group in 0..groups {
            unravel(world, rng, first + group * GROUP_SECTORS).await;
        }
    }
}

/// Discards some blocks of a group: by trim, zeroes, or overwriting.
async fn unravel<S: Subject>(world: &World<S>, rng: &mut SimRng, first: u64) {
    let (name, mask) = draw_pattern(rng);
    world.count(name);
    let way = rng.below(5);
    let mut at = 0;
    while at < GROUP_BLOCKS {
        let run = u64::from((mask >> at).trailing_ones());
        if run > 0 {
            let (from, count) = (first + at * BLOCK_SECTORS, run * BLOCK_SECTORS);
            match way {
                0 | 1 => zero_once(world, rng, Kind::Trim, from, count).await,
                2 => zero_once(world, rng, Kind::Zeroes, from, count).await,
                _ => {
                    let filler = if rng.chance(3, 4) { Filler::Random } else { Filler::draw_for_frames(rng) };
                    let fua = rng.chance(1, 8);
                    write_once(world, rng, from, count, filler, fua).await;
                }
            }
        }
        at += run.max(1);
    }
}

/// Draws which of eight blocks to discard, one bit each.
fn draw_pattern(rng: &mut SimRng) -> (&'static str, u8) {
    match rng.below(8) {
        0 => ("frames: first blocks of a group taken away", 0xff >> (1 + rng.below(7))),
        1 | 2 => ("frames: first blocks of a group taken away", 0xff >> (1 + rng.below(4))),
        3 => ("frames: last blocks of a group taken away", 0xff << (1 + rng.below(7))),
        4 => ("frames: alternate blocks of a group taken away", if rng.chance(1, 2) { 0x55 } else { 0xaa }),
        5 => ("frames: all blocks of a group but one taken away", !(1 << rng.below(8))),
        _ => ("frames: some blocks of a group taken away", 1 + rng.below(254) as u8),
    }
}

/// Trims from a random group on. A full drive first compresses every write as well as it can, and a life that
/// consists of refused writes tests nothing else.
async fn give_room<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let first = world.config.draw_group(rng);
    let most = world.config.logical_bytes / SECTOR_BYTES as u64 - first;
    world.count("frames: room given on a full drive");
    zero_once(world, rng, Kind::Trim, first, most.min(ROOM_SECTORS)).await;
}

/// Writes to the most used places, so that the log wraps around.
async fn churn<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let (first, count) = world.config.draw_range(rng);
    let filler = world.config.draw_filler(rng);
    let fua = rng.chance(1, 16);
    write_once(world, rng, first, count, filler, fua).await;
}
