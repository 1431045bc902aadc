//! A request prepared for the log: compressed, with checksums, outside the lock.

use std::cell::RefCell;
use std::ops::Range;

use codec::{CodecId, Coded, Dictionary, Kind, frame_blocks};
use layout::record::{RECORD_HEADER_BYTES, encode_range};
use layout::{BLOCK_BYTES, Entry, RecordHeader, RecordKind, UNIT_BYTES};

use crate::state::recipe::Recipe;
use crate::state::tally::level_of;

/// A block as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) block: u64,
    pub(crate) entry: Entry,
    /// Generation of the record's segment.
    pub(crate) generation: u32,
}

/// Place of an item's payload.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// In the batch's scratch.
    Scratch(Range<usize>),
    /// In the host's buffer: stored uncompressed.
    Source(Range<usize>),
}

/// A future record.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Data { header: RecordHeader, payload: Payload },
    Range { header: RecordHeader, payload: [u8; 16], count: u64, entry: Entry },
}

impl Item {
    /// Bytes of log it takes.
    pub(crate) fn record_len(&self) -> usize {
        match self {
            Item::Data { header, .. } | Item::Range { header, .. } => header.record_len(),
        }
    }

    /// Returns whether it leaves a block of [`Item::blocks`] unchanged.
    pub(crate) fn leaves_out(&self, block: u64) -> bool {
        matches!(self, Item::Data { header, .. } if !header.applies_to(block))
    }

    /// Its first block, and the one after its last.
    pub(crate) fn blocks(&self) -> (u64, u64) {
        match self {
            Item::Data { header, .. } => (header.block, header.block + header.blocks()),
            Item::Range { header, count, .. } => (header.block, header.block + count),
        }
    }
}

/// Fill level of a batch, to return to.
pub(crate) struct Mark {
    items: usize,
    last: Option<Item>,
    scratch: usize,
    expected: usize,
    log_bytes: usize,
    data_bytes: usize,
    dictionaries: usize,
}

/// Records to be appended together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Item>,
    pub(crate) scratch: Vec<u8>,
    /// Blocks that must be unchanged when the batch is appended.
    pub(crate) expected: Vec<Seen>,
    /// Its space is reserved: it is not refused for lack of space.
    pub(crate) reserved: bool,
    /// It is as small as the drive can make it.
    pub(crate) dense: bool,
    /// Bytes of log for all items.
    pub(crate) log_bytes: usize,
    data_bytes: usize,
    /// Kinds of the blocks of a run.
    kinds: Vec<Kind>,
    /// Dictionaries that its records need.
    pub(crate) dictionaries: Vec<u16>,
    /// Level at which its records are compressed, if their codec has levels.
    pub(crate) level: Option<i8>,
}

/// Compressor and recipe.
struct Making<'a> {
    compressor: &'a mut codec::Compressor,
    recipe: &'a Recipe,
}

impl Making<'_> {
    /// Returns whether a frame of doubtful blocks is stored uncompressed for now.
    fn puts_off(&mut self, data: &[u8]) -> bool {
        self.recipe.puts_off && self.compressor.gains_little(data, self.recipe.dictionary_for(data))
    }

    /// Returns codec and dictionary (0: none). The data was tested and does not look incompressible.
    fn compress(&mut self, data: &[u8], out: &mut Vec<u8>) -> (CodecId, u16) {
        let dictionary = self.recipe.dictionary_for(data);
        let coded = match self.recipe.effort {
            Some(effort) => self.compressor.compress_structured(data, dictionary, effort, out),
            None => {
                let id = self.compressor.compress_tested(data, dictionary, out);
                Coded { id, dictionary: id == CodecId::Zstd }
            }
        };
        (coded.id, dictionary.filter(|_| coded.dictionary).map_or(0, Dictionary::id))
    }
}

thread_local! {
    static SPARE: RefCell<Vec<Batch>> = const { RefCell::new(Vec::new()) };
}

