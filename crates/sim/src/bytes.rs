//! Hosts that know no sectors: neighbours in the same blocks, whose ranges begin and end at any byte.
//!
//! Each byte belongs to one host of a life. Whatever the others do to the rest of its block at the same time, it has the
//! value that its host wrote last. Where the outcome is open (a request that failed or was given up, a crash before a
//! flush), it has one of the values that are possible.

use std::ops::Range;
use std::sync::Arc;

use drive::Error;
use media::SimRng;

use crate::requests::perhaps;
use crate::{Subject, World};

/// Bytes of the hosts: two blocks.
pub(crate) const SHARED_BYTES: usize = 8192;
/// Number of hosts.
pub(crate) const BYTE_HOSTS: usize = 3;
/// Longest range of a host that owns the rest of its neighbourhood, as two to this power.
const LEN_BITS: u64 = 12;

/// Values of a byte. Empty: any.
type Values = Vec<u8>;

/// What the bytes may be.
#[derive(Clone)]
pub struct Bytes {
    /// Now.
    now: Vec<Values>,
    /// After a crash.
    durable: Vec<Values>,
}

impl Bytes {
    pub(crate) fn new() -> Bytes {
        Bytes { now: vec![vec![0]; SHARED_BYTES], durable: vec![vec![0]; SHARED_BYTES] }
    }

    /// The drive was opened again, after a crash or a proper end.
    pub(crate) fn restart(&mut self, is_crashed: bool) {
        match is_crashed {
            true => self.now = self.durable.clone(),
            false => self.durable = self.now.clone(),
        }
    }

    /// The drive was wiped, perhaps in part.
    pub(crate) fn forget(&mut self) {
        self.now.iter_mut().chain(&mut self.durable).for_each(Vec::clear);
    }

    /// Checks what was read of all bytes after a restart: that stays. Returns the first byte that it cannot be.
    pub(crate) fn shown(&mut self, values: &[u8]) -> Option<String> {
        let wrong = self.observe(0, values);
        self.durable.clone_from(&self.now);
        wrong
    }

    fn begin(&mut self, at: usize, values: &[u8]) {
        for (at, value) in (at..).zip(values) {
            for possible in [&mut self.now[at], &mut self.durable[at]] {
                if !possible.is_empty() && !possible.contains(value) {
                    possible.push(*value);
                }
            }
        }
    }

    fn acknowledge(&mut self, at: usize, values: &[u8], is_durable: bool) {
        for (at, value) in (at..).zip(values) {
            self.now[at] = vec![*value];
            if is_durable {
                self.durable[at] = vec![*value];
            }
        }
    }

    fn flushed(&mut self, own: &Range<usize>) {
        self.durable[own.clone()].clone_from_slice(&self.now[own.clone()]);
    }

    /// Checks what was read. Returns the first byte that it cannot be.
    fn observe(&mut self, at: usize, values: &[u8]) -> Option<String> {
        for (at, value) in (at..).zip(values) {
            let possible = &mut self.now[at];
            if !possible.is_empty() && !possible.contains(value) {
                return Some(format!(
                    "byte {at} of the shared blocks is {value}, expected one of {possible:?}"
                ));
            }
            *possible = vec![*value];
        }
        None
    }
}

/// Draws the ranges of the hosts in a life.
pub(crate) fn draw_owners(rng: &mut SimRng) -> Vec<Range<usize>> {
    let mut cuts: Vec<usize> = (1..BYTE_HOSTS).map(|_| 1 + rng.index(SHARED_BYTES - 1)).collect();
    // Most often within one block, so that all hosts change it.
    if rng.chance(3, 4) {
        cuts.iter_mut().for_each(|cut| *cut = 1 + *cut % 4095);
    }
    cuts.sort_unstable();
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([SHARED_BYTES]);
    starts.zip(ends).map(|(start, end)| start..end).collect()
}

/// A host of the bytes `own`.
pub(crate) async fn byte_host<S: Subject>(world: Arc<World<S>>, mut rng: SimRng, own: Range<usize>) {
    if !own.is_empty() {
        read(&world, &mut rng, own.clone()).await;
        for _ in 0..world.config.operations {
            if world.is_stopped() {
                break;
            }
            change_or_read(&world, &mut rng, &own).await;
            world.made_progress();
        }
    }
    world.leave();
}

async fn change_or_read<S: Subject>(world: &World<S>, rng: &mut SimRng, own: &Range<usize>) {
    let at = own.start + rng.index(own.len());
    let len = (1 + rng.skewed(LEN_BITS) as usize).min(own.end - at);
    let offset = world.config.shared_offset() + at as u64;
    let fua = rng.chance(1, 8);
    let drops = world.config.drops;
    let (name, values, result) = match rng.below(16) {
        0..8 => {
            let values: Vec<u8> = (0..len).map(|_| 1 + rng.below(255) as u8).collect();
            world.bytes.lock().begin(at, &values);
            let request = world.subject.write(offset, &values, fua);
            let result = perhaps(world, rng, drops, "op: write of bytes given up", request).await;
            ("write of bytes", values, result)
        }
        8 => {
            let values = vec![0; len];
            world.bytes.lock().begin(at, &values);
            let request = world.subject.trim(offset, len as u64, fua);
            ("trim of bytes", values, perhaps(world, rng, drops, "op: trim of bytes given up", request).await)
        }
        9 => {
            let values = vec![0; len];
            world.bytes.lock().begin(at, &values);
            let request = world.subject.write_zeroes(offset, len as u64, fua, fua);
            (
                "zeroing of bytes",
                values,
                perhaps(world, rng, drops, "op: zeroing of bytes given up", request).await,
            )
        }
        10 => {
            let result = perhaps(world, rng, drops, "op: flush given up", world.subject.flush()).await;
            match result {
                Some(Ok(())) => world.bytes.lock().flushed(own),
                Some(Err(error)) => world.judge("flush", &error),
                None => {}
            }
            return;
        }
        _ => return read(world, rng, at..at + len).await,
    };
    world.trace(|| format!("{name}: {len} at {at}, fua {fua}: {result:?}"));
    world.count("op: change of bytes");
    match result {
        Some(Ok(())) => world.bytes.lock().acknowledge(at, &values, fua || !world.config.write_cache),
        Some(Err(Error::NoSpace)) => world.set_full(true),
        Some(Err(error)) => world.judge(name, &error),
        None => {}
    }
}

async fn read<S: Subject>(world: &World<S>, rng: &mut SimRng, range: Range<usize>) {
    let mut values = vec![0xee; range.len()];
    let request = world.subject.read(world.config.shared_offset() + range.start as u64, &mut values);
    let result = perhaps(world, rng, world.config.drops, "op: read given up", request).await;
    world.count("op: read of bytes");
    match result {
        Some(Ok(())) => {
            let wrong = world.bytes.lock().observe(range.start, &values);
            if let Some(wrong) = wrong {
                world.fail(wrong);
            }
        }
        Some(Err(error)) => world.judge("read of bytes", &error),
        None => {}
    }
}
