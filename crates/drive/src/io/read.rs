//! Reading: look up and pin inside the lock; fetch, verify and decompress outside it.

use std::ops::Range;

use layout::{BLOCK_BYTES, Entry};
use media::Media;

use crate::error::Error;
use crate::medium::decode::decode_data;
use crate::medium::load::Fetch;
use crate::medium::plan::{Source, bytes_of};
use crate::shared::{Drive, Shared};
use crate::state::batch::Seen;
use crate::state::frame_cache::{Found, Key};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A read is carried out in spans of this size, so that its buffers stay bounded.
const SPAN_BYTES: u64 = 512 * 1024;

/// What one source fills of the host's buffer.
struct Part {
    source: usize,
    /// The next one that is not the same.
    next: usize,
    /// Its first block.
    block: u64,
    /// In the host's buffer.
    range: Range<usize>,
    /// Bytes of the record's contents before that.
    skip: usize,
}

/// The part of a buffer (which begins at `offset` and is `len` bytes long) that the source of that number fills, with those
/// behind it that are the same.
fn part_at(source: usize, offset: u64, len: usize, sources: &[Source]) -> Option<Part> {
    let entry = match sources.get(source)? {
        Source::Memory(_, fetch) | Source::Media(fetch) => fetch.entry,
        _ => Entry::UNMAPPED,
    };
    let same = sources[source + 1..].iter().take_while(|source| matches!(source, Source::Same)).count();
    let next = source + 1 + same;
    let (first, end) = (offset / BLOCK, offset + len as u64);
    let block = first + source as u64;
    let (from, to) = ((block * BLOCK).max(offset), ((first + next as u64) * BLOCK).min(end));
    let skip = (from - entry.first_block(block) * BLOCK) as usize;
    Some(Part { source, next, block, range: (from - offset) as usize..(to - offset) as usize, skip })
}

impl<M: Media> Drive<M> {
    /// Fills `buf` from `offset`.
    pub async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.check_range(offset, buf.len() as u64)?;
        Shared::<M>::count(&self.0.host_read_bytes, buf.len() as u64);
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let span = ((at / SPAN_BYTES + 1) * SPAN_BYTES - at).min((buf.len() - done) as u64) as usize;
            self.0.read_span(at, &mut buf[done..done + span]).await?;
            done += span;
        }
        Ok(())
    }
}

impl<M: Media> Shared<M> {
    /// Reads one whole block; answers the record it was read by.
    pub(crate) async fn read_block(&self, block: u64, bytes: &mut [u8]) -> Result<Seen, Error> {
        Ok(self.read_blocks(block, bytes).await?[0])
    }

    /// Reads whole blocks; answers the record that each was read by.
    pub(crate) async fn read_blocks(&self, first: u64, bytes: &mut [u8]) -> Result<Vec<Seen>, Error> {
        let (entries, sources) = self.plan(first, bytes.len() / BLOCK_BYTES).await?;
        let mut generation = 0;
        let seen = |((block, entry), source): ((u64, Entry), &Source)| {
            generation = match source {
                Source::Memory(_, fetch) | Source::Media(fetch) => fetch.generation,
                Source::Same => generation,
                Source::Fill(_) | Source::Done => 0,
            };
            Seen { block, entry, generation }
        };
        let seen = (first..).zip(entries).zip(&sources).map(seen).collect();
        self.carry_out(first * BLOCK, bytes, sources).await?;
        Ok(seen)
    }

    pub(crate) async fn read_span(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let first = offset / BLOCK;
        let count = (offset + buf.len() as u64).div_ceil(BLOCK) - first;
        let (_, sources) = self.plan(first, count as usize).await?;
        self.carry_out(offset, buf, sources).await
    }

    /// Fetches what a plan needs and decodes it into the host's buffer, which begins at `offset`.
    async fn carry_out(&self, offset: u64, buf: &mut [u8], mut sources: Vec<Source>) -> Result<(), Error> {
        self.take_kept(offset, buf, &mut sources);
        let fetched = self.fetch_runs(&sources, usize::MAX).await?;
        let mut next = 0;
        while let Some(part) = part_at(next, offset, buf.len(), &sources) {
            next = part.next;
            let out = &mut buf[part.range.clone()];
            let (record, fetch) = match &sources[part.source] {
                Source::Fill(word) => {
                    codec::fill(out, *word);
                    continue;
                }
                Source::Memory(memory, fetch) => (memory.bytes(fetch.entry.len_bytes()), fetch),
                Source::Media(fetch) => (bytes_of(&fetched, fetch), fetch),
                Source::Done => continue,
                Source::Same => unreachable!("stepped over"),
            };
            let decoded = if fetch.keep {
                self.decode_and_keep(&part, record, fetch, out)
            } else {
                decode_data(&self.dictionaries, part.block, record, fetch, part.skip, out)
            };
            if let Err(error) = decoded {
                Self::count(&self.corrupt_records, 1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Fills what comes from frames that were read lately, and marks those that were wanted before as worth keeping.
    fn take_kept(&self, offset: u64, buf: &mut [u8], sources: &mut [Source]) {
        let mut next = 0;
        while let Some(part) = part_at(next, offset, buf.len(), sources) {
            next = part.next;
            let (Source::Memory(_, fetch) | Source::Media(fetch)) = &mut sources[part.source] else {
                continue;
            };
            let bytes = fetch.entry.blocks() as usize * BLOCK_BYTES;
            if !fetch.entry.is_frame() || part.range.len() == bytes {
                continue;
            }
            match self.frames.read(&fetch.key(part.block), part.skip, &mut buf[part.range]) {
                Found::Hit => sources[part.source] = Source::Done,
                Found::Again => fetch.keep = true,
                Found::First => {}
            }
        }
    }

    /// As [`decode_data`], of a whole frame, which is kept.
    fn decode_and_keep(
        &self,
        part: &Part,
        record: &[u8],
        fetch: &Fetch,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let key = fetch.key(part.block);
        let mut contents = self.frames.room(&key);
        decode_data(&self.dictionaries, part.block, record, fetch, 0, &mut contents)?;
        out.copy_from_slice(&contents[part.skip..part.skip + out.len()]);
        self.frames.keep(key, contents);
        Ok(())
    }
}

impl Fetch {
    /// What the frame that holds a block is kept by.
    fn key(&self, block: u64) -> Key {
        Key { entry: self.entry, generation: self.generation, first: self.entry.first_block(block) }
    }
}