impl Batch {
    /// Returns an empty batch with the buffers of an earlier one of this thread.
    pub(crate) fn take() -> Batch {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Returns the buffers for the next batch.
    pub(crate) fn give_back(mut self) {
        const SPARE_MAX: usize = 64;
        self.clear();
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(self);
            }
        });
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.scratch.clear();
        self.expected.clear();
        self.log_bytes = 0;
        self.data_bytes = 0;
        self.dictionaries.clear();
        self.level = None;
        self.reserved = false;
        self.dense = false;
    }

    /// 16-byte units that its data records will occupy.
    pub(crate) fn data_units(&self) -> u64 {
        (self.data_bytes / UNIT_BYTES) as u64
    }

    /// Returns whether it only frees space.
    pub(crate) fn frees(&self) -> bool {
        self.items.iter().all(|item| matches!(item, Item::Range { entry, .. } if entry.is_unmapped()))
    }

    /// Adds adjacent whole blocks from `block` on, neighbours in frames as the recipe says. `source_at` is
    /// their place in the host's buffer. `None`: they are elsewhere, so that uncompressed blocks have to be
    /// copied.
    pub(crate) fn add_run(&mut self, recipe: &Recipe, block: u64, data: &[u8], source_at: Option<usize>) {
        self.level = level_of(recipe.policy);
        let mut kinds = std::mem::take(&mut self.kinds);
        kinds.clear();
        kinds.extend(data.chunks_exact(BLOCK_BYTES).map(Kind::of));
        codec::with_compressor(recipe.policy, |compressor, _| {
            let mut making = Making { compressor, recipe };
            let mut done = 0;
            while done < kinds.len() {
                let (rest, first) = (&data[done * BLOCK_BYTES..], block + done as u64);
                let mut blocks = frame_blocks(first, &kinds[done..], recipe.frame_blocks);
                let bytes = &rest[..blocks * BLOCK_BYTES];
                if kinds[done..done + blocks].iter().all(|kind| *kind == Kind::Doubtful)
                    && making.puts_off(bytes)
                {
                    for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                        let at = source_at.map(|at| at + (done + i) * BLOCK_BYTES);
                        self.add_raw((first + i as u64, block), true, at);
                    }
                    done += blocks;
                    continue;
                }
                if blocks == 1 || !self.add_frame(&mut making, first, bytes) {
                    blocks = 1;
                    let at = source_at.map(|at| at + done * BLOCK_BYTES);
                    self.add_block(&mut making, first, &rest[..BLOCK_BYTES], kinds[done], at);
                }
                done += blocks;
            }
        });
        self.kinds = kinds;
    }

    /// Adds one block whose contents were assembled in a buffer of the engine. The block must be unchanged
    /// when the batch is appended.
    pub(crate) fn add_merged(&mut self, recipe: &Recipe, data: &[u8], seen: Seen) {
        self.expected.push(seen);
        self.add_run(recipe, seen.block, data, None);
    }

    /// Adds the `wanted` blocks of a group (one bit per block) in the way that makes them smallest: each way
    /// is a recipe, and whether all become one frame that leaves the others out, or runs of neighbours
    /// records of their own. The group begins at a multiple of its length if it is a frame's.
    pub(crate) fn add_smallest<'a>(
        &mut self,
        ways: impl IntoIterator<Item = (&'a Recipe, bool)>,
        first: u64,
        data: &[u8],
        wanted: u8,
    ) {
        let mut best: Option<Batch> = None;
        for (recipe, as_one) in ways {
            let mut one = Batch::take();
            let bytes = one.try_group(recipe, (first, wanted), data, as_one);
            let least = best.as_ref().map_or(usize::MAX, |best| best.log_bytes);
            let rest = match bytes.is_some_and(|bytes| bytes < least) {
                true => best.replace(one),
                false => Some(one),
            };
            rest.into_iter().for_each(Batch::give_back);
        }
        if let Some(best) = best {
            self.append(&best);
            best.give_back();
        }
    }

    /// Adds what another batch holds. Nothing of it is in a host's buffer.
    fn append(&mut self, other: &Batch) {
        let start = self.scratch.len();
        self.scratch.extend_from_slice(&other.scratch);
        self.level = other.level;
        for item in &other.items {
            match item {
                Item::Range { header, count, entry, .. } => self.add_range(header.block, *count, *entry),
                Item::Data { header, payload } => {
                    let payload = match payload {
                        Payload::Scratch(range) => Payload::Scratch(start + range.start..start + range.end),
                        Payload::Source(range) => Payload::Source(range.clone()),
                    };
                    self.log_bytes += header.record_len();
                    self.data_bytes += header.record_len();
                    self.items.push(Item::Data { header: *header, payload });
                }
            }
        }
        for id in &other.dictionaries {
            if !self.dictionaries.contains(id) {
                self.dictionaries.push(*id);
            }
        }
    }

    /// Adds blocks of a group in one way. Returns their size in the log, or `None` if this way is not
    /// possible.
    fn try_group(
        &mut self,
        recipe: &Recipe,
        (first, wanted): (u64, u8),
        data: &[u8],
        as_one: bool,
    ) -> Option<usize> {
        let before = self.log_bytes;
        let count = data.len() / BLOCK_BYTES;
        if as_one {
            let is_frame = matches!(count, 2 | 4 | 8) && first.is_multiple_of(count as u64);
            // No fill is part of a frame: it takes no space in the map.
            let fills: Vec<(u64, u32)> = (first..)
                .zip(data.chunks_exact(BLOCK_BYTES))
                .filter(|(block, _)| wanted >> (block - first) & 1 != 0)
                .filter_map(|(block, bytes)| match Kind::of(bytes) {
                    Kind::Fill(word) => Some((block, word)),
                    _ => None,
                })
                .collect();
            let wanted = fills.iter().fold(wanted, |bits, (block, _)| bits & !(1 << (block - first)));
            let left_out = (u8::MAX >> (8 - count)) & !wanted;
            if !is_frame || left_out == 0 || wanted.count_ones() < 2 {
                return None;
            }
            fills.iter().for_each(|(block, word)| self.add_range(*block, 1, Entry::fill(*word)));
            let mut contents = data.to_vec();
            let holes =
                contents.chunks_exact_mut(BLOCK_BYTES).enumerate().filter(|(i, _)| left_out >> i & 1 != 0);
            holes.for_each(|(_, hole)| hole.fill(0));
            self.level = level_of(recipe.policy);
            let added = codec::with_compressor(recipe.policy, |compressor, _| {
                self.add_frame(&mut Making { compressor, recipe }, first, &contents)
            });
            let Some(Item::Data { header, payload: Payload::Scratch(range) }) =
                self.items.last_mut().filter(|_| added)
            else {
                return None;
            };
            header.left_out = left_out;
            sum(header, &self.scratch[range.clone()]);
            return Some(self.log_bytes - before);
        }
        let mut i = 0;
        while i < count {
            let run = ((wanted >> i).trailing_ones() as usize).min(count - i);
            if run > 0 {
                self.add_run(recipe, first + i as u64, &data[i * BLOCK_BYTES..(i + run) * BLOCK_BYTES], None);
            }
            i += run.max(1);
        }
        Some(self.log_bytes - before)
    }

    /// Returns the present fill level.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            items: self.items.len(),
            last: self.items.last().cloned(),
            scratch: self.scratch.len(),
            expected: self.expected.len(),
            log_bytes: self.log_bytes,
            data_bytes: self.data_bytes,
            dictionaries: self.dictionaries.len(),
        }
    }

    /// Removes what was added since.
    pub(crate) fn go_back(&mut self, mark: &Mark) {
        self.items.truncate(mark.items);
        // A range may have grown.
        if let (Some(item), Some(last)) = (self.items.last_mut(), &mark.last) {
            item.clone_from(last);
        }
        self.scratch.truncate(mark.scratch);
        self.expected.truncate(mark.expected);
        self.dictionaries.truncate(mark.dictionaries);
        (self.log_bytes, self.data_bytes) = (mark.log_bytes, mark.data_bytes);
    }

    /// Adds a frame, unless compressing its blocks together saves nothing. Returns whether it was added.
    fn add_frame(&mut self, making: &mut Making<'_>, first: u64, data: &[u8]) -> bool {
        let start = self.scratch.len();
        let (id, dictionary) = making.compress(data, &mut self.scratch);
        let bytes = self.scratch.len() - start;
        if id == CodecId::Raw || bytes + RECORD_HEADER_BYTES > Entry::FRAME_MAX_LEN_BYTES {
            self.scratch.truncate(start);
            return false;
        }
        let blocks = (first, (data.len() / BLOCK_BYTES) as u64);
        let coding = Coding { id, dictionary, settled: making.recipe.settled };
        self.add_data(coding, blocks, Payload::Scratch(start..start + bytes), None);
        true
    }

    fn add_block(&mut self, making: &mut Making<'_>, block: u64, data: &[u8], kind: Kind, at: Option<usize>) {
        let start = self.scratch.len();
        let (id, dictionary) = match kind {
            Kind::Fill(word) => return self.add_range(block, 1, Entry::fill(word)),
            Kind::Incompressible => return self.add_raw((block, data), false, at),
            Kind::Doubtful | Kind::Other => making.compress(data, &mut self.scratch),
        };
        if id == CodecId::Raw {
            return self.add_raw((block, data), false, at);
        }
        let coding = Coding { id, dictionary, settled: making.recipe.settled };
        self.add_data(coding, (block, 1), Payload::Scratch(start..self.scratch.len()), None);
    }

    /// Adds an uncompressed block. `put_off`: settling is to try and compress it.
    fn add_raw(&mut self, (block, data): (u64, &[u8]), put_off: bool, at: Option<usize>) {
        let coding = Coding { id: CodecId::Raw, dictionary: 0, settled: put_off };
        if let Some(at) = at {
            let payload = Payload::Source(at..at + BLOCK_BYTES);
            return self.add_data(coding, (block, 1), payload, Some(data));
        }
        let start = self.scratch.len();
        self.scratch.extend_from_slice(data);
        self.add_data(coding, (block, 1), Payload::Scratch(start..self.scratch.len()), None);
    }

    /// Adds a data record. `source` is the place of the payload in the host's buffer.
    fn add_data(
        &mut self,
        coding: Coding,
        (block, blocks): (u64, u64),
        payload: Payload,
        source: Option<&[u8]>,
    ) {
        let bytes = match &payload {
            Payload::Scratch(range) => &self.scratch[range.clone()],
            Payload::Source(_) => source.unwrap_or_default(),
        };
        let codec = RecordHeader::data_codec(coding.id as u8, blocks, coding.settled);
        let header = summed(RecordKind::Data, block, codec, coding.dictionary, bytes);
        if coding.dictionary != 0 && !self.dictionaries.contains(&coding.dictionary) {
            self.dictionaries.push(coding.dictionary);
        }
        self.log_bytes += header.record_len();
        self.data_bytes += header.record_len();
        self.items.push(Item::Data { header, payload });
    }

    /// Adds a record that was compressed elsewhere, or an uncompressed one. `at` is its place in the host's
    /// buffer. `None`: it has to be copied.
    pub(crate) fn add_done(&mut self, blocks: (u64, u64), id: CodecId, payload: &[u8], at: Option<usize>) {
        let place = match at {
            Some(at) => Payload::Source(at..at + payload.len()),
            None => {
                let start = self.scratch.len();
                self.scratch.extend_from_slice(payload);
                Payload::Scratch(start..self.scratch.len())
            }
        };
        // Without a dictionary, because devices do not support them.
        let coding = Coding { id, dictionary: 0, settled: false };
        self.add_data(coding, blocks, place, Some(payload));
    }

    /// Adds a range of blocks that get an entry without a record. Extends the previous range if possible.
    pub(crate) fn add_range(&mut self, block: u64, count: u64, entry: Entry) {
        if let Some(Item::Range { header, payload, count: before, entry: same }) = self.items.last_mut()
            && *same == entry
            && header.block + *before == block
        {
            *before += count;
            *payload = encode_range(*before, entry);
            *header = summed(RecordKind::Range, header.block, 0, 0, payload);
            return;
        }
        let payload = encode_range(count, entry);
        let header = summed(RecordKind::Range, block, 0, 0, &payload);
        self.log_bytes += header.record_len();
        self.items.push(Item::Range { header, payload, count, entry });
    }
}

/// Compression of a data record.
#[derive(Clone, Copy)]
struct Coding {
    id: CodecId,
    dictionary: u16,
    /// Of an uncompressed block: compressing it was put off.
    settled: bool,
}

/// Returns a header with the checksum, without mask, of itself and its payload.
pub(crate) fn summed(kind: RecordKind, block: u64, codec: u8, extra: u16, payload: &[u8]) -> RecordHeader {
    let payload_len = payload.len() as u16;
    let mut header = RecordHeader { crc: 0, block, left_out: 0, payload_len, kind, codec, extra };
    sum(&mut header, payload);
    header
}

/// Sets a header's checksum, without mask.
pub(crate) fn sum(header: &mut RecordHeader, payload: &[u8]) {
    let mut raw = [0; RECORD_HEADER_BYTES];
    header.encode(&mut raw);
    header.crc = crc32c::crc32c_append(crc32c::crc32c(&raw[4..]), payload);
}
