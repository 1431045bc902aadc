//! Dictionaries that replace each other, each with data that needs it, until those of old are done without, while hosts overwrite
//! the data.
//!
//! Nothing is cut short while requests are in flight, so every block holds what was written last.

use std::collections::BTreeMap;

use codec::testdata;
use drive::Error;
use futures::future::join;
use media::SimRng;

use super::{Run, Stop};
use crate::ledger::BLOCK_BYTES;
use crate::{Subject, later};

/// Blocks of one kind of data.
const BLOCKS_A_KIND: u64 = 96;
/// Of so many, written as one request.
const BLOCKS_A_WRITE_MAX: u64 = 8;
/// Sentences that all blocks of a kind are made of: so many that neighbours have few in common.
const SENTENCES: u64 = 400;
const SENTENCE_BYTES: usize = 48;
/// Passes of doing without dictionaries, at most. A subject makes several steps in each.
const PASSES_MAX: u32 = 40;
/// Blocks overwritten in each of them, at most.
const OVERWRITES_MAX: u64 = 24;
/// Turns that a host waits before each, at most: two to this power.
const PAUSE_BITS_MAX: u64 = 7;

/// The write that each block holds: which kind, and its number.
type Written = BTreeMap<u64, (u64, u64)>;

/// What a block is made to hold.
struct Author {
    kinds: Vec<Vec<Vec<u8>>>,
}

impl Author {
    fn new(seed: u64, kinds: u64) -> Author {
        let sentence = |kind: u64, i: u64| {
            let bytes = testdata::random(seed ^ kind << 32 ^ i, SENTENCE_BYTES);
            bytes.into_iter().map(|byte| b'a' + byte % 26).collect()
        };
        Author { kinds: (0..kinds).map(|kind| (0..SENTENCES).map(|i| sentence(kind, i)).collect()).collect() }
    }

    fn page(&self, block: u64, (kind, version): (u64, u64)) -> Vec<u8> {
        let mut out = [block.to_le_bytes(), version.to_le_bytes()].concat();
        let mut rng = SimRng::new(block << 32 ^ version);
        let sentences = &self.kinds[kind as usize];
        while out.len() < BLOCK_BYTES as usize {
            out.extend_from_slice(&sentences[rng.index(sentences.len())]);
        }
        out.truncate(BLOCK_BYTES as usize);
        out
    }
}

impl<S: Subject> Run<S> {
    /// The whole of a seed of this kind.
    pub(super) fn lessons(&mut self) -> Result<(), Stop> {
        self.create()?;
        self.open()?;
        let kinds = 2 + self.rng.below(4);
        let author = Author::new(self.rng.next_u64(), kinds);
        let (mut written, mut version) = (Written::new(), 0);
        for kind in 0..kinds {
            self.write_kind(&author, kind, &mut written, &mut version)?;
            let kept = self.expect("train", |drive| async move { drive.train().await })?;
            self.count(if kept { "lessons: a dictionary was kept" } else { "lessons: no dictionary" });
            self.write_kind(&author, kind, &mut written, &mut version)?;
            if self.rng.chance(1, 2) {
                self.settle_some()?;
            }
            self.flush_quietly()?;
            self.change_life()?;
        }
        for _ in 0..PASSES_MAX {
            let forgot = self.forget_beside_writes(&author, &mut written, &mut version)?;
            if self.rng.chance(1, 8) {
                self.flush_quietly()?;
                self.change_life()?;
            }
            if forgot {
                self.count("lessons: a dictionary was forgotten");
                self.flush_quietly()?;
                self.change_life()?;
                self.read_lessons(&author, &written)?;
            }
        }
        self.read_lessons(&author, &written)?;
        self.check(true)
    }

    /// Writes all blocks of a kind anew, some together and some alone.
    fn write_kind(
        &mut self,
        author: &Author,
        kind: u64,
        written: &mut Written,
        version: &mut u64,
    ) -> Result<(), Stop> {
        let (mut at, end) = (kind * BLOCKS_A_KIND, (kind + 1) * BLOCKS_A_KIND);
        while at < end {
            *version += 1;
            let count = (1 + self.rng.below(BLOCKS_A_WRITE_MAX)).min(end - at);
            let data = (at..at + count).flat_map(|block| author.page(block, (kind, *version))).collect();
            self.write_blocks(at, data)?;
            written.extend((at..at + count).map(|block| (block, (kind, *version))));
            at += count;
        }
        Ok(())
    }

    fn write_blocks(&mut self, first: u64, data: Vec<u8>) -> Result<(), Stop> {
        self.expect("write", move |drive| async move { drive.write(first * BLOCK_BYTES, &data, false).await })
    }

    fn settle_some(&mut self) -> Result<(), Stop> {
        let steps = self.rng.below(32);
        self.expect("settle", move |drive| async move {
            let mut next = 0;
            for _ in 0..steps {
                (next, _) = drive.settle(next, false).await?;
            }
            Ok(())
        })
    }

    /// Does some of what it takes to do without the oldest dictionaries, while blocks are overwritten. Answers whether any was
    /// forgotten.
    fn forget_beside_writes(
        &mut self,
        author: &Author,
        written: &mut Written,
        version: &mut u64,
    ) -> Result<bool, Stop> {
        // Of one kind, which may be the one that a pass has to do with; not all of it.
        let all = written.len() as u64;
        let first = self.rng.below(all / BLOCKS_A_KIND) * BLOCKS_A_KIND;
        let mut writes = Vec::new();
        for _ in 0..self.rng.below(OVERWRITES_MAX) {
            *version += 1;
            let block = first + self.rng.below(BLOCKS_A_KIND);
            let kind = written.get(&block).map_or(0, |(kind, _)| *kind);
            writes.push((self.rng.skewed(PAUSE_BITS_MAX), block, author.page(block, (kind, *version))));
            written.insert(block, (kind, *version));
        }
        self.expect("forgetting dictionaries", move |drive| async move {
            let host = async {
                for (pause, block, data) in &writes {
                    later::wait(*pause).await;
                    drive.write(block * BLOCK_BYTES, data, false).await?;
                }
                Ok::<(), Error>(())
            };
            let (wrote, forgot) = join(host, drive.free()).await;
            wrote?;
            match forgot {
                Err(Error::NoSpace) => Ok(false),
                forgot => forgot,
            }
        })
    }

    fn read_lessons(&mut self, author: &Author, written: &Written) -> Result<(), Stop> {
        for (&block, &held) in written {
            let data = self.expect("read", move |drive| async move {
                let mut data = vec![0; BLOCK_BYTES as usize];
                drive.read(block * BLOCK_BYTES, &mut data).await.map(|()| data)
            })?;
            if data != author.page(block, held) {
                return Err(Stop::Failed(format!("block {block} does not hold what was written last")));
            }
        }
        Ok(())
    }

    /// What must succeed on a drive whose backing has no faults.
    fn expect<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(S) -> F,
    ) -> Result<T, Stop> {
        self.attempt(what, work)?.map_err(|error| Stop::Failed(format!("{what} failed: {error}")))
    }
}
