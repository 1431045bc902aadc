//! Single blocks all over a huge drive, and a map much larger than its memory: filled to refusal, trimmed many at a time beside
//! maintenance, and filled again. Cleaning has to keep up with what the map writes.
//!
//! Nothing is cut short while requests are in flight, so every block holds what was written last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use drive::Error;
use futures::StreamExt;
use futures::future::join;
use futures::stream;

use super::{Run, Stop};
use crate::Subject;
use crate::content::{self, Filler, SECTOR_BYTES};
use crate::ledger::BLOCK_BYTES;

/// Requests in flight.
const DEPTH: usize = 32;
/// Requests carried out before somebody looks how they went.
const REQUESTS_AT_ONCE: usize = 256;
/// Requests refused until a drive counts as full.
const REFUSALS: usize = 20;
/// Blocks read back in each life.
const SAMPLES: usize = 200;

/// What became of a request for each of some blocks.
type Answers = Vec<(u64, Result<(), Error>)>;

/// Number of the write that each block holds.
type Written = BTreeMap<u64, u32>;

impl<S: Subject> Run<S> {
    /// The whole of a seed of this kind.
    pub(super) fn scattered_lives(&mut self) -> Result<(), Stop> {
        self.create()?;
        self.open()?;
        let mut written = Written::new();
        let mut version = 0;
        for _ in 0..=self.config.lives {
            self.fill_scattered(&mut written, &mut version)?;
            self.change_life()?;
            self.read_scattered(&written)?;
            let share = [10, 50, 50, 90, 100][self.rng.index(5)];
            self.trim_scattered(&mut written, share)?;
            self.change_life()?;
            self.read_scattered(&written)?;
        }
        self.check(true)?;
        self.trim_scattered(&mut written, 100)?;
        self.check(true)
    }

    /// Another opening, mostly after a crash; or none.
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

    fn fill_scattered(&mut self, written: &mut Written, version: &mut u32) -> Result<(), Stop> {
        let blocks = self.config.logical_bytes / BLOCK_BYTES;
        let mut refused = 0;
        while refused < REFUSALS {
            *version += 1;
            let some: Vec<u64> = (0..REQUESTS_AT_ONCE).map(|_| self.rng.below(blocks)).collect();
            let version = *version;
            let record_bytes = self.config.record_bytes;
            let write = move |drive: S, block: u64| async move {
                drive.write(block * BLOCK_BYTES, &contents(block, version, record_bytes), false).await
            };
            for (block, answer) in self.carry_out("scattered writes", some, write)? {
                match answer {
                    Ok(()) => drop(written.insert(block, version)),
                    Err(Error::NoSpace) => refused += 1,
                    Err(error) => return Err(Stop::Failed(format!("a write of one block failed: {error}"))),
                }
            }
        }
        self.count("scattered: filled to refusal");
        if self.rng.chance(1, 2) { self.maintenance_must_end() } else { Ok(()) }
    }

    /// Trims so many percent of the blocks, in no order.
    fn trim_scattered(&mut self, written: &mut Written, percent: u64) -> Result<(), Stop> {
        let mut some: Vec<u64> = written.keys().copied().filter(|_| self.rng.below(100) < percent).collect();
        for at in (1..some.len()).rev() {
            some.swap(at, self.rng.index(at + 1));
        }
        for some in some.chunks(REQUESTS_AT_ONCE) {
            let trim = |drive: S, block: u64| async move {
                drive.trim(block * BLOCK_BYTES, BLOCK_BYTES, false).await
            };
            for (block, answer) in self.carry_out("scattered trims", some.to_vec(), trim)? {
                answer.map_err(|error| {
                    Stop::Failed(format!("a trim of one whole block, {block}, was refused: {error}"))
                })?;
                written.remove(&block);
            }
            self.count("scattered: blocks trimmed");
        }
        Ok(())
    }

    fn read_scattered(&mut self, written: &Written) -> Result<(), Stop> {
        let blocks: Vec<(u64, u32)> = written.iter().map(|(block, version)| (*block, *version)).collect();
        for _ in 0..SAMPLES.min(blocks.len()) {
            let (block, version) = blocks[self.rng.index(blocks.len())];
            let read = move |drive: S| async move {
                let mut data = vec![0; BLOCK_BYTES as usize];
                drive.read(block * BLOCK_BYTES, &mut data).await.map(|()| data)
            };
            match self.attempt("read", read)? {
                Ok(data) if data == contents(block, version, self.config.record_bytes) => {}
                Ok(_) => {
                    return Err(Stop::Failed(format!("block {block} does not hold what was written last")));
                }
                Err(error) => return Err(Stop::Failed(format!("read of block {block}: {error}"))),
            }
        }
        Ok(())
    }

    /// A request for each of these blocks, beside maintenance.
    fn carry_out<F: Future<Output = Result<(), Error>> + Send + 'static>(
        &mut self,
        what: &str,
        blocks: Vec<u64>,
        request: impl Fn(S, u64) -> F + Send + Sync + 'static,
    ) -> Result<Answers, Stop> {
        let upkeep = self.rng.chance(3, 4);
        let answers = self.attempt(what, move |drive| async move {
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
                    drive.maintain().await?;
                    a_turn().await;
                }
                Ok(())
            };
            let (answers, maintained) = join(requests, maintenance).await;
            maintained.map(|()| answers)
        })?;
        answers.map_err(|error| Stop::Failed(format!("maintenance beside {what} failed: {error}")))
    }
}

/// What a write of that number gives a block: so many bytes do not compress.
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

/// Lets everybody else have a turn.
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
