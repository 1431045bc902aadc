//! What the hosts of a drive do to it, and the background work a server would do.

use std::sync::Arc;

use drive::Error;
use media::SimRng;

use crate::content::{self, Filler, SECTOR_BYTES};
use crate::executor::yield_now;
use crate::oracle::Kind;
use crate::{Style, Subject, World};

/// A drive with less data than this share of its size has no excuse for being full.
const NEARLY_EMPTY_PERCENT: u64 = 20;

/// The largest trims and zeroings, in bytes.
const ZERO_BYTES_MAX: u64 = 8 << 20;
const SPARSE_ZERO_BYTES_MAX: u64 = 2 << 30;

/// Rounds of maintenance that must make room on a drive that is nearly empty.
const MAINTENANCE_ROUNDS_MAX: u32 = 64;

/// A host: one operation after another.
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
            86..94 => flush(&world).await,
            _ => yield_now().await,
        }
        world.made_progress();
    }
    world.leave();
}

/// The server's background: maintenance at some beats, until the last client has gone.
pub async fn maintenance<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    while !world.is_stopped() {
        world.next_beat().await;
        if !rng.chance(world.config.maintenance, 16) {
            continue;
        }
        world.set_maintaining(true);
        let (name, result) = match rng.below(8) {
            0..4 => ("maintain", world.subject.maintain().await),
            4..6 => ("clean", world.subject.clean().await),
            _ => ("checkpoint", world.subject.checkpoint().await.map(|()| true)),
        };
        world.set_maintaining(false);
        world.tell(|| format!("{name}: {result:?}"));
        match result {
            Ok(true) => world.count(match name {
                "maintain" => "op: maintain, did something",
                "clean" => "op: clean, did something",
                _ => "op: checkpoint",
            }),
            Ok(false) => world.count("op: maintain or clean, nothing to do"),
            // A full drive may have no room to move anything to.
            Err(Error::NoSpace) if name == "clean" => world.count("op: clean, no space"),
            Err(error) => world.judge(name, &error),
        }
    }
}

async fn write<S: Subject>(world: &World<S>, rng: &mut SimRng, fua: bool) {
    let (first, count) = world.config.draw_range(rng);
    let filler = world.config.draw_filler(rng);
    if write_once(world, first, count, filler, fua).await != Err(Error::NoSpace) {
        return;
    }
    world.count("outcome: write refused for space");
    let nearly_empty = world.config.physical_bytes * NEARLY_EMPTY_PERCENT / 100;
    // Where the map may be most of what is there, the data says little.
    let no_telling = world.config.style == Style::Sparse || world.config.faults.full_pages.is_some();
    if no_telling || world.oracle.lock().live_bytes_max() > nearly_empty {
        return;
    }
    for _ in 0..MAINTENANCE_ROUNDS_MAX {
        match world.subject.maintain().await {
            Ok(true) => world.made_progress(),
            Ok(false) => break,
            Err(error) => return world.judge("maintain", &error),
        }
    }
    let empty = world.oracle.lock().live_bytes_max() <= nearly_empty;
    if write_once(world, first, count, filler, fua).await == Err(Error::NoSpace) && empty {
        world.fail(format!("no space for {count} sectors on a drive that is over 80 % empty"));
    }
}

async fn write_once<S: Subject>(
    world: &World<S>,
    first: u64,
    count: u64,
    filler: Filler,
    fua: bool,
) -> Result<(), Error> {
    let mut data = vec![0; count as usize * SECTOR_BYTES];
    let write = world.oracle.lock().begin_write(Kind::Write, first, count, filler);
    content::fill(&mut data, first, write, filler);
    let offset = first * SECTOR_BYTES as u64;
    world.tell(|| format!("write #{write}: {count} sectors at {first}, {filler:?}, fua {fua}"));
    let poisoned = world.is_poisoned();
    let result = world.subject.write(offset, &data, fua).await;
    conclude(world, "write", write, fua, poisoned, &result);
    world.count("op: write");
    result
}

async fn zero<S: Subject>(world: &World<S>, rng: &mut SimRng, kind: Kind) {
    let (first, mut count) = world.config.draw_range(rng);
    let sector = u64::from(world.config.sector_bytes) / SECTOR_BYTES as u64;
    if rng.chance(1, 4) {
        let most = (world.config.logical_bytes / SECTOR_BYTES as u64 - first) / sector;
        let wish = if world.config.style == Style::Sparse { SPARSE_ZERO_BYTES_MAX } else { ZERO_BYTES_MAX };
        let wish = wish / SECTOR_BYTES as u64 / sector;
        count = (1 + rng.below(wish).min(most - 1)) * sector;
    }
    let (fua, no_hole) = (rng.chance(1, 8), rng.chance(1, 2));
    let write = world.oracle.lock().begin_write(kind, first, count, Filler::Zero);
    world.tell(|| format!("{kind:?} #{write}: {count} sectors at {first}, fua {fua}, no_hole {no_hole}"));
    let (offset, len) = (first * SECTOR_BYTES as u64, count * SECTOR_BYTES as u64);
    let poisoned = world.is_poisoned();
    let (name, result) = if kind == Kind::Trim {
        world.count("op: trim");
        ("trim", world.subject.trim(offset, len, fua).await)
    } else {
        world.count("op: write zeroes");
        ("write zeroes", world.subject.write_zeroes(offset, len, no_hole, fua).await)
    };
    conclude(world, name, write, fua, poisoned, &result);
    let whole_blocks = offset.is_multiple_of(4096) && len.is_multiple_of(4096);
    if kind == Kind::Trim && whole_blocks && result == Err(Error::NoSpace) {
        world.fail(format!("a trim of whole blocks was refused for lack of space: #{write}"));
    }
}

fn conclude<S: Subject>(
    world: &World<S>,
    name: &str,
    write: u32,
    fua: bool,
    poisoned: bool,
    result: &Result<(), Error>,
) {
    world.tell(|| format!("{name} #{write}: {result:?}"));
    match result {
        Ok(()) if poisoned => {
            world.fail(format!(
                "{name} #{write} was acknowledged after a write or sync of the backing failed"
            ));
        }
        Ok(()) => {
            let durable = fua || !world.config.write_cache;
            world.oracle.lock().acknowledge(write, durable);
        }
        Err(Error::NoSpace) => {
            let result = world.oracle.lock().refuse(write);
            world.hold(result);
        }
        Err(error) => {
            world.oracle.lock().fail(write);
            world.judge(name, error);
        }
    }
}

async fn flush<S: Subject>(world: &World<S>) {
    let began = world.oracle.lock().begin_flush();
    let poisoned = world.is_poisoned();
    world.tell(|| format!("flush at time {began}"));
    let result = world.subject.flush().await;
    world.tell(|| format!("flush of time {began}: {result:?}"));
    world.count("op: flush");
    match result {
        Ok(()) if poisoned => {
            world.fail("a flush succeeded after a write or sync of the backing failed".into())
        }
        Ok(()) => world.oracle.lock().end_flush(began),
        Err(error) => world.judge("flush", &error),
    }
}

async fn read<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let (first, count) = world.config.draw_range(rng);
    let mut data = vec![0xee; count as usize * SECTOR_BYTES];
    let reading = world.oracle.lock().begin_read(first, count);
    let result = world.subject.read(first * SECTOR_BYTES as u64, &mut data).await;
    world.tell(|| format!("read {count} sectors at {first}: {result:?}"));
    world.count("op: read");
    match result {
        Ok(()) => {
            let result = world.oracle.lock().end_read(&reading, &data);
            world.hold(result);
        }
        Err(error) => world.judge("read", &error),
    }
}
