//! Single requests of a host, which are recorded in the oracle and whose replies it judges.

use drive::Zeroes;
use media::SimRng;

use crate::content::{self, Filler, SECTOR_BYTES};
use crate::doing::Doing;
use crate::impatient::Impatient;
use crate::oracle::Kind;
use crate::{Error, Subject, World};

/// Name of the counter of writes to a full drive.
const FULL_WRITE: &str = "op: write, drive full";
/// Most such writes in a seed, except one in sixteen: the drive first compresses each as well as it can,
/// possibly several times.
const FULL_WRITES_MAX: u64 = 64;
/// Largest such write, except one in sixteen.
const FULL_WRITE_SECTORS_MAX: u64 = (32 << 10) / SECTOR_BYTES as u64;

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
    world.settle_lost();
    let write = world.oracle.lock().begin_write(Kind::Write, first, count, filler);
    content::fill(&mut data, first, write, filler);
    let offset = first * SECTOR_BYTES as u64;
    world.trace(|| format!("write #{write}: {count} sectors at {first}, {filler:?}, fua {fua}"));
    let began = Began::now(world, (first, count));
    let request = world.subject.write(offset, &data, fua);
    let result = perhaps(world, rng, world.config.drops, "op: write given up", request).await;
    conclude(world, Doing::Write, write, fua, &began, result.as_ref());
    world.count("op: write");
    world.count(filler.kind());
    match result {
        Some(Ok(())) => world.note_written(first, count),
        Some(Err(Error::NoSpace)) => world.count("outcome: write refused for space"),
        _ => {}
    }
    result
}

/// Trims or zeroes, and records it in the oracle.
pub(crate) async fn zero_once<S: Subject>(
    world: &World<S>,
    rng: &mut SimRng,
    kind: Kind,
    first: u64,
    count: u64,
) {
    let (fua, unmap) = (rng.chance(1, 8), !rng.chance(1, 2));
    world.settle_lost();
    let write = world.oracle.lock().begin_write(kind, first, count, Filler::Zero);
    world.trace(|| format!("{kind:?} #{write}: {count} sectors at {first}, fua {fua}, unmap {unmap}"));
    let (offset, len) = (first * SECTOR_BYTES as u64, count * SECTOR_BYTES as u64);
    let began = Began::now(world, (first, count));
    let (name, result) = if kind == Kind::Trim {
        world.count("op: trim");
        let request = world.subject.trim(offset, len, fua);
        (Doing::Trim, perhaps(world, rng, world.config.drops, "op: trim given up", request).await)
    } else {
        world.count("op: write zeroes");
        let request = world.subject.write_zeroes(offset, len, Zeroes { unmap, fua });
        (
            Doing::WriteZeroes,
            perhaps(world, rng, world.config.drops, "op: write zeroes given up", request).await,
        )
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
    /// What it is for: first sector and number of sectors.
    sectors: (u64, u64),
}

impl Began {
    fn now<S: Subject>(world: &World<S>, sectors: (u64, u64)) -> Began {
        Began { poisoned: world.is_poisoned(), bad_segments: world.subject.bad_segments(), sectors }
    }
}

fn conclude<S: Subject>(
    world: &World<S>,
    name: Doing,
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
            let may_be_divided = lost_some || world.lacks_segments();
            let mut oracle = world.oracle.lock();
            match may_be_divided && oracle.is_divided(write) {
                // The write may have run out of segments midway.
                true => oracle.fail(write),
                false => world.hold(oracle.refuse(write)),
            }
        }
        Err(error) => {
            world.oracle.lock().fail(write);
            if *error == Error::ConnectionLost {
                world.lose(write);
            }
            world.judge_at(name, began.sectors, error);
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
        Err(error) => world.judge(Doing::Flush, &error),
    }
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
        Err(error) => world.judge_at(Doing::Read, (first, count), &error),
    }
}
