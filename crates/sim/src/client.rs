//! Requests of the hosts of a drive, and the background work of a server.

use std::sync::Arc;

use drive::Error;
use media::SimRng;

use crate::content::{self, Filler, SECTOR_BYTES};
use crate::edge::touch_end;
use crate::executor::yield_now;
use crate::extents::ask;
use crate::impatient::Impatient;
use crate::oracle::Kind;
use crate::{Style, Subject, World};

/// A drive with less data than this share of its size has no excuse for being out of space.
const NEARLY_EMPTY_PERCENT: u64 = 20;

/// Largest trim or zeroing, in bytes.
const ZERO_BYTES_MAX: u64 = 8 << 20;
const SPARSE_ZERO_BYTES_MAX: u64 = 2 << 30;

/// Maintenance is given up this many times as often as requests: it is rarer, and has more points to
/// interrupt.
const MAINTENANCE_DROPS: u64 = 4;

/// Name of the counter of writes to a full drive.
const FULL_WRITE: &str = "op: write, drive full";
/// Most such writes in a seed, except one in sixteen: the drive first compresses each as well as it can,
/// possibly several times.
const FULL_WRITES_MAX: u64 = 64;
/// Largest such write, except one in sixteen.
const FULL_WRITE_SECTORS_MAX: u64 = (32 << 10) / SECTOR_BYTES as u64;

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

/// Background work, each kind in proportion to its number of entries.
const USUAL: [&str; 13] = [
    "maintain",
    "maintain",
    "maintain",
    "clean",
    "clean",
    "checkpoint",
    "settle",
    "settle",
    "train",
    "settle again",
    "free",
    "scrub",
    "budget",
];
/// The same for drives on which dictionaries are replaced often.
const LEARNING: [&str; 13] = [
    "maintain",
    "clean",
    "checkpoint",
    "settle",
    "settle",
    "lesson",
    "lesson",
    "train",
    "settle again",
    "settle again",
    "free",
    "scrub",
    "budget",
];
/// Map budgets that are set while a drive is in use.
const BUDGETS: [u64; 4] = [64 << 10, 96 << 10, 1 << 20, 16 << 20];
/// Steps of settling between two trainings of a lesson.
const LESSON_STEPS: usize = 8;

/// Trains dictionaries that replace each other, with data that needs each of them, until the first of them
/// must be removed. With single steps at random, that takes longer than a life.
async fn lesson<S: Subject>(world: &World<S>) -> Result<bool, Error> {
    let subject = &world.subject;
    for _ in 0..3 {
        let kept = subject.train().await?;
        world.count(if kept { "op: train, kept a dictionary" } else { "op: train, kept nothing" });
        let (mut unsettled, mut again) = (0, 0);
        for _ in 0..LESSON_STEPS {
            let (next, did) = subject.settle(unsettled, false).await?;
            unsettled = next;
            if did {
                world.count("op: settle, did something");
            }
            let (next, did) = subject.settle_again(again).await?;
            again = next;
            if did {
                world.count("op: settle again, did something");
            }
            if unsettled == 0 && again == 0 {
                break;
            }
        }
        subject.checkpoint().await?;
    }
    subject.free().await
}

