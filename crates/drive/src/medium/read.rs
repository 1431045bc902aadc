//! Reading blocks: lookup and pins inside the lock; fetching, verification and decompression outside it.

use std::sync::atomic::Ordering;

use layout::{BLOCK_BYTES, Entry};
use media::Media;

use crate::error::Error;
use crate::medium::decode::decode_data;
use crate::medium::load::Fetch;
use crate::medium::plan::{Part, Plan, Source};
use crate::shared::Shared;
use crate::state::batch::Seen;
use crate::state::frame_cache::{Key, Lookup};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A read of at most one part in so many of a frame is a small one.
const SMALL_PART: usize = 4;

/// What a read has to do with the read cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Nothing: a stream, or work of the drive itself.
    Bypass,
    /// It looks there: what it reads is about to be replaced.
    Look,
    /// It looks there, and leaves what it reads there.
    Keep,
}

impl<M: Media> Shared<M> {
    /// Reads one whole block. Returns the record it was read from.
    pub(crate) async fn read_block(&self, block: u64, bytes: &mut [u8]) -> Result<Seen, Error> {
        Ok(self.read_blocks(block, bytes).await?[0])
    }

    /// Reads whole blocks. Returns the record that each was read from.
    pub(crate) async fn read_blocks(&self, first: u64, bytes: &mut [u8]) -> Result<Vec<Seen>, Error> {
        let plan = self.plan(first, bytes.len() / BLOCK_BYTES).await?;
        let mut generation = 0;
        let seen = |((block, entry), source): ((u64, &Entry), &Source)| {
            generation = match source {
                Source::Memory(_, fetch) | Source::Media(fetch) => fetch.generation,
                Source::Same => generation,
                Source::Fill(_) | Source::Done => 0,
            };
            Seen { block, entry: *entry, generation }
        };
        let seen = (first..).zip(&plan.entries).zip(&plan.sources).map(seen).collect();
        self.execute(first * BLOCK, bytes, plan, Caching::Look).await?;
        Ok(seen)
    }

    /// Reads for the drive's own purposes, from the medium.
    pub(crate) async fn read_span(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.read_part(offset, buf, Caching::Bypass).await
    }

    /// Fills `buf` from `offset`.
    pub(crate) async fn read_part(&self, offset: u64, buf: &mut [u8], caching: Caching) -> Result<(), Error> {
        let first = offset / BLOCK;
        let count = (offset + buf.len() as u64).div_ceil(BLOCK) - first;
        let plan = self.plan(first, count as usize).await?;
        self.execute(offset, buf, plan, caching).await
    }

    /// Fetches what a plan needs and decodes it into the host's buffer, which begins at `offset`.
    async fn execute(
        &self,
        offset: u64,
        buf: &mut [u8],
        mut plan: Plan,
        caching: Caching,
    ) -> Result<(), Error> {
        self.take_kept(offset, buf, &mut plan, caching);
        let mut runs = match self.fetch_runs(&plan, usize::MAX).await {
            Ok(runs) => runs,
            Err(error) => {
                self.count_lost_of(&plan, false);
                return Err(error);
            }
        };
        let mut decode =
            |part: &Part, record: &[u8], fetch: &Fetch, out: &mut [u8]| match (fetch.keep, caching) {
                (true, _) => self.decode_and_keep(part, record, fetch, out, caching),
                (false, Caching::Keep) if self.cached.is_on() => {
                    self.decode_and_cache(part, record, fetch, out)
                }
                (false, _) => decode_data(&self.dictionaries, part.block, record, fetch, part.skip, out),
            };
        let mut filled = plan.fill(&runs, offset, buf, &mut decode);
        if filled.is_err() && self.repair_runs(&mut runs).await {
            filled = plan.fill(&runs, offset, buf, &mut decode);
        }
        if filled.is_err() {
            if let Some(error) = self.lacking_reads_of(&plan) {
                Self::count(&self.read_errors, 1);
                self.count_lost_of(&plan, false);
                return Err(error);
            }
            Self::count(&self.corrupt_records, 1);
            self.count_lost_of(&plan, true);
        }
        filled
    }

