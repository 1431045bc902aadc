//! A thread of a scan: reads blocks and units, measures them, adds up.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use codec::Policy;
use layout::BLOCK_BYTES;

use crate::estimate::Tally;
use crate::layouts::{Rival, UNIT_BYTES_MAX};
use crate::measure::{BlockTally, Kept, Meter, UnitTally};
use crate::predict::Leaves;
use crate::source::{Extent, Pace, Population, ReadAt};
use crate::types::{self, HEAD_BYTES, Names};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Number of a type that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// What all threads share.
pub(crate) struct Shared<'a> {
    pub(crate) population: &'a Population,
    pub(crate) pace: &'a Pace,
    /// Everything is read in order, not samples here and there.
    pub(crate) full: bool,
    pub(crate) types: Mutex<Names>,
    type_of: Vec<AtomicU32>,
    /// Files told one by one: the largest.
    pub(crate) largest: HashMap<u32, ()>,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Shared<'a> {
    pub(crate) fn new(
        population: &'a Population,
        pace: &'a Pace,
        full: bool,
        progress: &'a (dyn Fn(u64) + Sync),
    ) -> Shared<'a> {
        /// Files told one by one, at most.
        const LARGEST_MAX: usize = 100;
        let items = population.items();
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_by_key(|item| std::cmp::Reverse(items[*item as usize].bytes));
        order.truncate(LARGEST_MAX);
        Shared {
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

    /// The type of an item, by number; found out when the item is first opened.
    fn type_of(&self, item: u32, reader: &mut dyn ReadAt) -> u32 {
        let known = self.type_of[item as usize].load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known;
        }
        let extension = types::by_extension(&self.population.file_name(item));
        let name = match extension {
            // A sample is not worth another read where the name tells.
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

/// Sums of parts of the data: bytes of record, a block.
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

/// What a thread has measured.
pub(crate) struct Sums {
    pub(crate) blocks: BlockTally,
    /// Bytes of record and map entry, a block.
    pub(crate) mapped: Tally,
    pub(crate) units: UnitTally,
    pub(crate) parts: Parts,
    pub(crate) leaf_bytes: u64,
    pub(crate) leaves: u64,
    /// Blocks that could not be read.
    pub(crate) lost_blocks: u64,
}

impl Sums {
    pub(crate) fn new(codecs: usize, rivals: usize) -> Sums {
        Sums {
            blocks: BlockTally::new(codecs),
            mapped: Tally::default(),
            units: UnitTally::new(rivals),
            parts: Parts::default(),
            leaf_bytes: 0,
            leaves: 0,
            lost_blocks: 0,
        }
    }

    pub(crate) fn merge(&mut self, other: &Sums) {
        self.blocks.merge(&other.blocks);
        self.mapped.merge(&other.mapped);
        self.units.merge(&other.units);
        self.parts.merge(&other.parts);
        self.leaf_bytes += other.leaf_bytes;
        self.leaves += other.leaves;
        self.lost_blocks += other.lost_blocks;
    }
}

pub(crate) struct Worker {
    meter: Meter,
    pub(crate) sums: Sums,
    leaves: Leaves,
    open: Option<Open>,
    buf: Vec<u8>,
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
            leaves: Leaves::default(),
            open: None,
            buf: Vec::new(),
        }
    }

    /// Makes an item the open one. False: it cannot be read.
    fn open(&mut self, shared: &Shared<'_>, item: u32) -> bool {
        if self.open.as_ref().is_some_and(|open| open.item == item) {
            return true;
        }
        self.open = None;
        match shared.population.open(item, !shared.full) {
            Ok(mut reader) => {
                let kind = shared.type_of(item, &mut *reader);
                self.open = Some(Open { item, kind, reader });
                true
            }
            Err(error) => {
                shared.population.unreadable(item, error);
                false
            }
        }
    }

    /// Reads blocks of the open item to the end of the buffer; the last one of an item is padded with zeros. Answers
    /// false, and leaves the buffer as it was, if they are not all there.
    fn read(&mut self, shared: &Shared<'_>, first: u64, blocks: u64) -> bool {
        let Some(open) = &mut self.open else { return false };
        let bytes = shared.population.items()[open.item as usize].bytes;
        let start = self.buf.len();
        self.buf.resize(start + (blocks * BLOCK) as usize, 0);
        let wanted = (blocks * BLOCK).min(bytes.saturating_sub(first * BLOCK)) as usize;
        shared.pace.wait(wanted as u64);
        let read = open.reader.read_at(first * BLOCK, &mut self.buf[start..start + wanted]);
        let got = *read.as_ref().unwrap_or(&0);
        shared.read_bytes.fetch_add(got as u64, Ordering::Relaxed);
        match read {
            Ok(got) if got == wanted => true,
            Ok(_) => {
                shared.population.changed(open.item, "is shorter than when it was listed");
                self.buf.truncate(start);
                false
            }
            Err(error) => {
                shared.population.unreadable(open.item, error);
                self.buf.truncate(start);
                false
            }
        }
    }

    /// Measures single blocks, given by number and in rising order.
    pub(crate) fn sample(&mut self, shared: &Shared<'_>, blocks: &[u64]) {
        self.buf.clear();
        let mut origins = Vec::with_capacity(blocks.len());
        for &number in blocks {
            let Some((extent, block)) = shared.population.locate(number) else { continue };
            let item = extent.item;
            if self.open(shared, item) && self.read(shared, block, 1) {
                let kind = self.open.as_ref().map_or(0, |open| open.kind);
                origins.push((item, kind));
            }
        }
        let mut origins = origins.into_iter();
        let data = std::mem::take(&mut self.buf);
        self.measure(&data, |kept, sums, _| {
            if let Some((item, kind)) = origins.next() {
                count_part(shared, sums, item, kind, kept);
            }
        });
        self.buf = data;
        (shared.progress)(blocks.len() as u64 * BLOCK);
    }

    /// Measures the unit that a block lies in: the part of its extent in an aligned 128 KiB.
    pub(crate) fn sample_unit(&mut self, shared: &Shared<'_>, number: u64) {
        const UNIT_BLOCKS: u64 = UNIT_BYTES_MAX as u64 / BLOCK;
        let Some((extent, block)) = shared.population.locate(number) else { return };
        let unit = block / UNIT_BLOCKS * UNIT_BLOCKS;
        let first = unit.max(extent.first);
        let end = (unit + UNIT_BLOCKS).min(extent.first + extent.blocks);
        let item = extent.item;
        self.buf.clear();
        if self.open(shared, item) && self.read(shared, first, end - first) {
            self.meter.unit(&self.buf, &mut self.sums.units);
        }
        (shared.progress)(UNIT_BYTES_MAX as u64);
    }

    /// Measures pieces of extents that lie in one leaf of an item.
    pub(crate) fn leaf(&mut self, shared: &Shared<'_>, pieces: &[Extent]) {
        let Some(first) = pieces.first() else { return };
        // As it lies on the device: a leaf of its own. Files lie one behind the other.
        let alone = shared.population.items()[first.item as usize].alone;
        if alone {
            self.leaves.end_leaf();
        }
        for piece in pieces {
            if alone {
                self.leaves.skip_to(piece.first % layout::NODE_ENTRIES as u64);
            }
            self.piece(shared, piece);
        }
        if alone {
            self.leaves.end_leaf();
        }
    }

    fn piece(&mut self, shared: &Shared<'_>, piece: &Extent) {
        self.buf.clear();
        if !self.open(shared, piece.item) {
            self.sums.lost_blocks += piece.blocks;
        } else if !self.read(shared, piece.first, piece.blocks) {
            // Somewhere in it: block by block then.
            for block in piece.first..piece.first + piece.blocks {
                self.sums.lost_blocks += u64::from(!self.read(shared, block, 1));
            }
        }
        let kind = self.open.as_ref().map_or(0, |open| open.kind);
        let data = std::mem::take(&mut self.buf);
        self.measure(&data, |kept, sums, leaves| {
            count_part(shared, sums, piece.item, kind, kept);
            leaves.push(kept);
        });
        for unit in data.chunks(UNIT_BYTES_MAX) {
            self.meter.unit(unit, &mut self.sums.units);
        }
        self.buf = data;
        (shared.progress)(piece.blocks * BLOCK);
    }

    /// Measures bytes that come from a stream, all of them: whole blocks.
    pub(crate) fn stream_piece(&mut self, data: &[u8]) {
        self.measure(data, |kept, _, leaves| leaves.push(kept));
        self.leaves.end_leaf();
        for unit in data.chunks(UNIT_BYTES_MAX) {
            self.meter.unit(unit, &mut self.sums.units);
        }
    }

    /// Measures blocks that were drawn from a stream.
    pub(crate) fn stream_blocks(&mut self, data: &[u8]) {
        self.measure(data, |_, _, _| ());
    }

    /// Measures a unit that was drawn from a stream.
    pub(crate) fn stream_unit(&mut self, data: &[u8]) {
        self.meter.unit(data, &mut self.sums.units);
    }

    fn measure(&mut self, data: &[u8], mut each: impl FnMut(Kept, &mut Sums, &mut Leaves)) {
        let mut kept_all = Vec::with_capacity(data.len() / BLOCK_BYTES);
        self.meter.blocks(data, &mut self.sums.blocks, |kept| kept_all.push(kept));
        for kept in kept_all {
            let entry = if matches!(kept, Kept::Record(_)) { 8 } else { 0 };
            self.sums.mapped.add(kept.record_bytes() + entry);
            each(kept, &mut self.sums, &mut self.leaves);
        }
    }

    /// All that was measured.
    pub(crate) fn finish(mut self) -> Sums {
        self.leaves.end_leaf();
        self.sums.leaf_bytes = self.leaves.bytes;
        self.sums.leaves = self.leaves.count;
        self.sums
    }
}

fn count_part(shared: &Shared<'_>, sums: &mut Sums, item: u32, kind: u32, kept: Kept) {
    let bytes = kept.record_bytes();
    sums.parts.types.entry(kind).or_default().add(bytes);
    let group = shared.population.items()[item as usize].group;
    sums.parts.groups.entry(group).or_default().add(bytes);
    if shared.largest.contains_key(&item) {
        sums.parts.files.entry(item).or_default().add(bytes);
    }
}

/// A stream read to the end of a buffer. Answers bytes read.
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