/// The server's background: maintenance at some beats, until the last client has finished.
pub async fn maintenance<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    // Positions at which settling and scrubbing continue.
    let mut unsettled = 0;
    let mut again = 0;
    let mut unverified = 0;
    // On some drives dictionaries are replaced often, in all lives, because only segments of an earlier life
    // are certain to be sealed.
    let learning = world.config.is_learning();
    while !world.is_stopped() {
        world.next_beat().await;
        if !rng.chance(world.config.maintenance, 16) {
            continue;
        }
        world.set_maintaining(true);
        let names = if learning { LEARNING } else { USUAL };
        let name = match names[rng.index(names.len())] {
            "train" if !world.config.is_training() => "settle",
            name => name,
        };
        let old_only = rng.chance(1, 3);
        let budget = BUDGETS[rng.index(BUDGETS.len())];
        let work = async {
            match name {
                "maintain" => world.subject.maintain().await,
                "clean" => world.subject.clean().await,
                "train" => world.subject.train().await,
                "settle" => {
                    let (next, did) = world.subject.settle(unsettled, old_only).await?;
                    unsettled = next;
                    Ok(did)
                }
                "settle again" => {
                    let (next, did) = world.subject.settle_again(again).await?;
                    again = next;
                    Ok(did)
                }
                "free" => world.subject.free().await,
                "scrub" => {
                    let (next, did) = world.subject.scrub(unverified).await?;
                    unverified = next;
                    Ok(did)
                }
                "budget" => {
                    world.subject.set_map_budget(budget);
                    Ok(true)
                }
                "lesson" => lesson(&world).await,
                _ => world.subject.checkpoint().await.map(|()| true),
            }
        };
        // A lesson has many awaits.
        let drops = if learning { world.config.drops } else { MAINTENANCE_DROPS * world.config.drops };
        let result = perhaps(&world, &mut rng, drops, "op: maintenance given up", work).await;
        world.set_maintaining(false);
        world.trace(|| format!("{name}: {result:?}"));
        let Some(result) = result else { continue };
        match result {
            Ok(true) => world.count(match name {
                "maintain" => "op: maintain, did something",
                "clean" => "op: clean, did something",
                "settle" => "op: settle, did something",
                "scrub" => "op: scrub, verified something",
                "budget" => "op: another budget of the map",
                "train" => "op: train, kept a dictionary",
                "settle again" => "op: settle again, did something",
                "free" | "lesson" => "op: free, a dictionary was forgotten",
                _ => "op: checkpoint",
            }),
            Ok(false) if name == "train" => world.count("op: train, kept nothing"),
            Ok(false) => world.count("op: maintain, clean or settle, nothing to do"),
            // A full drive may have no space to move anything to.
            Err(Error::NoSpace) if name == "clean" => world.count("op: clean, no space"),
            Err(Error::NoSpace) if ["train", "free", "lesson"].contains(&name) => {
                world.count("op: train, no space")
            }
            Err(error) => world.judge(name, &error),
        }
    }
}

/// Runs `request`. In `drops` of 32 cases, it is given up if it takes a while; then it is counted as `name`,
/// and the result is `None`.
pub(crate) async fn perhaps<S: Subject, T>(
    world: &World<S>,
    rng: &mut SimRng,
    drops: u64,
    name: &'static str,
    request: impl Future<Output = T>,
) -> Option<T> {
    if !rng.chance(drops, 32) {
        return Some(request.await);
    }
    let answer = Impatient::new(request, rng).await;
    if answer.is_none() {
        world.count(name);
    }
    answer
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
            Err(error) => return world.judge("maintain", &error),
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
        Some(Err(error)) => world.judge("change of codec", &error),
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
        Some(Err(error)) => world.judge("growth", &error),
        None => {}
    }
}

