//! A host that reads the same few blocks over and over, while others change them, cleaning and settling move
//! them, and segments are filled again: what the read cache holds must never be what was there before.

use std::sync::Arc;

use media::SimRng;

use crate::content::SECTOR_BYTES;
use crate::executor::yield_now;
use crate::requests::read_range;
use crate::{Style, Subject, World};

const BLOCK_SECTORS: u64 = 4096 / SECTOR_BYTES as u64;
/// Blocks that are hot at a time.
const HOT_MAX: usize = 12;
/// The same where their frames are to be cut: more than the drive keeps or remembers.
const HOT_TO_CUT_MAX: usize = 48;
/// Reads for each operation of a client.
const READS_AN_OPERATION: u32 = 16;

/// Reads hot blocks until the clients are done.
pub async fn reader<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    let hot_max = if world.config.cuts_hot { HOT_TO_CUT_MAX } else { HOT_MAX };
    let mut hot = Vec::new();
    for _ in 0..world.config.operations * READS_AN_OPERATION {
        if world.is_stopped() {
            return;
        }
        if hot.len() < hot_max {
            hot.push(draw_block(&world, &mut rng));
        } else if rng.chance(1, 32) {
            let at = rng.index(hot_max);
            hot[at] = draw_block(&world, &mut rng);
        }
        let first = hot[rng.index(hot.len())];
        let (from, count) = match rng.below(8) {
            0 if world.config.sector_bytes < 4096 => {
                let from = rng.below(BLOCK_SECTORS);
                (from, 1 + rng.below(BLOCK_SECTORS - from))
            }
            _ => (0, BLOCK_SECTORS),
        };
        read_range(&world, &mut rng, first + from, count).await;
        for _ in 0..rng.below(16) {
            yield_now().await;
        }
    }
}

/// Draws the first sector of a block that clients write.
fn draw_block<S: Subject>(world: &World<S>, rng: &mut SimRng) -> u64 {
    let config = &world.config;
    match config.style {
        Style::Rounds => {
            let (first, count) = config.rounds[rng.index(config.rounds.len())];
            first + rng.below(count / BLOCK_SECTORS) * BLOCK_SECTORS
        }
        Style::Frames => config.draw_group(rng) + rng.below(8) * BLOCK_SECTORS,
        _ => config.draw_range(rng).0 / BLOCK_SECTORS * BLOCK_SECTORS,
    }
}
