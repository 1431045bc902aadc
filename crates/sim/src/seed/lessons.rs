//! Dictionaries that replace each other, each with data that needs it, until old ones are removed while hosts
//! overwrite the data. In some cases the power is cut meanwhile (see [`super::sliced`]).
//!
//! Blocks hold sentences instead of the stamps by which the oracle recognises a write. [`Author`] knows which
//! write each page is from.

use std::sync::Arc;

use codec::testdata;
use drive::Settle;
use futures::future::join4;
use media::SimRng;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::sliced::conclude;
use super::{Run, Stop};
use crate::content::{self, Filler, SECTOR_BYTES};
use crate::ledger::BLOCK_BYTES;
use crate::oracle::{Kind, Oracle};
use crate::{Error, Subject, later};

/// Number of blocks of one kind of data.
const BLOCKS_A_KIND: u64 = 96;
/// Most blocks written by one request.
const BLOCKS_A_WRITE_MAX: u64 = 8;
/// Number of sentences that the blocks of a kind consist of: enough that neighbours have few in common.
const SENTENCES: u64 = 400;
const SENTENCE_BYTES: usize = 48;
/// Most passes of removing dictionaries. A subject makes several steps in each.
const PASSES_MAX: u32 = 40;
/// Most blocks overwritten in each pass.
const OVERWRITES_MAX: u64 = 24;
/// A host waits at most this many turns before each write: two to this power.
const PAUSE_BITS_MAX: u64 = 7;

const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;

/// Content of the blocks.
pub(super) struct Author {
    kinds: Vec<Vec<Vec<u8>>>,
    /// Kind of data by number of the write.
    kind_of: Mutex<FxHashMap<u32, u64>>,
}

impl Author {
    fn new(seed: u64, kinds: u64) -> Author {
        let sentence = |kind: u64, i: u64| {
            let bytes = testdata::random(seed ^ kind << 32 ^ i, SENTENCE_BYTES);
            bytes.into_iter().map(|byte| b'a' + byte % 26).collect()
        };
        Author {
            kinds: (0..kinds).map(|kind| (0..SENTENCES).map(|i| sentence(kind, i)).collect()).collect(),
            kind_of: Mutex::default(),
        }
    }

    fn page(&self, block: u64, kind: u64, write: u32) -> Vec<u8> {
        let mut out = [block.to_le_bytes(), u64::from(write).to_le_bytes()].concat();
        let mut rng = SimRng::new(block << 32 ^ u64::from(write));
        let sentences = &self.kinds[kind as usize];
        while out.len() < BLOCK_BYTES as usize {
            out.extend_from_slice(&sentences[rng.index(sentences.len())]);
        }
        out.truncate(BLOCK_BYTES as usize);
        out
    }

    /// Writes pages of a kind from block `first` on, and records the write in the oracle.
    async fn write<S: Subject>(
        &self,
        drive: &S,
        oracle: &Mutex<Oracle>,
        (first, count, kind): (u64, u64, u64),
        is_durable: bool,
    ) -> Result<(), Error> {
        let (sector, sectors) = (first * BLOCK_SECTORS, count * BLOCK_SECTORS);
        let write = oracle.lock().begin_write(Kind::Write, sector, sectors, Filler::Random);
        self.kind_of.lock().insert(write, kind);
        let data: Vec<u8> = (first..first + count).flat_map(|block| self.page(block, kind, write)).collect();
        let answer = drive.write(first * BLOCK_BYTES, &data, false).await;
        conclude(oracle, write, is_durable, answer)
    }

    /// Replaces pages that a drive returned from block `first` on with the stamps of their writes.
    pub(super) fn stamp(&self, first: u64, data: &mut [u8]) {
        for (block, page) in (first..).zip(data.chunks_exact_mut(BLOCK_BYTES as usize)) {
            let mut number = [0; 4];
            number.copy_from_slice(&page[8..12]);
            let write = u32::from_le_bytes(number);
            let kind = self.kind_of.lock().get(&write).copied();
            if kind.is_some_and(|kind| *page == self.page(block, kind, write)) {
                content::fill(page, block * BLOCK_SECTORS, write, Filler::Random);
            }
        }
    }
}

impl<S: Subject> Run<S> {
    /// Runs a whole seed of this kind.
    pub(super) fn lessons(&mut self) -> Result<(), Stop> {
        self.create()?;
        self.open()?;
        let kinds = 2 + self.rng.below(4);
        let author = Arc::new(Author::new(self.rng.next_u64(), kinds));
        self.author = Some(author.clone());
        for kind in 0..kinds {
            self.write_kind(&author, kind)?;
            let kept = self.expect("train", |drive| async move { drive.train().await })?;
            if let Some(kept) = kept {
                self.count(if kept { "lessons: a dictionary was kept" } else { "lessons: no dictionary" });
            }
            self.write_kind(&author, kind)?;
            if self.rng.chance(1, 2) {
                self.settle_some()?;
            }
            self.flush_quietly()?;
            self.change_life()?;
        }
        for _ in 0..PASSES_MAX {
            let forgot = self.forget_beside_writes(&author, kinds)?;
            if self.rng.chance(1, 8) {
                self.flush_quietly()?;
                self.change_life()?;
            }
            if forgot {
                self.count("lessons: a dictionary was forgotten");
                self.flush_quietly()?;
                self.change_life()?;
                self.read_lessons(kinds)?;
            }
        }
        self.read_lessons(kinds)?;
        self.check(true)
    }

