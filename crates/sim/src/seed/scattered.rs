//! Single blocks all over a huge drive, with a map much larger than its memory. The drive is filled until it
//! refuses, trimmed by many concurrent requests beside maintenance or by ranges of many gigabytes, and filled
//! again. Cleaning has to keep up with the writes of the map. In some cases the power is cut meanwhile (see
//! [`super::sliced`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::StreamExt;
use futures::future::join;
use futures::stream;
use parking_lot::Mutex;

use super::sliced::conclude;
use super::{Run, Stop};
use crate::content::{self, Filler, SECTOR_BYTES};
use crate::ledger::BLOCK_BYTES;
use crate::oracle::{Kind, Oracle};
use crate::{Error, Subject};

/// Number of requests in flight.
const DEPTH: usize = 32;
/// Number of requests between two checks of their results.
const REQUESTS_AT_ONCE: usize = 256;
/// Number of refused requests until a drive counts as full.
const REFUSALS: usize = 20;
/// Number of blocks read back in each life.
const SAMPLES: usize = 200;
/// Largest range that is trimmed at once.
const TRIM_BYTES_MAX: u64 = 64 << 30;
/// Most ranges trimmed in a row.
const WIDE_TRIMS_MAX: u64 = 4;
const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;

/// Result of a request for each of some blocks.
pub(super) type Answers = Vec<(u64, Result<(), Error>)>;

/// Blocks that may hold data.
pub(super) type Written = BTreeSet<u64>;

impl<S: Subject> Run<S> {
    /// Runs a whole seed of this kind.
    pub(super) fn scattered_lives(&mut self) -> Result<(), Stop> {
        self.create()?;
        self.open()?;
        let mut written = Written::new();
        for _ in 0..=self.config.lives {
            self.fill_scattered(&mut written)?;
            self.change_life()?;
            self.read_scattered(&written)?;
            if self.rng.chance(1, 2) {
                self.trim_widely()?;
            }
            let share = [10, 50, 50, 90, 100][self.rng.index(5)];
            self.trim_scattered(&mut written, share)?;
            self.change_life()?;
            self.read_scattered(&written)?;
            if self.rng.chance(1, 2) {
                self.lose_upper_node(&mut written)?;
            }
        }
        self.check(true)?;
        self.trim_scattered(&mut written, 100)?;
        self.check(true)
    }

    /// Opens the drive again, mostly after a crash, or does nothing.
    pub(super) fn change_life(&mut self) -> Result<(), Stop> {
        self.flush_quietly()?;
        match self.rng.below(4) {
            0 => return Ok(()),
            1 => self.close_quietly()?,
            _ => {}
        }
        self.crash();
        self.open()
    }

    fn fill_scattered(&mut self, written: &mut Written) -> Result<(), Stop> {
        let mut refused = 0;
        while refused < REFUSALS {
            let Some(answers) = self.write_scattered(written, REQUESTS_AT_ONCE)? else { continue };
            for (_, answer) in answers {
                match answer {
                    Ok(()) => {}
                    Err(Error::NoSpace) => refused += 1,
                    Err(error) => return Err(Stop::Failed(format!("a write of one block failed: {error}"))),
                }
            }
        }
        self.count("scattered: filled to refusal");
        if self.rng.chance(1, 2) { self.maintenance_must_end() } else { Ok(()) }
    }

    /// Writes `count` random blocks.
    pub(super) fn write_scattered(
        &mut self,
        written: &mut Written,
        count: usize,
    ) -> Result<Option<Answers>, Stop> {
        let blocks = self.config.logical_bytes / BLOCK_BYTES;
        let some: Vec<u64> = (0..count).map(|_| self.rng.below(blocks)).collect();
        let (oracle, config) = (self.oracle.clone(), self.config.clone());
        let write = move |drive: S, block: u64| {
            let (oracle, config) = (oracle.clone(), config.clone());
            async move {
                let sectors = (config.record_bytes / SECTOR_BYTES) as u64;
                let first = block * BLOCK_SECTORS;
                let write = oracle.lock().begin_write(Kind::Write, first, sectors, Filler::Random);
                let data = contents(block, write, config.record_bytes);
                let answer = drive.write(block * BLOCK_BYTES, &data, false).await;
                conclude(&oracle, write, !config.write_cache, answer)
            }
        };
        written.extend(&some);
        self.carry_out("scattered writes", some, write)
    }

    /// Trims `percent` of the blocks, in random order.
    fn trim_scattered(&mut self, written: &mut Written, percent: u64) -> Result<(), Stop> {
        let mut some: Vec<u64> = written.iter().copied().filter(|_| self.rng.below(100) < percent).collect();
        for at in (1..some.len()).rev() {
            some.swap(at, self.rng.index(at + 1));
        }
        for some in some.chunks(REQUESTS_AT_ONCE) {
            let (oracle, config) = (self.oracle.clone(), self.config.clone());
            let trim = move |drive: S, block: u64| {
                let (oracle, config) = (oracle.clone(), config.clone());
                async move { trim(&drive, &oracle, block * BLOCK_BYTES, BLOCK_BYTES, !config.write_cache).await }
            };
            let Some(answers) = self.carry_out("scattered trims", some.to_vec(), trim)? else { continue };
            for (block, answer) in answers {
                answer.map_err(|error| {
                    Stop::Failed(format!("a trim of one whole block, {block}, was refused: {error}"))
                })?;
                written.remove(&block);
            }
            self.count("scattered: blocks trimmed");
        }
        Ok(())
    }

