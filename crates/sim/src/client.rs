//! The hosts of a drive: a client performs one operation after the other.

use std::sync::Arc;

use layout::ParityForm;
use media::SimRng;

use crate::content::SECTOR_BYTES;
use crate::doing::Doing;
use crate::edge::touch_end;
use crate::executor::yield_now;
use crate::extents::ask;
use crate::oracle::Kind;
use crate::requests::{flush, perhaps, read_range, write_once, zero_once};
use crate::{Error, Style, Subject, World};

/// A drive with less data than this share of its size has no excuse for being out of space.
const NEARLY_EMPTY_PERCENT: u64 = 20;

/// Largest trim or zeroing, in bytes.
const ZERO_BYTES_MAX: u64 = 8 << 20;
const SPARSE_ZERO_BYTES_MAX: u64 = 2 << 30;

/// Rounds of maintenance that must make space on a drive that is nearly empty.
const MAINTENANCE_ROUNDS_MAX: u32 = 64;

/// A host: performs one operation after the other.
pub async fn client<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    for _ in 0..world.config.operations {
        if world.is_stopped() {
            break;
        }
        match rng.below(100) {
            0..48 => {
                let fua = rng.chance(1, 8);
                write(&world, &mut rng, fua).await;
            }
            48..72 => read(&world, &mut rng).await,
            72..79 => zero(&world, &mut rng, Kind::Trim).await,
            79..86 => zero(&world, &mut rng, Kind::Zeroes).await,
            92 | 93 if world.config.changes_parity => change_parity(&world, &mut rng).await,
            86..94 => flush(&world, &mut rng).await,
            94..96 if world.config.backing_bytes > world.config.physical_bytes => {
                grow(&world, &mut rng).await
            }
            96 if world.config.changes_codec() => change_codec(&world, &mut rng).await,
            97 => ask(&world, &mut rng).await,
            98 => touch_end(&world, &mut rng).await,
            _ => yield_now().await,
        }
        world.made_progress();
    }
    world.leave();
}

pub(crate) async fn write<S: Subject>(world: &World<S>, rng: &mut SimRng, fua: bool) {
    let (first, count) = world.config.draw_range(rng);
    let filler = world.config.draw_filler(rng);
    if write_once(world, rng, first, count, filler, fua).await != Some(Err(Error::NoSpace)) {
        return;
    }
    let nearly_empty = world.config.physical_bytes * NEARLY_EMPTY_PERCENT / 100;
    // If the map may be most of what is stored, the amount of data is not meaningful.
    let no_telling = world.config.style == Style::Sparse
        || world.config.trouble.faults.full_pages.is_some()
        || world.config.trouble.full_on_overwrite_ppm > 0
        || world.lacks_segments();
    let live = || world.oracle.lock().live_bytes_max() + world.annex_bytes;
    if no_telling || live() > nearly_empty {
        return;
    }
    for _ in 0..MAINTENANCE_ROUNDS_MAX {
        match world.subject.maintain().await {
            Ok(true) => world.made_progress(),
            Ok(false) => break,
            Err(error) => return world.judge(Doing::Maintain, &error),
        }
    }
    let empty = live() <= nearly_empty;
    if write_once(world, rng, first, count, filler, fua).await == Some(Err(Error::NoSpace)) && empty {
        world.fail(format!("no space for {count} sectors on a drive that is over 80 % empty"));
    }
}

/// Changes the codec of the drive.
pub(crate) async fn change_codec<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let policy = world.config.draw_other_codec(rng);
    let work = world.subject.set_codec(policy);
    let result = perhaps(world, rng, world.config.drops, "op: change of codec given up", work).await;
    world.trace(|| format!("codec {policy}: {result:?}"));
    match result {
        Some(Ok(())) => world.count("op: change of codec"),
        Some(Err(error)) => world.judge(Doing::ChangeOfCodec, &error),
        None => {}
    }
}

/// Changes what segments set apart for parity. A drive that holds too much for the other form refuses.
pub(crate) async fn change_parity<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let form = ParityForm::ALL[rng.index(ParityForm::ALL.len())];
    let work = world.subject.set_parity(form);
    let result = perhaps(world, rng, world.config.drops, "op: change of parity given up", work).await;
    world.trace(|| format!("parity {form}: {result:?}"));
    match result {
        Some(Ok(())) => world.count("op: change of parity"),
        Some(Err(Error::Invalid(why))) if why.contains("leaves room for") => {
            world.count("op: change of parity, refused");
        }
        Some(Err(error)) => world.judge(Doing::ChangeOfParity, &error),
        None => {}
    }
}

/// Grows the drive a part of the way to the end of its backing. The range that clients use stays as the seed
/// defines it.
async fn grow<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let config = &world.config;
    let physical = config.physical_bytes + rng.below(config.backing_bytes - config.physical_bytes + 1);
    let logical = config.capacity_bytes() + 4096 * rng.below(1 << 20);
    let work = world.subject.grow(physical, logical);
    let result = perhaps(world, rng, config.drops, "op: growth given up", work).await;
    world.trace(|| format!("grow to {physical} and {logical}: {result:?}"));
    match result {
        Some(Ok(())) => {
            world.grown_to(logical);
            world.count("op: growth");
        }
        // The drive is already larger.
        Some(Err(Error::Invalid(_))) => world.count("op: growth, refused"),
        Some(Err(error)) => world.judge(Doing::Growth, &error),
        None => {}
    }
}

pub(crate) async fn zero<S: Subject>(world: &World<S>, rng: &mut SimRng, kind: Kind) {
    let (first, mut count) = world.config.draw_range(rng);
    let sector = u64::from(world.config.sector_bytes) / SECTOR_BYTES as u64;
    if rng.chance(1, 4) {
        let most = (world.config.logical_bytes / SECTOR_BYTES as u64 - first) / sector;
        let wish = if world.config.style == Style::Sparse { SPARSE_ZERO_BYTES_MAX } else { ZERO_BYTES_MAX };
        let wish = wish / SECTOR_BYTES as u64 / sector;
        count = (1 + rng.below(wish).min(most - 1)) * sector;
    }
    zero_once(world, rng, kind, first, count).await;
}

pub(crate) async fn read<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let (first, count) = world.config.draw_range(rng);
    read_range(world, rng, first, count).await;
}