/// Writes, and records the write in the oracle. Returns `None` if the write was given up, or replaced by a
/// trim on a full drive.
pub(crate) async fn write_once<S: Subject>(
    world: &World<S>,
    rng: &mut SimRng,
    first: u64,
    count: u64,
    filler: Filler,
    fua: bool,
) -> Option<Result<(), Error>> {
    if world.is_full() && world.count_of(FULL_WRITE) >= FULL_WRITES_MAX && !rng.chance(1, 16) {
        zero_once(world, rng, Kind::Trim, first, count).await;
        return None;
    }
    let mut count = count;
    if world.is_full() {
        world.count(FULL_WRITE);
        if !rng.chance(1, 16) {
            count = count.min(FULL_WRITE_SECTORS_MAX);
        }
    }
    let mut data = vec![0; count as usize * SECTOR_BYTES];
    let write = world.oracle.lock().begin_write(Kind::Write, first, count, filler);
    content::fill(&mut data, first, write, filler);
    let offset = first * SECTOR_BYTES as u64;
    world.trace(|| format!("write #{write}: {count} sectors at {first}, {filler:?}, fua {fua}"));
    let began = Began::now(world);
    let request = world.subject.write(offset, &data, fua);
    let result = perhaps(world, rng, world.config.drops, "op: write given up", request).await;
    conclude(world, "write", write, fua, &began, result.as_ref());
    world.count("op: write");
    world.count(filler.kind());
    if result == Some(Err(Error::NoSpace)) {
        world.count("outcome: write refused for space");
    }
    result
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

/// Trims or zeroes, and records it in the oracle.
pub(crate) async fn zero_once<S: Subject>(
    world: &World<S>,
    rng: &mut SimRng,
    kind: Kind,
    first: u64,
    count: u64,
) {
    let (fua, no_hole) = (rng.chance(1, 8), rng.chance(1, 2));
    let write = world.oracle.lock().begin_write(kind, first, count, Filler::Zero);
    world.trace(|| format!("{kind:?} #{write}: {count} sectors at {first}, fua {fua}, no_hole {no_hole}"));
    let (offset, len) = (first * SECTOR_BYTES as u64, count * SECTOR_BYTES as u64);
    let began = Began::now(world);
    let (name, result) = if kind == Kind::Trim {
        world.count("op: trim");
        let request = world.subject.trim(offset, len, fua);
        ("trim", perhaps(world, rng, world.config.drops, "op: trim given up", request).await)
    } else {
        world.count("op: write zeroes");
        let request = world.subject.write_zeroes(offset, len, no_hole, fua);
        ("write zeroes", perhaps(world, rng, world.config.drops, "op: write zeroes given up", request).await)
    };
    conclude(world, name, write, fua, &began, result.as_ref());
    world.set_full(world.is_full() && result == Some(Err(Error::NoSpace)));
    let whole_blocks = offset.is_multiple_of(4096) && len.is_multiple_of(4096);
    let excused = world.lacks_segments() || world.was_backing_full();
    if kind == Kind::Trim && whole_blocks && !excused && result == Some(Err(Error::NoSpace)) {
        world.fail(format!("a trim of whole blocks was refused for lack of space: #{write}"));
    }
}

/// State when a request began.
struct Began {
    poisoned: bool,
    bad_segments: u64,
}

impl Began {
    fn now<S: Subject>(world: &World<S>) -> Began {
        Began { poisoned: world.is_poisoned(), bad_segments: world.subject.bad_segments() }
    }
}

fn conclude<S: Subject>(
    world: &World<S>,
    name: &str,
    write: u32,
    fua: bool,
    began: &Began,
    result: Option<&Result<(), Error>>,
) {
    world.trace(|| format!("{name} #{write}: {result:?}"));
    let Some(result) = result else { return world.oracle.lock().drop_write(write) };
    match result {
        Ok(()) if began.poisoned => {
            world.fail(format!("{name} #{write} was acknowledged after a sync of the backing failed"));
        }
        Ok(()) => {
            let durable = fua || !world.config.write_cache;
            world.oracle.lock().acknowledge(write, durable);
        }
        // A server does not report the cause of ENOSPC.
        Err(Error::NoSpace) if world.config.is_served() && world.was_backing_full() => {
            world.oracle.lock().fail(write);
        }
        Err(Error::NoSpace) => {
            world.set_full(true);
            let lost_some = world.subject.bad_segments() > began.bad_segments;
            let mut oracle = world.oracle.lock();
            match (lost_some || world.lacks_segments()) && oracle.is_divided(write) {
                // The write may have run out of segments midway.
                true => oracle.fail(write),
                false => world.hold(oracle.refuse(write)),
            }
        }
        Err(error) => {
            world.oracle.lock().fail(write);
            world.judge(name, error);
        }
    }
}

pub(crate) async fn flush<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let began = world.oracle.lock().begin_flush();
    let poisoned = world.is_poisoned();
    world.trace(|| format!("flush at time {began}"));
    world.count(if world.is_full() { "op: flush, drive full" } else { "op: flush" });
    let result = perhaps(world, rng, world.config.drops, "op: flush given up", world.subject.flush()).await;
    world.trace(|| format!("flush of time {began}: {result:?}"));
    let Some(result) = result else { return };
    match result {
        Ok(()) if poisoned => world.fail("a flush succeeded after a sync of the backing failed".into()),
        Ok(()) => world.oracle.lock().end_flush(began),
        Err(error) => world.judge("flush", &error),
    }
}

pub(crate) async fn read<S: Subject>(world: &World<S>, rng: &mut SimRng) {
    let (first, count) = world.config.draw_range(rng);
    read_range(world, rng, first, count).await;
}

/// Reads, and checks the result against the oracle.
pub(crate) async fn read_range<S: Subject>(world: &World<S>, rng: &mut SimRng, first: u64, count: u64) {
    let mut data = vec![0xee; count as usize * SECTOR_BYTES];
    let reading = world.oracle.lock().begin_read(first, count);
    let request = world.subject.read(first * SECTOR_BYTES as u64, &mut data);
    let result = perhaps(world, rng, world.config.drops, "op: read given up", request).await;
    world.trace(|| format!("read {count} sectors at {first}: {result:?}"));
    world.count("op: read");
    let Some(result) = result else { return };
    match result {
        Ok(()) => {
            let result = world.oracle.lock().end_read(&reading, &data);
            world.hold(result);
        }
        Err(error) => world.judge("read", &error),
    }
}
