//! A client that rewrites a block of its own and reads it back at once.
//!
//! It finds a request that is executed once more after it was answered: the block then holds what it held
//! before. Clients that write a block once in a while do not find it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use media::SimRng;
use parking_lot::Mutex;
use rustix::io::Errno;
use sim::oracle::LifeEnd;

use super::device::{Buffer, Device, judge};
use super::verifier::Verifier;
use crate::error::{Error, Result};

/// Room for each of them, in bytes. Their blocks are smaller.
const ROOM_BYTES: u64 = 64 << 10;
/// Number of them.
const COUNT: u64 = 4;
/// Room for all of them, in bytes.
pub const REWRITTEN_BYTES: u64 = COUNT * ROOM_BYTES;
/// Longest time between two rewrites.
const PAUSE_US_MAX: u64 = 1000;

/// A block and what it may hold. Contents have numbers that rise; 0 is the empty block.
pub struct Rewriter {
    number: u64,
    offset: u64,
    bytes: usize,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Newest content that was begun to be written.
    begun: u64,
    /// Newest one that was acknowledged.
    acknowledged: u64,
    /// Newest one that a power cut must not take.
    durable: u64,
    /// Content at the last restart of the machine.
    base: u64,
    /// First content since then.
    first: u64,
}

impl State {
    /// Returns whether a block that must not be older than `floor` may hold this content.
    fn may_hold(&self, number: u64, floor: u64) -> bool {
        let is_known = number == self.base || number >= self.first;
        is_known && (floor..=self.begun).contains(&number)
    }
}

impl Rewriter {
    /// All of them, with their blocks from `offset` on.
    pub fn all(offset: u64) -> Vec<std::sync::Arc<Rewriter>> {
        let one = |number: u64| {
            let (offset, bytes) = (offset + number * ROOM_BYTES, 4096 << (number % 3));
            let state = Mutex::new(State { first: 1, ..State::default() });
            std::sync::Arc::new(Rewriter { number, offset, bytes, state })
        };
        (0..COUNT).map(one).collect()
    }

    /// Rewrites the block until it is told to stop, or the device fails.
    pub(super) fn run(&self, device: &Device, verifier: &Verifier, rng: &mut SimRng, progress: &AtomicU64) {
        let mut buffer = Buffer::new();
        while !verifier.is_stopped() && self.rewrite(device, verifier, rng, &mut buffer) {
            progress.fetch_add(1, Ordering::Relaxed);
            verifier.count(|counts| counts.rewrites += 1);
            if rng.chance(1, 4) {
                thread::sleep(Duration::from_micros(rng.below(PAUSE_US_MAX)));
            }
        }
    }

    /// Returns false if the device fails, or the block holds something else than what was written.
    fn rewrite(&self, device: &Device, verifier: &Verifier, rng: &mut SimRng, buffer: &mut Buffer) -> bool {
        let failed = |what: &str, error: &std::io::Error| {
            judge(verifier, &format!("{what} of rewriter {}", self.number), error);
            false
        };
        let (number, before) = {
            let mut state = self.state.lock();
            state.begun += 1;
            (state.begun, state.acknowledged)
        };
        let data = buffer.bytes(self.bytes);
        self.fill(number, data);
        let is_durable = rng.chance(1, 32);
        match device.write(self.offset, data, is_durable) {
            Ok(()) => {
                let mut state = self.state.lock();
                state.acknowledged = number;
                state.durable = if is_durable { number } else { state.durable };
            }
            // It may have been made by a server that was killed, before the next one had no room for it.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => return true,
            Err(error) => return failed("a write", &error),
        }
        for _ in 0..=rng.below(2) {
            if let Err(error) = device.read(self.offset, data) {
                return failed("a read", &error);
            }
            let found = self.identify(data);
            if found != Some(number) {
                let found = found.map_or("something never written".to_string(), |found| found.to_string());
                let what = format!(
                    "rewriter {} (byte {}) wrote content {number} over {before} and read {found}",
                    self.number, self.offset
                );
                verifier.fail(Error::Violation(what));
                return false;
            }
        }
        if rng.chance(1, 64) {
            if let Err(error) = device.flush() {
                return failed("a flush", &error);
            }
            self.state.lock().durable = number;
        }
        true
    }

    /// Reads the block after a restart, and begins anew from what it holds.
    ///
    /// # Errors
    /// If it cannot be read, or holds what it must not.
    pub fn resume(&self, node: &Path, end: LifeEnd) -> Result<()> {
        let mut buffer = Buffer::new();
        let data = buffer.bytes(self.bytes);
        Device::open(node)
            .and_then(|device| device.read(self.offset, data))
            .map_err(Error::system("the block of a rewriter cannot be read"))?;
        let mut state = self.state.lock();
        let floor = if end == LifeEnd::Crash { state.durable } else { state.acknowledged };
        match self.identify(data) {
            Some(found) if state.may_hold(found, floor) => {
                let begun = state.begun;
                *state = State { begun, acknowledged: found, durable: found, base: found, first: begun + 1 };
                Ok(())
            }
            found => Err(Error::Violation(format!(
                "rewriter {} (byte {}) finds content {found:?}, not older than {floor} expected: {state:?}",
                self.number, self.offset
            ))),
        }
    }

    /// Content of the block: half of it compresses well.
    fn fill(&self, number: u64, data: &mut [u8]) {
        for (at, word) in data.chunks_exact_mut(8).enumerate() {
            let seed = number ^ (self.number << 56) ^ ((at as u64) << 40);
            let noise = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let value = match (number, at % 2) {
                (0, _) => 0,
                (_, 0) => number,
                _ => noise ^ (noise >> 29),
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Returns the number of a content that is whole.
    fn identify(&self, data: &[u8]) -> Option<u64> {
        let number = u64::from_le_bytes(data.first_chunk().copied()?);
        let mut expected = vec![0; data.len()];
        self.fill(number, &mut expected);
        (expected == data).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_told_apart() {
        let all = Rewriter::all(0);
        let mut data = vec![0; all[0].bytes];
        assert_eq!(all[0].identify(&data), Some(0));
        all[0].fill(7, &mut data);
        assert_eq!(all[0].identify(&data), Some(7));
        assert_eq!(all[3].identify(&data), None, "of another one");
        data[4095] ^= 1;
        assert_eq!(all[0].identify(&data), None);
    }

    #[test]
    fn what_was_acknowledged_or_shown_must_be_there() {
        let state = State { begun: 9, acknowledged: 8, durable: 5, base: 3, first: 4 };
        let may_hold = |floor| (0..12).filter(|&it| state.may_hold(it, floor)).collect::<Vec<_>>();
        assert_eq!(may_hold(state.acknowledged), [8, 9]);
        assert_eq!(may_hold(state.durable), [5, 6, 7, 8, 9]);
        // Content 2 was lost at the last restart, which showed 1.
        let state = State { begun: 2, acknowledged: 1, durable: 1, base: 1, first: 3 };
        let may_hold = |floor| (0..12).filter(|&it| state.may_hold(it, floor)).collect::<Vec<_>>();
        assert_eq!(may_hold(state.durable), [1]);
    }
}
