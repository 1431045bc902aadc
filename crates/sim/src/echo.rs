//! A host that reads what was written last, over and over: out of open packs, sealed ones, and ones that the
//! medium did not take and that wait to be written elsewhere.

use std::sync::Arc;

use media::SimRng;

use crate::executor::yield_now;
use crate::requests::read_range;
use crate::{Subject, World};

/// Reads for each operation of a client.
const READS_AN_OPERATION: u32 = 48;
/// Most sectors that are read at once.
const SECTORS_MAX: u64 = 8;
/// Most turns between two reads.
const PAUSE_MAX: u64 = 4;

/// Reads parts of the newest writes until the clients are done.
pub(crate) async fn echo<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    for _ in 0..world.config.operations * READS_AN_OPERATION {
        if world.is_stopped() {
            return;
        }
        if let Some((first, count)) = world.draw_newest(&mut rng) {
            let sector = u64::from(world.config.sector_bytes) / 512;
            let from = rng.below(count) / sector * sector;
            let len = (count - from).min(SECTORS_MAX);
            read_range(&world, &mut rng, first + from, len).await;
        }
        for _ in 0..1 + rng.below(PAUSE_MAX) {
            yield_now().await;
        }
    }
}
