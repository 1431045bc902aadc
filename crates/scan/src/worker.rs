//! A worker thread of a scan: reads blocks and units, measures them and sums up the results.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use codec::Policy;
use layout::BLOCK_BYTES;

use crate::estimate::Tally;
use crate::frames::{Cost, GROUP_BLOCKS, Kept};
use crate::layouts::{Rival, UNIT_BYTES_MAX};
use crate::measure::{BlockTally, CostTally, Meter, UnitTally};
use crate::predict::{LeafSum, Leaves};
use crate::source::{Extent, Pace, Population, ReadAt, ReadOrder};
use crate::types::{self, HEAD_BYTES, Names};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Number of a type that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// State shared by all threads.
pub(crate) struct ScanState<'a> {
    pub(crate) population: &'a Population,
    pub(crate) pace: &'a Pace,
    /// True if everything is read in order, false if samples are drawn.
    pub(crate) full: bool,
    pub(crate) types: Mutex<Names>,
    type_of: Vec<AtomicU32>,
    /// Files listed individually: the largest.
    pub(crate) largest: HashMap<u32, ()>,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> ScanState<'a> {
    pub(crate) fn new(
        population: &'a Population,
        pace: &'a Pace,
        full: bool,
        progress: &'a (dyn Fn(u64) + Sync),
    ) -> ScanState<'a> {
        /// Largest number of files listed individually.
        const LARGEST_MAX: usize = 100;
        let items = population.items();
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_by_key(|item| std::cmp::Reverse(items[*item as usize].bytes));
        order.truncate(LARGEST_MAX);
        ScanState {
            population,
            pace,
            full,
            types: Mutex::new(Names::default()),
            type_of: items.iter().map(|_| AtomicU32::new(UNKNOWN)).collect(),
            largest: order.into_iter().map(|item| (item, ())).collect(),
            read_bytes: AtomicU64::new(0),
            progress,
        }
    }

    /// Returns the number of an item's type, which is determined when the item is first opened.
    fn type_of(&self, item: u32, reader: &mut dyn ReadAt) -> u32 {
        let known = self.type_of[item as usize].load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known;
        }
        let extension = types::by_extension(&self.population.file_name(item));
        let name = match extension {
            // When sampling, a known extension saves a further read.
            Some(extension) if !self.full => extension,
            extension => {
                let mut head = vec![0; HEAD_BYTES];
                self.pace.wait(HEAD_BYTES as u64);
                let len = reader.read_at(0, &mut head).unwrap_or(0);
                self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
                head.truncate(len);
                types::by_magic(&head).or(extension).unwrap_or_else(|| types::by_looks(&head))
            }
        };
        let number = self.types.lock().map(|mut names| names.number(name)).unwrap_or(0);
        self.type_of[item as usize].store(number, Ordering::Relaxed);
        number
    }
}

/// Sums by parts of the data. A value is a block's share of its record, in fractions of a byte.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) types: HashMap<u32, Tally>,
    pub(crate) groups: HashMap<u32, Tally>,
    pub(crate) files: HashMap<u32, Tally>,
}

impl Parts {
    fn merge(&mut self, other: &Parts) {
        let merge = |to: &mut HashMap<u32, Tally>, from: &HashMap<u32, Tally>| {
            from.iter().for_each(|(number, tally)| to.entry(*number).or_default().merge(tally));
        };
        merge(&mut self.types, &other.types);
        merge(&mut self.groups, &other.groups);
        merge(&mut self.files, &other.files);
    }
}

/// Measurements of a thread.
pub(crate) struct Sums {
    pub(crate) blocks: BlockTally,
    /// Space taken by data written in large pieces.
    pub(crate) framed: CostTally,
    /// Space taken by blocks written one by one.
    pub(crate) single: CostTally,
    pub(crate) units: UnitTally,
    pub(crate) parts: Parts,
    /// All leaves of the map: with frames, and with single blocks.
    pub(crate) leaves: [LeafSum; 2],
    /// Number of blocks that could not be read.
    pub(crate) lost_blocks: u64,
}