    /// Trims ranges of random length, up to a very large number of blocks.
    fn trim_widely(&mut self) -> Result<(), Stop> {
        for _ in 0..1 + self.rng.below(WIDE_TRIMS_MAX) {
            let blocks = self.config.logical_bytes.min(TRIM_BYTES_MAX) / BLOCK_BYTES;
            let count = 1 + self.rng.below(blocks);
            let first = self.rng.below(self.config.logical_bytes / BLOCK_BYTES - count + 1);
            let (oracle, is_durable) = (self.oracle.clone(), !self.config.write_cache);
            let (offset, len) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
            let work = move |drive: S| async move {
                let maintenance = drive.clone();
                let trim = trim(&drive, &oracle, offset, len, is_durable);
                let (trimmed, maintained) = join(trim, maintenance.maintain()).await;
                trimmed.and(maintained)
            };
            let Some(answer) = self.do_in_slices("a wide trim", work)? else { continue };
            answer.map_err(|error| {
                Stop::Failed(format!("a trim of {count} whole blocks from {first} on was refused: {error}"))
            })?;
            self.count("scattered: a range trimmed");
        }
        Ok(())
    }

    fn read_scattered(&mut self, written: &Written) -> Result<(), Stop> {
        let blocks: Vec<u64> = written.iter().copied().collect();
        for _ in 0..SAMPLES.min(blocks.len()) {
            let first = blocks[self.rng.index(blocks.len())] * BLOCK_SECTORS;
            let reading = self.oracle.lock().begin_read(first, BLOCK_SECTORS);
            match self.read(first, BLOCK_SECTORS)? {
                Ok(data) => self.oracle.lock().end_read(&reading, &data)?,
                Err(error) => return Err(Stop::Failed(format!("read of sector {first}: {error}"))),
            }
        }
        Ok(())
    }

    /// Sends a request for each of these blocks, beside maintenance. Returns `None` if the power was cut.
    fn carry_out<F: Future<Output = Result<(), Error>> + Send + 'static>(
        &mut self,
        what: &str,
        blocks: Vec<u64>,
        request: impl Fn(S, u64) -> F + Send + Sync + 'static,
    ) -> Result<Option<Answers>, Stop> {
        let upkeep = self.rng.chance(3, 4);
        let may_fail = !self.unreadable.is_empty();
        let answers = self.do_in_slices(what, move |drive| async move {
            let over = Arc::new(AtomicBool::new(false));
            let requests = async {
                let one = |block: u64| {
                    let request = request(drive.clone(), block);
                    async move { (block, request.await) }
                };
                let answers = stream::iter(blocks).map(one).buffer_unordered(DEPTH).collect::<Vec<_>>().await;
                over.store(true, Ordering::Relaxed);
                answers
            };
            let maintenance = async {
                while upkeep && !over.load(Ordering::Relaxed) {
                    match drive.maintain().await {
                        Ok(_) => {}
                        Err(Error::Io(_)) if may_fail => {}
                        Err(error) => return Err(error),
                    }
                    a_turn().await;
                }
                Ok(())
            };
            let (answers, maintained) = join(requests, maintenance).await;
            maintained.map(|()| answers)
        })?;
        answers
            .transpose()
            .map_err(|error| Stop::Failed(format!("maintenance beside {what} failed: {error}")))
    }
}

/// Trims whole blocks, and records it in the oracle.
async fn trim<S: Subject>(
    drive: &S,
    oracle: &Mutex<Oracle>,
    offset: u64,
    len: u64,
    is_durable: bool,
) -> Result<(), Error> {
    let (first, count) = (offset / SECTOR_BYTES as u64, len / SECTOR_BYTES as u64);
    let write = oracle.lock().begin_write(Kind::Trim, first, count, Filler::Zero);
    conclude(oracle, write, is_durable, drive.trim(offset, len, false).await)
}

/// Content that a write gives a block: `record_bytes` that do not compress, then zeros.
fn contents(block: u64, version: u32, record_bytes: usize) -> Vec<u8> {
    let mut data = vec![0; BLOCK_BYTES as usize];
    content::fill(
        &mut data[..record_bytes],
        block * (BLOCK_BYTES / SECTOR_BYTES as u64),
        version,
        Filler::Random,
    );
    data
}

/// Lets all other tasks have a turn.
async fn a_turn() {
    let mut had = false;
    std::future::poll_fn(|context| match std::mem::replace(&mut had, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
