//! Plans of reads: where blocks come from, and what has to be fetched for them.

use std::ops::Range;

use futures::future::join_all;
use layout::{BLOCK_BYTES, Entry, NODE_ENTRIES};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::medium::load::Fetch;
use crate::planted::PlantedBug;
use crate::shared::Shared;
use crate::state::core::Core;
use crate::state::log::InMemory;
use crate::state::parity::Then;
use crate::state::segments::SegmentState;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Records closer together than this are fetched with one read, because another one would cost more.
const GAP_MAX_BYTES: u64 = 16 * 1024;
/// Largest read.
const RUN_MAX_BYTES: u64 = 512 * 1024;

/// Origin of a block.
pub(crate) enum Source {
    /// One word, repeated.
    Fill(u32),
    /// A record in a pack that is not yet on the medium.
    Memory(InMemory, Fetch),
    /// A record on the medium.
    Media(Fetch),
    /// The same frame as the previous block.
    Same,
    /// Cached, and already in the host's buffer.
    Done,
}

/// Origins of adjacent blocks.
pub(crate) struct Plan {
    first: u64,
    pub(crate) entries: Vec<Entry>,
    /// One per block.
    pub(crate) sources: Vec<Source>,
}

/// Data read for a plan: the bytes of each run, with its position and its offset in the buffer.
pub(crate) type Runs = Vec<(u64, IoBuf, usize)>;

/// The part of a buffer that one source fills.
pub(crate) struct Part {
    /// Number of the source.
    pub(crate) source: usize,
    /// The block after those that it fills.
    pub(crate) next: u64,
    /// The first block that it fills.
    pub(crate) block: u64,
    /// Range in the buffer.
    pub(crate) range: Range<usize>,
    /// Bytes of the record's contents before that range.
    pub(crate) skip: usize,
}

impl Plan {
    /// The records that are read from the medium.
    fn media_entries(&self) -> impl Iterator<Item = Entry> {
        self.sources.iter().filter_map(|source| match source {
            Source::Media(fetch) => Some(fetch.entry),
            _ => None,
        })
    }

    /// Everything was read: segments need not be kept for it any more.
    pub(crate) fn release(&mut self) {
        for source in &mut self.sources {
            if let Source::Memory(_, fetch) | Source::Media(fetch) = source {
                fetch.pin = None;
            }
        }
    }

    /// Returns the source of a block, or of the previous block if that is the same.
    fn source_of(&self, block: u64) -> usize {
        let mut source = (block - self.first) as usize;
        while matches!(self.sources[source], Source::Same) {
            source -= 1;
        }
        source
    }

    /// Returns the part of a buffer (which begins at byte `offset` and is `len` bytes long) that one source
    /// fills from a block on.
    pub(crate) fn part_at(&self, block: u64, offset: u64, len: usize) -> Option<Part> {
        let end = offset + len as u64;
        if block * BLOCK >= end {
            return None;
        }
        let source = self.source_of(block);
        let entry = match &self.sources[source] {
            Source::Memory(_, fetch) | Source::Media(fetch) => fetch.entry,
            _ => Entry::UNMAPPED,
        };
        let behind = &self.sources[(block - self.first) as usize + 1..];
        let same = behind.iter().take_while(|source| matches!(source, Source::Same)).count();
        let next = block + 1 + same as u64;
        let (from, to) = ((block * BLOCK).max(offset), (next * BLOCK).min(end));
        let skip = (from - entry.first_block(block) * BLOCK) as usize;
        Some(Part { source, next, block, range: (from - offset) as usize..(to - offset) as usize, skip })
    }