impl Sums {
    pub(crate) fn new(codecs: usize, rivals: usize) -> Sums {
        Sums {
            blocks: BlockTally::new(codecs),
            framed: CostTally::default(),
            single: CostTally::default(),
            units: UnitTally::new(rivals),
            parts: Parts::default(),
            leaves: [LeafSum::default(); 2],
            lost_blocks: 0,
        }
    }

    pub(crate) fn merge(&mut self, other: &Sums) {
        self.blocks.merge(&other.blocks);
        self.framed.merge(&other.framed);
        self.single.merge(&other.single);
        self.units.merge(&other.units);
        self.parts.merge(&other.parts);
        self.leaves.iter_mut().zip(other.leaves).for_each(|(to, from)| to.add(from));
        self.lost_blocks += other.lost_blocks;
    }
}

pub(crate) struct Worker {
    meter: Meter,
    pub(crate) sums: Sums,
    /// Leaves of the map: with frames, and with single blocks.
    leaves: [Leaves; 2],
    open: Option<Open>,
    buf: Vec<u8>,
}

/// Blocks read from one item that are adjacent on the drive.
struct Segment {
    item: u32,
    kind: u32,
    position: u64,
    blocks: u64,
}

struct Open {
    item: u32,
    kind: u32,
    reader: Box<dyn ReadAt>,
}

impl Worker {
    pub(crate) fn new(codecs: &[Policy], rivals: &[Rival]) -> Worker {
        Worker {
            meter: Meter::new(codecs, rivals),
            sums: Sums::new(codecs.len(), rivals.len()),
            leaves: [Leaves::default(), Leaves::default()],
            open: None,
            buf: Vec::new(),
        }
    }

    /// Opens an item, unless it is open already. Returns false if it cannot be read.
    fn open(&mut self, state: &ScanState<'_>, item: u32) -> bool {
        if self.open.as_ref().is_some_and(|open| open.item == item) {
            return true;
        }
        self.open = None;
        let order = if state.full { ReadOrder::Sequential } else { ReadOrder::Random };
        match state.population.open(item, order) {
            Ok(mut reader) => {
                let kind = state.type_of(item, &mut *reader);
                self.open = Some(Open { item, kind, reader });
                true
            }
            Err(error) => {
                state.population.unreadable(item, error);
                false
            }
        }
    }

    /// Reads blocks of the open item and appends them to the buffer. The last block of an item is padded with
    /// zeros. Returns false and leaves the buffer unchanged if not all blocks could be read.
    fn read(&mut self, state: &ScanState<'_>, first: u64, blocks: u64) -> bool {
        let Some(open) = &mut self.open else { return false };
        let bytes = state.population.items()[open.item as usize].bytes;
        let start = self.buf.len();
        self.buf.resize(start + (blocks * BLOCK) as usize, 0);
        let wanted = (blocks * BLOCK).min(bytes.saturating_sub(first * BLOCK)) as usize;
        state.pace.wait(wanted as u64);
        let read = open.reader.read_at(first * BLOCK, &mut self.buf[start..start + wanted]);
        let got = *read.as_ref().unwrap_or(&0);
        state.read_bytes.fetch_add(got as u64, Ordering::Relaxed);
        match read {
            Ok(got) if got == wanted => true,
            Ok(_) => {
                state.population.changed(open.item, "is shorter than when it was listed");
                self.buf.truncate(start);
                false
            }
            Err(error) => {
                state.population.unreadable(open.item, error);
                self.buf.truncate(start);
                false
            }
        }
    }

    /// Measures individual blocks, given by number in ascending order. Reads nothing else.
    pub(crate) fn sample_alone(&mut self, state: &ScanState<'_>, blocks: &[u64]) {
        let mut alone = Vec::with_capacity(blocks.len() * BLOCK_BYTES);
        for &number in blocks {
            let Some((extent, block)) = state.population.locate(number) else { continue };
            let item = extent.item;
            self.buf.clear();
            if self.open(state, item) && self.read(state, block, 1) {
                alone.extend_from_slice(&self.buf);
            }
        }
        self.measure_alone(&alone);
        (state.progress)(blocks.len() as u64 * GROUP_BLOCKS * BLOCK);
    }