    /// Fills what comes from the read cache or from recently read frames, and marks frames that were wanted
    /// before as worth keeping.
    fn take_kept(&self, offset: u64, buf: &mut [u8], plan: &mut Plan, caching: Caching) {
        let mut next = offset / BLOCK;
        while let Some(part) = plan.part_at(next, offset, buf.len()) {
            next = part.next;
            let (Source::Memory(_, fetch) | Source::Media(fetch)) = &mut plan.sources[part.source] else {
                continue;
            };
            if caching != Caching::Bypass {
                let (first, skip) = part.first_block(fetch.entry);
                if self.cached.read(fetch.record(), first, skip, &mut buf[part.range.clone()]) {
                    plan.sources[part.source] = Source::Done;
                    continue;
                }
            }
            let bytes = fetch.entry.blocks() as usize * BLOCK_BYTES;
            if !fetch.entry.is_frame() {
                continue;
            }
            if part.range.len() == bytes {
                self.heat.read_whole(part.block);
                continue;
            }
            match self.frames.read(&fetch.key(part.block), part.skip, &mut buf[part.range.clone()]) {
                Lookup::Hit => {
                    plan.sources[part.source] = Source::Done;
                    continue;
                }
                Lookup::Again => fetch.keep = true,
                // Who reads a large part of a frame, or its neighbours soon after, is served well by it.
                Lookup::First if caching == Caching::Keep && part.range.len() * SMALL_PART <= bytes => {
                    let blocks = self.capacity_bytes.load(Ordering::Relaxed) / BLOCK;
                    self.heat.read_at_random(part.block, blocks);
                }
                Lookup::First => {}
            }
        }
    }

    /// Like [`decode_data`], for a whole frame, which is kept.
    fn decode_and_keep(
        &self,
        part: &Part,
        record: &[u8],
        fetch: &Fetch,
        out: &mut [u8],
        caching: Caching,
    ) -> Result<(), Error> {
        let key = fetch.key(part.block);
        let mut contents = self.frames.room(&key);
        decode_data(&self.dictionaries, part.block, record, fetch, 0, &mut contents)?;
        out.copy_from_slice(&contents[part.skip..part.skip + out.len()]);
        if caching == Caching::Keep {
            let (first, skip) = part.first_block(fetch.entry);
            let from = part.skip - skip;
            let to = (part.skip + out.len()).next_multiple_of(BLOCK_BYTES);
            self.cached.keep(fetch.record(), first, &contents[from..to]);
        }
        self.frames.keep(key, contents);
        Ok(())
    }

    /// Like [`decode_data`], for whole blocks, which go to the read cache: those that were asked for.
    fn decode_and_cache(
        &self,
        part: &Part,
        record: &[u8],
        fetch: &Fetch,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let decode =
            |skip, out: &mut [u8]| decode_data(&self.dictionaries, part.block, record, fetch, skip, out);
        let (first, skip) = part.first_block(fetch.entry);
        let from = part.skip - skip;
        let bytes = (skip + out.len()).next_multiple_of(BLOCK_BYTES);
        if bytes == out.len() {
            decode(from, out)?;
            self.cached.keep(fetch.record(), first, out);
            return Ok(());
        }
        let mut whole = vec![0; bytes];
        decode(from, &mut whole)?;
        out.copy_from_slice(&whole[skip..skip + out.len()]);
        self.cached.keep(fetch.record(), first, &whole);
        Ok(())
    }
}

impl Part {
    /// The first block of which the part needs something, and the bytes of it before that.
    fn first_block(&self, entry: Entry) -> (u64, usize) {
        let block = entry.first_block(self.block) + (self.skip / BLOCK_BYTES) as u64;
        (block, self.skip % BLOCK_BYTES)
    }
}

impl Fetch {
    /// Identity of the record.
    fn record(&self) -> (Entry, u32) {
        (self.entry, self.generation)
    }

    /// Returns the key under which the frame with a block is kept.
    fn key(&self, block: u64) -> Key {
        Key { entry: self.entry, generation: self.generation, first: self.entry.first_block(block) }
    }
}
