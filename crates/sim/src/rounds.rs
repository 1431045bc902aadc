//! Hosts that write the same places in the same order, with the same lengths, repeatedly, while other slow
//! hosts change parts of blocks.
//!
//! The log then consists of equal packs, it has few segments, and a record soon takes the place of an earlier
//! record of the same block. A place that looks the same as when it was read may then hold something else.

use std::sync::Arc;

use media::SimRng;

use crate::content::{Filler, SECTOR_BYTES};
use crate::executor::yield_now;
use crate::requests::{flush, read_range, write_once};
use crate::{Subject, World};

const BLOCK_SECTORS: u64 = 4096 / SECTOR_BYTES as u64;
/// Places that a painter writes for each operation of another client.
const PLACES_AN_OPERATION: u32 = 8;

/// Writes all places, in rounds.
pub async fn painter<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    let places = world.config.rounds.clone();
    let fua = rng.chance(1, 2);
    for number in 0..(world.config.operations * PLACES_AN_OPERATION) as usize {
        if world.is_stopped() {
            break;
        }
        let (first, count) = places[number % places.len()];
        write_once(&world, &mut rng, first, count, Filler::Random, fua).await;
        if !fua && rng.chance(1, 64) {
            flush(&world, &mut rng).await;
        }
        world.made_progress();
    }
    world.leave();
}

/// Changes parts of blocks, and reads each whole block afterwards.
pub async fn mender<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    let places = world.config.rounds.clone();
    for _ in 0..world.config.operations {
        if world.is_stopped() {
            break;
        }
        let (first, count) = places[rng.index(places.len())];
        let block = first + rng.below(count / BLOCK_SECTORS) * BLOCK_SECTORS;
        let from = rng.below(BLOCK_SECTORS);
        let most = BLOCK_SECTORS - from;
        world.count("rounds: part of a block changed");
        let len = 1 + rng.below(most.min(BLOCK_SECTORS - 1));
        write_once(&world, &mut rng, block + from, len, Filler::Random, false).await;
        read_range(&world, &mut rng, block, BLOCK_SECTORS).await;
        if rng.chance(1, 16) {
            yield_now().await;
        }
        world.made_progress();
    }
    world.leave();
}