    /// Measures blocks, given by number in ascending order: each block alone, and the group that is
    /// compressed with it.
    pub(crate) fn sample(&mut self, state: &ScanState<'_>, blocks: &[u64]) {
        let mut alone = Vec::with_capacity(blocks.len() * BLOCK_BYTES);
        for &number in blocks {
            let Some((segment, position, at)) = self.read_group(state, number) else { continue };
            let data = std::mem::take(&mut self.buf);
            let mut kept = Vec::new();
            self.meter.frames(position, &data, &mut kept);
            alone.extend_from_slice(&data[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]);
            self.buf = data;
            let mut blocks = 0;
            let holds = kept.iter().find(|one| {
                blocks += one.blocks();
                blocks > at as u64
            });
            if let Some(one) = holds {
                count_part(state, &mut self.sums, &segment, *one);
            }
            let blocks = (self.buf.len() / BLOCK_BYTES) as u64;
            self.sums.framed.add(Cost::of(kept), blocks, 1);
        }
        self.measure_alone(&alone);
        (state.progress)(blocks.len() as u64 * GROUP_BLOCKS * BLOCK);
    }

    /// Reads the group that a block belongs to. Returns the segment of the block, the position of the group,
    /// and the index of the block in it. If the group cannot be read, reads the block alone; returns `None`
    /// if that fails too.
    fn read_group(&mut self, state: &ScanState<'_>, number: u64) -> Option<(Segment, u64, usize)> {
        let pieces = state.population.group_of(number, GROUP_BLOCKS);
        let own =
            pieces.iter().find(|piece| (piece.before..piece.before + piece.blocks).contains(&number))?;
        let only = Extent { first: own.first + (number - own.before), blocks: 1, before: number, ..*own };
        for pieces in [&pieces[..], &[only]] {
            self.buf.clear();
            let mut kind = 0;
            let whole = pieces.iter().all(|piece| {
                let read = self.open(state, piece.item) && self.read(state, piece.first, piece.blocks);
                if piece.item == own.item {
                    kind = self.open.as_ref().map_or(0, |open| open.kind);
                }
                read
            });
            if whole && let Some(first) = pieces.first() {
                let position = state.population.position(first);
                let segment = Segment { item: own.item, kind, position, blocks: 1 };
                return Some((segment, position, (number - first.before) as usize));
            }
        }
        None
    }

    /// Measures the unit that contains a block: the part of its extent within an aligned 128 KiB.
    pub(crate) fn sample_unit(&mut self, state: &ScanState<'_>, number: u64) {
        const UNIT_BLOCKS: u64 = UNIT_BYTES_MAX as u64 / BLOCK;
        let Some((extent, block)) = state.population.locate(number) else { return };
        let unit = block / UNIT_BLOCKS * UNIT_BLOCKS;
        let first = unit.max(extent.first);
        let end = (unit + UNIT_BLOCKS).min(extent.first + extent.blocks);
        let item = extent.item;
        self.buf.clear();
        if self.open(state, item) && self.read(state, first, end - first) {
            self.meter.unit(first, &self.buf, &mut self.sums.units);
        }
        (state.progress)(UNIT_BYTES_MAX as u64);
    }

    /// Measures pieces of extents that belong to one leaf of the map.
    pub(crate) fn leaf(&mut self, state: &ScanState<'_>, pieces: &[Extent]) {
        self.buf.clear();
        let mut segments = Vec::new();
        for piece in pieces {
            self.read_piece(state, piece, &mut segments);
        }
        let data = std::mem::take(&mut self.buf);
        self.measure_leaf(&data, &segments, Some(state));
        self.buf = data;
        let blocks: u64 = pieces.iter().map(|piece| piece.blocks).sum();
        (state.progress)(blocks * BLOCK);
    }

    /// Appends the readable blocks of a piece to the buffer.
    fn read_piece(&mut self, state: &ScanState<'_>, piece: &Extent, segments: &mut Vec<Segment>) {
        let opened = self.open(state, piece.item);
        let kind = self.open.as_ref().map_or(0, |open| open.kind);
        let position = state.population.position(piece);
        let mut segment =
            |position, blocks| segments.push(Segment { item: piece.item, kind, position, blocks });
        if !opened {
            self.sums.lost_blocks += piece.blocks;
        } else if self.read(state, piece.first, piece.blocks) {
            segment(position, piece.blocks);
        } else {
            // Part of the piece cannot be read. Reads it block by block.
            for at in 0..piece.blocks {
                if self.read(state, piece.first + at, 1) {
                    segment(position + at, 1);
                } else {
                    self.sums.lost_blocks += 1;
                }
            }
        }
    }