    /// Fills a buffer that begins at byte `offset` with what was fetched. `decode` decodes a part of it from
    /// its record.
    pub(crate) fn fill(
        &self,
        runs: &Runs,
        offset: u64,
        buf: &mut [u8],
        mut decode: impl FnMut(&Part, &[u8], &Fetch, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut next = offset / BLOCK;
        while let Some(part) = self.part_at(next, offset, buf.len()) {
            next = part.next;
            let out = &mut buf[part.range.clone()];
            match &self.sources[part.source] {
                // A read may begin within a word.
                Source::Fill(word) => codec::fill(out, word.rotate_right(8 * (part.skip % 4) as u32)),
                Source::Done => {}
                source => {
                    if let Some((record, fetch)) = record_of(source, runs) {
                        decode(&part, record, fetch, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the record that a block comes from, if there is one.
    pub(crate) fn record<'a>(&'a self, block: u64, runs: &'a Runs) -> Option<(&'a [u8], &'a Fetch)> {
        record_of(&self.sources[self.source_of(block)], runs)
    }
}

fn record_of<'a>(source: &'a Source, runs: &'a Runs) -> Option<(&'a [u8], &'a Fetch)> {
    match source {
        Source::Memory(memory, fetch) => Some((memory.bytes(fetch.entry.len_bytes()), fetch)),
        Source::Media(fetch) => Some((bytes_of(runs, fetch), fetch)),
        Source::Fill(_) | Source::Same | Source::Done => None,
    }
}

/// One read of the medium for several records.
struct Run {
    position: u64,
    len: usize,
}

impl Core {
    /// The planted mistake: what is in memory is judged by the state of the segment.
    fn is_recent(&self, fetch: &Fetch) -> bool {
        let segment = self.segments.get(self.segments.of(fetch.entry));
        segment.unwritten > 0 || segment.state() == SegmentState::Open
    }
}

impl<M: Media> Shared<M> {
    /// Looks blocks up (loading map nodes as needed) and pins what has to be read.
    pub(crate) async fn plan(&self, first: u64, count: usize) -> Result<Plan, Error> {
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
                    assert_eq!(entries.len(), count, "each block has an entry");
                    let mut source = |i: usize, block: u64, entry: &Entry| match entry.fill_word() {
                        Some(word) => Source::Fill(word),
                        None if entry.is_unmapped() => Source::Fill(0),
                        None if i > 0 && entries[i - 1] == *entry && entry.joins(block - 1, block) => {
                            Source::Same
                        }
                        None => {
                            let fetch = core.fetch(*entry);
                            // Whatever state its segment is in: one that took no write may have an open pack.
                            let asks =
                                !self.planted.has(PlantedBug::OpenPackOverlooked) || core.is_recent(&fetch);
                            match asks.then(|| core.log.in_memory(*entry)).flatten() {
                                Some(memory) => Source::Memory(memory, fetch),
                                None => Source::Media(fetch),
                            }
                        }
                    };
                    let sources = (first..)
                        .zip(&entries)
                        .enumerate()
                        .map(|(i, (block, entry))| source(i, block, entry))
                        .collect();
                    // Segments that wait for readers to let go keep the drive from resting by themselves.
                    core.mark_unchanged();
                    return Ok(Plan { first, entries, sources });
                }
                missing
            };
            if let Some(missing) = missing {
                self.load(missing).await?;
            }
        }
    }

    /// Reads what a plan needs from the medium, `at_once` runs at a time.
    pub(crate) async fn fetch_runs(&self, plan: &Plan, at_once: usize) -> Result<Runs, Error> {
        let runs = runs_of(&plan.sources);
        let mut fetched: Runs = Vec::with_capacity(runs.len());
        if let [run] = &runs[..] {
            self.take_run(plan, run, &mut fetched, self.read_range(run.position, run.len).await).await?;
            return Ok(fetched);
        }
        for some in runs.chunks(at_once) {
            let reads = some.iter().map(|run| self.read_range(run.position, run.len));
            for (run, result) in some.iter().zip(join_all(reads).await) {
                self.take_run(plan, run, &mut fetched, result).await?;
            }
        }
        Ok(fetched)
    }

    /// Adds what was read. If that failed, its records are read one by one: what is lost may be between them.
    async fn take_run(
        &self,
        plan: &Plan,
        run: &Run,
        fetched: &mut Runs,
        result: Result<(IoBuf, usize), Error>,
    ) -> Result<(), Error> {
        let error = match result {
            Ok((bytes, at)) => {
                fetched.push((run.position, bytes, at));
                return Ok(());
            }
            Err(error) => error,
        };
        let mut places = places_of(&plan.sources);
        places.retain(|(position, _)| (run.position..run.position + run.len as u64).contains(position));
        places.dedup();
        if places.len() == 1 {
            return Err(error);
        }
        for (position, len) in places {
            let (bytes, at) = self.read_range(position, len as usize).await?;
            fetched.push((position, bytes, at));
        }
        Ok(())
    }

    /// A host does not get what a plan says. Counts what is lost of it. `is_wrong`: all was read, and some of
    /// it is not as it was written.
    pub(crate) fn count_lost_of(&self, plan: &Plan, is_wrong: bool) {
        let entries: Vec<Entry> = plan.media_entries().collect();
        for entry in &entries {
            self.count_lost(*entry, is_wrong && entries.len() == 1);
        }
    }

    /// The same as [`Shared::lacking_reads`], for any record of a plan.
    pub(crate) fn lacking_reads_of(&self, plan: &Plan) -> Option<Error> {
        plan.media_entries().find_map(|entry| self.lacking_reads(entry.position_bytes(), entry.len_bytes()))
    }

    /// A record in what was fetched is not what it should be. Returns whether something of it was made again.
    pub(crate) async fn repair_runs(&self, runs: &mut Runs) -> bool {
        let mut is_new = false;
        for run in runs {
            is_new |= self.repair_run(run).await;
        }
        is_new
    }

    /// The same, for one run.
    pub(crate) async fn repair_run(&self, (position, bytes, at): &mut (u64, IoBuf, usize)) -> bool {
        let start = *position - *at as u64;
        // What cannot be made again may be between the records.
        let made = self.repaired_in_part(start, start + bytes.len() as u64, Some(bytes), Then::Move).await;
        made.map(|(made, _)| *bytes = made).is_some()
    }
}

/// Returns the places of records that are read from the medium, in rising order.
fn places_of(sources: &[Source]) -> Vec<(u64, u64)> {
    let place = |source: &Source| match source {
        Source::Media(fetch) => Some((fetch.entry.position_bytes(), fetch.entry.len_bytes() as u64)),
        _ => None,
    };
    let mut places: Vec<(u64, u64)> = sources.iter().filter_map(place).collect();
    if !places.is_sorted() {
        places.sort_unstable();
    }
    places
}

/// Returns the reads of the medium for all records of a plan, in rising order.
fn runs_of(sources: &[Source]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (position, len) in places_of(sources) {
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

/// Returns the bytes of a record in what was fetched.
fn bytes_of<'a>(fetched: &'a [(u64, IoBuf, usize)], fetch: &Fetch) -> &'a [u8] {
    let position = fetch.entry.position_bytes();
    let run = fetched.partition_point(|(start, _, _)| *start <= position) - 1;
    let (start, bytes, at) = &fetched[run];
    let from = (position - start) as usize + at;
    &bytes[from..from + fetch.entry.len_bytes()]
}
