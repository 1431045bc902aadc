//! Hosts that know no sectors: neighbours in the same blocks, whose ranges begin and end at any byte.
//!
//! Each byte belongs to one host of a life. What it may be: see [`oracle::bytes`](crate::oracle).

use std::ops::Range;
use std::sync::Arc;

use drive::Zeroes;
use media::SimRng;

use crate::doing::Doing;
use crate::oracle::bytes::{BYTE_HOSTS, SHARED_BYTES, owners_of};
use crate::requests::{flush, perhaps};
use crate::{Error, Subject, World};

/// Longest range of a host that owns the rest of its neighbourhood, as two to this power.
const LEN_BITS: u64 = 12;

/// Draws the ranges of the hosts in a life.
pub(crate) fn draw_owners(rng: &mut SimRng) -> [Range<usize>; BYTE_HOSTS] {
    let mut cuts: Vec<usize> = (1..BYTE_HOSTS).map(|_| 1 + rng.index(SHARED_BYTES - 1)).collect();
    // Most often within one block, so that all hosts change it.
    if rng.chance(3, 4) {
        cuts.iter_mut().for_each(|cut| *cut = 1 + *cut % 4095);
    }
    cuts.sort_unstable();
    owners_of(&cuts)
}

/// The host with this number, of the bytes `own`.
pub(crate) async fn byte_host<S: Subject>(
    world: Arc<World<S>>,
    mut rng: SimRng,
    host: usize,
    own: Range<usize>,
) {
    if !own.is_empty() {
        read(&world, &mut rng, host, own.clone()).await;
        for _ in 0..world.config.operations {
            if world.is_stopped() {
                break;
            }
            change_or_read(&world, &mut rng, host, &own).await;
            world.made_progress();
        }
    }
    world.leave();
}

async fn change_or_read<S: Subject>(world: &World<S>, rng: &mut SimRng, host: usize, own: &Range<usize>) {
    let at = own.start + rng.index(own.len());
    let len = (1 + rng.skewed(LEN_BITS) as usize).min(own.end - at);
    let offset = world.config.shared_offset() + at as u64;
    let fua = rng.chance(1, 8);
    let drops = world.config.drops;
    let begin = |values| world.oracle.lock().begin_bytes(host, at, values);
    let (name, result) = match rng.below(16) {
        0..8 => {
            let values = draw_values(rng, len);
            begin(values.clone());
            let request = world.subject.write(offset, &values, fua);
            (Doing::WriteBytes, perhaps(world, rng, drops, "op: write of bytes given up", request).await)
        }
        8 => {
            begin(vec![0; len]);
            let request = world.subject.trim(offset, len as u64, fua);
            (Doing::TrimBytes, perhaps(world, rng, drops, "op: trim of bytes given up", request).await)
        }
        9 => {
            begin(vec![0; len]);
            let request = world.subject.write_zeroes(offset, len as u64, Zeroes { unmap: !fua, fua });
            (Doing::ZeroBytes, perhaps(world, rng, drops, "op: zeroing of bytes given up", request).await)
        }
        10 => return flush(world, rng).await,
        _ => return read(world, rng, host, at..at + len).await,
    };
    world.trace(|| format!("{name}: {len} at {at}, fua {fua}: {result:?}"));
    world.count("op: change of bytes");
    match result {
        Some(Ok(())) => world.oracle.lock().acknowledge_bytes(host, fua || !world.config.write_cache),
        Some(Err(Error::NoSpace)) => {
            world.count("outcome: change of bytes refused for space");
            world.oracle.lock().refuse_bytes(host);
            world.set_full(true);
        }
        Some(Err(error)) => world.judge_at(name, world.config.shared_sectors(), &error),
        None => {}
    }
}

/// Draws what is written: no zeros, and in half of the cases something that compresses.
fn draw_values(rng: &mut SimRng, len: usize) -> Vec<u8> {
    let mut draw = || 1 + rng.below(255) as u8;
    let first = draw();
    if first.is_multiple_of(2) { vec![first; len] } else { (0..len).map(|_| draw()).collect() }
}

async fn read<S: Subject>(world: &World<S>, rng: &mut SimRng, host: usize, range: Range<usize>) {
    let mut values = vec![0xee; range.len()];
    let request = world.subject.read(world.config.shared_offset() + range.start as u64, &mut values);
    let result = perhaps(world, rng, world.config.drops, "op: read given up", request).await;
    world.count("op: read of bytes");
    match result {
        Some(Ok(())) => {
            let result = world.oracle.lock().read_bytes(host, range.start, &values);
            world.hold(result);
        }
        Some(Err(error)) => world.judge_at(Doing::ReadBytes, world.config.shared_sectors(), &error),
        None => {}
    }
}
