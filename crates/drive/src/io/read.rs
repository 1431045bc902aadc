//! Reading: look up and pin inside the lock; fetch, verify and decompress outside it.

use std::cell::RefCell;
use std::ops::Range;

use codec::{CodecId, Dictionary};
use futures::future::join_all;
use layout::record::decode_record;
use layout::{BLOCK_BYTES, Entry, NODE_ENTRIES, RecordHeader, RecordKind};
use media::{IoBuf, Media};

use crate::state::core::Seen;
use crate::upkeep::dictionaries::Dictionaries;
use crate::error::Error;
use crate::state::frame_cache::{Found, Key};
use crate::io::load::Fetch;
use crate::state::log::InMemory;
use crate::state::segments::State;
use crate::shared::{Drive, Shared};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A read is carried out in spans of this size, so that its buffers stay bounded.
const SPAN_BYTES: u64 = 512 * 1024;
/// Records closer together than this are fetched with one read: seeking would cost more.
const GAP_MAX_BYTES: u64 = 16 * 1024;
/// One read of the medium takes at most this much.
const RUN_MAX_BYTES: u64 = 512 * 1024;

/// Where a block comes from.
pub(crate) enum Source {
    /// One word, repeated.
    Fill(u32),
    /// A record in a pack that is not on the medium yet.
    Memory(InMemory, Fetch),
    /// A record on the medium.
    Media(Fetch),
    /// The frame that the block before comes from.
    Same,
    /// Was there, and is in the host's buffer.
    Done,
}

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

/// One read of the medium that brings several records.
struct Run {
    position: u64,
    len: usize,
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

    /// Looks blocks up (loading map nodes as needed) and pins what has to be read.
    pub(crate) async fn plan(&self, first: u64, count: usize) -> Result<(Vec<Entry>, Vec<Source>), Error> {
        let end = first + count as u64;
        loop {
            let mut entries = Vec::with_capacity(count);
            let missing = {
                let mut core = self.core();
                let mut at = first;
                let mut missing = None;
                while at < end && missing.is_none() {
                    let until = end.min((at / NODE_ENTRIES as u64 + 1) * NODE_ENTRIES as u64);
                    let looked = core.map.lookup(at, (until - at) as usize, |_, entry| entries.push(entry));
                    missing = looked.err();
                    at = until;
                }
                if missing.is_none() {
                    let source = |i: usize, entry: &Entry| match entry.fill_word() {
                        Some(word) => Source::Fill(word),
                        None if entry.is_unmapped() => Source::Fill(0),
                        None if entry.is_frame() && i > 0 && entries[i - 1] == *entry => Source::Same,
                        None => {
                            let fetch = core.fetch(*entry);
                            let segment = core.segments.get(core.segments.of(*entry));
                            let recent = segment.unwritten > 0 || segment.state() == State::Open;
                            match recent.then(|| core.log.in_memory(*entry)).flatten() {
                                Some(memory) => Source::Memory(memory, fetch),
                                None => Source::Media(fetch),
                            }
                        }
                    };
                    let sources = entries.iter().enumerate().map(|(i, entry)| source(i, entry)).collect();
                    return Ok((entries, sources));
                }
                missing
            };
            if let Some(missing) = missing {
                self.load(missing).await?;
            }
        }
    }

    /// Reads from the medium what a plan needs, so many runs at once: the bytes of each, with its position and where in the
    /// buffer it begins.
    pub(crate) async fn fetch_runs(
        &self,
        sources: &[Source],
        at_once: usize,
    ) -> Result<Vec<(u64, IoBuf, usize)>, Error> {
        let runs = runs_of(sources);
        let mut fetched: Vec<(u64, IoBuf, usize)> = Vec::with_capacity(runs.len());
        if let [run] = &runs[..] {
            let (bytes, at) = self.read_range(run.position, run.len).await?;
            fetched.push((run.position, bytes, at));
            return Ok(fetched);
        }
        for some in runs.chunks(at_once) {
            let reads = some.iter().map(|run| self.read_range(run.position, run.len));
            for (run, result) in some.iter().zip(join_all(reads).await) {
                let (bytes, at) = result?;
                fetched.push((run.position, bytes, at));
            }
        }
        Ok(fetched)
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

/// The reads of the medium that bring all records of a plan, in rising order.
fn runs_of(sources: &[Source]) -> Vec<Run> {
    let place = |source: &Source| match source {
        Source::Media(fetch) => Some((fetch.entry.position_bytes(), fetch.entry.len_bytes() as u64)),
        _ => None,
    };
    let mut places: Vec<(u64, u64)> = sources.iter().filter_map(place).collect();
    if !places.is_sorted() {
        places.sort_unstable();
    }
    let mut runs: Vec<Run> = Vec::new();
    for (position, len) in places {
        match runs.last_mut() {
            Some(run)
                if position <= run.position + run.len as u64 + GAP_MAX_BYTES
                    && position + len - run.position <= RUN_MAX_BYTES =>
            {
                run.len = run.len.max((position + len - run.position) as usize);
            }
            _ => runs.push(Run { position, len: len as usize }),
        }
    }
    runs
}

/// The bytes of a record in what was fetched.
pub(crate) fn bytes_of<'a>(fetched: &'a [(u64, IoBuf, usize)], fetch: &Fetch) -> &'a [u8] {
    let position = fetch.entry.position_bytes();
    let run = fetched.partition_point(|(start, _, _)| *start <= position) - 1;
    let (start, bytes, at) = &fetched[run];
    let from = (position - start) as usize + at;
    &bytes[from..from + fetch.entry.len_bytes()]
}

