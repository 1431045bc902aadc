//! A host that asks for extents without reading them. Ranges reported as zeros must read as zeros.

use media::SimRng;

use crate::content::SECTOR_BYTES;
use crate::doing::Doing;
use crate::requests::perhaps;
use crate::{Subject, World};

/// Asks for the extents of a random range, and checks the reply against the oracle.
pub(crate) async fn ask<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let (first, count) = world.config.draw_range(rng);
    ask_range(world, rng, first, count).await;
}

/// Asks for the extents of these sectors.
pub(crate) async fn ask_range<S: Subject>(world: &World<S>, rng: &mut SimRng, first: u64, count: u64) {
    let (offset, len) = (first * SECTOR_BYTES as u64, count * SECTOR_BYTES as u64);
    let reading = world.oracle.lock().begin_read(first, count);
    let request = world.subject.extents(offset, len);
    let result = perhaps(world, rng, world.config.drops, "op: extents given up", request).await;
    world.trace(|| format!("extents of {count} sectors at {first}: {result:?}"));
    let runs = match result {
        None => return,
        Some(Err(error)) => return world.judge_at(Doing::Extents, (first, count), &error),
        Some(Ok(runs)) => runs,
    };
    let sum: u64 = runs.iter().map(|(len, _)| len).sum();
    if sum > len || (sum == 0 && S::HAS_SPACE) || runs.iter().any(|(len, _)| *len == 0) {
        return world.fail(format!("extents of {count} sectors at {first} are {runs:?}"));
    }
    let mut at = first;
    for (len, is_zero) in runs {
        let sectors = len / SECTOR_BYTES as u64;
        if is_zero {
            world.count("op: extents, zeros");
            let zeros = vec![0; len as usize];
            let shown = world.oracle.lock().end_read(&reading.part(at, sectors), &zeros);
            world.hold(shown);
        } else {
            world.count("op: extents, data");
        }
        at += sectors;
    }
}
