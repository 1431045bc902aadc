//! What was read for the background: decoded later, on a thread where that disturbs nobody.

use layout::record::decode_record;
use layout::{BLOCK_BYTES, Entry, RecordHeader};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::medium::decode::decode_data;
use crate::medium::load::Fetch;
use crate::medium::plan::{Source, bytes_of};
use crate::shared::Shared;
use crate::state::dictionaries::Dictionaries;

/// More would stand in the way of requests at the medium.
const READS_AT_ONCE: usize = 4;

/// Adjacent blocks with all that was read for them: what is left to do keeps a processor busy and needs no drive.
pub(crate) struct Fetched {
    first: u64,
    sources: Vec<Source>,
    runs: Vec<(u64, IoBuf, usize)>,
}

impl<M: Media> Shared<M> {
    /// Reads blocks, undecoded; answers their entries too.
    pub(crate) async fn fetch_blocks(
        &self,
        first: u64,
        count: usize,
    ) -> Result<(Vec<Entry>, Fetched), Error> {
        let (entries, sources) = self.plan(first, count).await?;
        let runs = self.fetch_runs(&sources, READS_AT_ONCE).await?;
        Ok((entries, Fetched { first, sources, runs }))
    }
}

impl Fetched {
    /// Verifies the records of as many blocks as `out` has room for, and decodes them into it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], which the caller counts.
    pub(crate) fn decode(
        &self,
        dictionaries: &Dictionaries,
        first: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let from = (first - self.first) as usize;
        let until = from + out.len() / BLOCK_BYTES;
        let mut i = from;
        while i < until {
            let block = self.first + i as u64;
            let begin = i;
            i += 1;
            while i < until && matches!(self.sources[i], Source::Same) {
                i += 1;
            }
            let out = &mut out[(begin - from) * BLOCK_BYTES..(i - from) * BLOCK_BYTES];
            match self.source(begin) {
                Source::Fill(word) => codec::fill(out, *word),
                source => {
                    let Some((record, fetch)) = self.record(source) else { continue };
                    let skip = (block - fetch.entry.first_block(block)) as usize * BLOCK_BYTES;
                    decode_data(dictionaries, block, record, fetch, skip, out)?;
                }
            }
        }
        Ok(())
    }

    /// The header of the record that a block is in; `None`: there is none, or it fails its checksum.
    pub(crate) fn header_of(&self, block: u64) -> Option<RecordHeader> {
        let (record, fetch) = self.record(self.source((block - self.first) as usize))?;
        decode_record(record, fetch.mask).ok().map(|record| record.header)
    }

    /// Where a block comes from; if that is the same as the one before, where that one does.
    fn source(&self, mut i: usize) -> &Source {
        while matches!(self.sources[i], Source::Same) {
            i -= 1;
        }
        &self.sources[i]
    }

    fn record<'a>(&'a self, source: &'a Source) -> Option<(&'a [u8], &'a Fetch)> {
        match source {
            Source::Memory(memory, fetch) => Some((memory.bytes(fetch.entry.len_bytes()), fetch)),
            Source::Media(fetch) => Some((bytes_of(&self.runs, fetch), fetch)),
            Source::Fill(_) | Source::Same | Source::Done => None,
        }
    }
}