    /// Writes all blocks of a kind, in requests of different lengths.
    fn write_kind(&mut self, author: &Arc<Author>, kind: u64) -> Result<(), Stop> {
        let (mut at, end) = (kind * BLOCKS_A_KIND, (kind + 1) * BLOCKS_A_KIND);
        while at < end {
            let count = (1 + self.rng.below(BLOCKS_A_WRITE_MAX)).min(end - at);
            let (author, oracle, is_durable) =
                (author.clone(), self.oracle.clone(), !self.config.write_cache);
            let range = (at, count, kind);
            let write = move |drive: S| async move { author.write(&drive, &oracle, range, is_durable).await };
            self.expect("write", write)?;
            at += count;
        }
        Ok(())
    }

    fn settle_some(&mut self) -> Result<(), Stop> {
        let steps = self.rng.below(32);
        let settle = move |drive: S| async move {
            let mut next = 0;
            for _ in 0..steps {
                next = drive.settle(next, Settle::All).await?.next_block;
            }
            Ok(())
        };
        self.expect("settle", settle).map(drop)
    }

    /// Does a part of the removal of the oldest dictionaries, while blocks are overwritten. Returns whether
    /// any was removed.
    fn forget_beside_writes(&mut self, author: &Arc<Author>, kinds: u64) -> Result<bool, Stop> {
        // Blocks of one kind, which may be the kind that the pass is about; not all of them.
        let kind = self.rng.below(kinds);
        let mut writes = Vec::new();
        for _ in 0..self.rng.below(OVERWRITES_MAX) {
            let block = kind * BLOCKS_A_KIND + self.rng.below(BLOCKS_A_KIND);
            writes.push((self.rng.skewed(PAUSE_BITS_MAX), block));
        }
        let (author, oracle, is_durable) = (author.clone(), self.oracle.clone(), !self.config.write_cache);
        // Other background work in the meantime: a second removal, settling and cleaning.
        let (twice, beside) = (self.rng.chance(1, 2), self.rng.chance(1, 2));
        let pauses = [0; 3].map(|_: u64| self.rng.skewed(PAUSE_BITS_MAX));
        if twice {
            self.count("lessons: two free dictionaries at a time");
        }
        let forgetting = move |drive: S| async move {
            let host = async {
                for (pause, block) in &writes {
                    later::wait(*pause).await;
                    author.write(&drive, &oracle, (*block, 1, kind), is_durable).await?;
                }
                Ok::<(), Error>(())
            };
            let free = async |pause| {
                later::wait(pause).await;
                or_no_room(drive.free().await)
            };
            let again = async { if twice { free(pauses[0]).await } else { Ok(false) } };
            let others = async {
                if beside {
                    later::wait(pauses[1]).await;
                    or_no_room(drive.settle(0, Settle::All).await.map(|step| step.was_useful))?;
                    later::wait(pauses[2]).await;
                    or_no_room(drive.clean().await)?;
                }
                Ok::<(), Error>(())
            };
            let (wrote, forgot, forgot_again, others) = join4(host, free(0), again, others).await;
            wrote?;
            others?;
            Ok(forgot? | forgot_again?)
        };
        Ok(self.expect("forgetting dictionaries", forgetting)?.unwrap_or(false))
    }

    fn read_lessons(&mut self, kinds: u64) -> Result<(), Stop> {
        for block in 0..kinds * BLOCKS_A_KIND {
            let first = block * BLOCK_SECTORS;
            let reading = self.oracle.lock().begin_read(first, BLOCK_SECTORS);
            let data = self
                .read(first, BLOCK_SECTORS)?
                .map_err(|error| Stop::Failed(format!("read of block {block} failed: {error}")))?;
            self.oracle.lock().end_read(&reading, &data)?;
        }
        Ok(())
    }

    /// Does something that must succeed on a drive whose backing has no faults. Returns `None` if the power
    /// was cut.
    fn expect<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(S) -> F,
    ) -> Result<Option<T>, Stop> {
        let answer = self.do_in_slices(what, work)?;
        answer.transpose().map_err(|error| Stop::Failed(format!("{what} failed: {error}")))
    }
}

/// Background work that finds no space does nothing.
fn or_no_room(answer: Result<bool, Error>) -> Result<bool, Error> {
    match answer {
        Err(Error::NoSpace) => Ok(false),
        answer => answer,
    }
}