/// Verifies the record that holds a block and decompresses it; `out` may be a part of its contents, which begins at `skip`.
pub(crate) fn decode_data(
    dictionaries: &Dictionaries,
    block: u64,
    bytes: &[u8],
    fetch: &Fetch,
    skip: usize,
    out: &mut [u8],
) -> Result<(), Error> {
    try_decode(dictionaries, block, bytes, fetch.entry, fetch.mask, skip, out).map_err(|why| {
        let position = fetch.entry.position_bytes();
        Error::Corrupt(format!("record of block {block} at byte {position:#x} of the backing: {why}"))
    })
}

/// As [`decode_data`]; the error only says what is wrong, not where.
fn try_decode(
    dictionaries: &Dictionaries,
    block: u64,
    bytes: &[u8],
    entry: Entry,
    mask: u32,
    skip: usize,
    out: &mut [u8],
) -> Result<(), String> {
    let record = decode_record(bytes, mask).map_err(|error| error.to_string())?;
    let (header, blocks) = (&record.header, entry.blocks());
    if header.kind != RecordKind::Data {
        return Err(format!("it is no data ({:?})", header.kind));
    }
    if header.block != entry.first_block(block) || header.blocks() != blocks {
        return Err(match header.blocks() {
            1 => format!("it is the record of block {}", header.block),
            several => format!("it is the record of {several} blocks from {} on", header.block),
        });
    }
    if !header.applies_to(block) {
        return Err("it leaves this block out".to_string());
    }
    let id = CodecId::try_from(header.codec_number()).map_err(|error| error.to_string())?;
    let dictionary = dictionaries.of(header.extra)?;
    let dictionary = dictionary.as_ref();
    let whole_bytes = blocks as usize * BLOCK_BYTES;
    let decoded = codec::with_decompressor(|decompressor| {
        if out.len() == whole_bytes {
            return decompressor.decompress(id, record.payload, dictionary, out);
        }
        WHOLE.with_borrow_mut(|whole| {
            whole.resize(whole_bytes.max(whole.len()), 0);
            decompressor.decompress_prefix(
                id,
                record.payload,
                dictionary,
                &mut whole[..whole_bytes],
                skip + out.len(),
            )?;
            out.copy_from_slice(&whole[skip..skip + out.len()]);
            Ok(())
        })
    });
    decoded.map_err(|error| error.to_string())
}

thread_local! {
    /// Contents of a record of which only a part is wanted.
    static WHOLE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Verifies and decodes the record that holds a block without wanting its contents; the error only says what is wrong.
pub(crate) fn verify_record(
    dictionaries: &Dictionaries,
    block: u64,
    bytes: &[u8],
    entry: Entry,
    mask: u32,
) -> Result<(), String> {
    let mut contents = vec![0; entry.blocks() as usize * BLOCK_BYTES];
    try_decode(dictionaries, block, bytes, entry, mask, 0, &mut contents)
}

/// The contents of the blocks of a record that was verified.
pub(crate) fn decode_verified(
    header: &RecordHeader,
    payload: &[u8],
    dictionary: Option<&Dictionary>,
) -> Result<Vec<u8>, String> {
    let id = CodecId::try_from(header.codec_number()).map_err(|error| error.to_string())?;
    let mut contents = vec![0; header.blocks() as usize * BLOCK_BYTES];
    codec::with_decompressor(|decompressor| decompressor.decompress(id, payload, dictionary, &mut contents))
        .map_err(|error| error.to_string())?;
    Ok(contents)
}