    /// Measures the blocks of a leaf of a stream that is read completely.
    pub(crate) fn stream_piece(&mut self, data: &[u8]) {
        let blocks = (data.len() / BLOCK_BYTES) as u64;
        self.measure_leaf(data, &[Segment { item: 0, kind: 0, position: 0, blocks }], None);
    }

    /// Measures a block drawn from a stream, with the space taken by its group.
    pub(crate) fn stream_block(&mut self, (block, cost, blocks): &(Vec<u8>, Cost, u64)) {
        self.sums.framed.add(*cost, *blocks, 1);
        self.measure_alone(block);
    }

    /// Measures a unit that was drawn from a stream.
    pub(crate) fn stream_unit(&mut self, data: &[u8]) {
        self.meter.unit(0, data, &mut self.sums.units);
    }

    /// Measures blocks as if each were written separately.
    fn measure_alone(&mut self, data: &[u8]) -> Vec<Kept> {
        let mut kept = Vec::with_capacity(data.len() / BLOCK_BYTES);
        self.meter.blocks(data, &mut self.sums.blocks, |one| kept.push(one));
        for one in &kept {
            self.sums.single.add(Cost::of([*one]), 1, 1);
        }
        kept
    }

    /// Measures the blocks of a leaf.
    fn measure_leaf(&mut self, data: &[u8], segments: &[Segment], state: Option<&ScanState<'_>>) {
        let singles = self.measure_alone(data);
        let mut kept = Vec::new();
        let mut rest = data;
        let mut slot = 0;
        for run in segments.chunk_by(|one, next| one.position + one.blocks == next.position) {
            let (position, blocks) = (run[0].position, run.iter().map(|segment| segment.blocks).sum::<u64>());
            let (bytes, behind) = rest.split_at((blocks * BLOCK) as usize);
            rest = behind;
            kept.clear();
            self.meter.frames(position, bytes, &mut kept);
            let [framed, single] = &mut self.leaves;
            framed.skip_to(position % layout::NODE_ENTRIES as u64);
            single.skip_to(position % layout::NODE_ENTRIES as u64);
            singles[slot..slot + blocks as usize].iter().for_each(|one| single.push(*one));
            slot += blocks as usize;
            let mut parts = run.iter().flat_map(|part| std::iter::repeat_n(part, part.blocks as usize));
            for one in &kept {
                framed.push(*one);
                self.sums.framed.records.add_times(one.parts_a_block(), one.blocks());
                for part in parts.by_ref().take(one.blocks() as usize) {
                    if let Some(state) = state {
                        count_part(state, &mut self.sums, part, *one);
                    }
                }
            }
            let mut unread = bytes;
            for part in run {
                let (bytes, behind) = unread.split_at((part.blocks * BLOCK) as usize);
                unread = behind;
                for (i, unit) in bytes.chunks(UNIT_BYTES_MAX).enumerate() {
                    let first = part.position + (i * UNIT_BYTES_MAX / BLOCK_BYTES) as u64;
                    self.meter.unit(first, unit, &mut self.sums.units);
                }
            }
        }
        self.leaves.iter_mut().for_each(Leaves::end_leaf);
    }

    /// Returns all measurements.
    pub(crate) fn finish(mut self) -> Sums {
        self.sums.leaves = self.leaves.map(|leaves| leaves.sum);
        self.sums
    }
}

fn count_part(state: &ScanState<'_>, sums: &mut Sums, part: &Segment, kept: Kept) {
    let value = kept.parts_a_block();
    sums.parts.types.entry(part.kind).or_default().add(value);
    let group = state.population.items()[part.item as usize].group;
    sums.parts.groups.entry(group).or_default().add(value);
    if state.largest.contains_key(&part.item) {
        sums.parts.files.entry(part.item).or_default().add(value);
    }
}

/// Reads a stream until the buffer is full or the stream ends. Returns the number of bytes read.
pub(crate) fn fill(stream: &mut dyn io::Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match stream.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
