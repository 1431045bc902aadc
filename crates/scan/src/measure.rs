//! Measurement of blocks and units: their size with each codec and each layout, and the CPU time taken.

use std::ops::Range;
use std::time::Duration;

use codec::{CodecId, Policy, fill_word};
use layout::BLOCK_BYTES;
use layout::record::RECORD_HEADER_BYTES;
use rustix::time::{ClockId, clock_gettime};

use crate::engine::Engine;
use crate::estimate::Tally;
use crate::frames::{Cost, Framer, GROUP_BLOCKS, Kept, PARTS_A_BYTE};
use crate::layouts::{Layout, Rival, sectors_bytes, vdo_bytes};

/// Bytes of the longest record of a block, with any codec.
pub const RECORD_BYTES_MAX: u64 = (BLOCK_BYTES + RECORD_HEADER_BYTES) as u64;

/// Number of blocks measured between two readings of the clock.
const BLOCKS_A_BATCH: usize = 32;

/// Bytes processed by a codec and the time taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    bytes: u64,
    compressing: Duration,
    decompressing: Duration,
}

impl Speed {
    /// Throughput of one core in 10^6 bytes per second: compression, decompression. `None` before anything
    /// was measured.
    pub(crate) fn mb_per_second(&self) -> Option<(f64, f64)> {
        let rate = |time: Duration| self.bytes as f64 / 1e6 / time.as_secs_f64();
        let known = self.bytes > 0 && !self.compressing.is_zero() && !self.decompressing.is_zero();
        known.then(|| (rate(self.compressing), rate(self.decompressing)))
    }

    fn merge(&mut self, other: &Speed) {
        self.bytes += other.bytes;
        self.compressing += other.compressing;
        self.decompressing += other.decompressing;
    }
}

/// Sums over blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockTally {
    /// 1 for a block of zeros, else 0.
    pub(crate) zeros: Tally,
    /// 1 for a block that repeats another 32-bit word, else 0.
    pub(crate) fills: Tally,
    /// 1 for a block that the first codec stores uncompressed, else 0.
    pub(crate) raw: Tally,
    /// Bytes of the record, for each codec.
    pub(crate) records: Vec<Tally>,
    /// Speed of each codec.
    pub(crate) speeds: Vec<Speed>,
}

impl BlockTally {
    /// Creates an empty tally for this number of codecs.
    pub(crate) fn new(codecs: usize) -> BlockTally {
        BlockTally {
            records: vec![Tally::default(); codecs],
            speeds: vec![Speed::default(); codecs],
            ..Default::default()
        }
    }

    /// Number of blocks measured.
    pub(crate) fn count(&self) -> u64 {
        self.zeros.count
    }

    /// Adds the sums of another tally.
    pub(crate) fn merge(&mut self, other: &BlockTally) {
        self.zeros.merge(&other.zeros);
        self.fills.merge(&other.fills);
        self.raw.merge(&other.raw);
        self.records.iter_mut().zip(&other.records).for_each(|(to, from)| to.merge(from));
        self.speeds.iter_mut().zip(&other.speeds).for_each(|(to, from)| to.merge(from));
    }
}

/// Sums over units of up to 128 KiB. A value is the size of the stored unit divided by its number of blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitTally {
    /// Bytes per block, for each rival.
    pub(crate) rivals: Vec<Tally>,
    /// Total bytes, for each rival.
    pub(crate) rival_bytes: Vec<u64>,
    /// Records, and records plus map, per block of a settled drive; in [`PARTS_A_BYTE`].
    pub(crate) settled: CostTally,
    /// Records and map of all units of a settled drive, in bytes.
    pub(crate) settled_sum: Cost,
    /// Number of units.
    pub(crate) count: u64,
    /// Total number of blocks.
    pub(crate) blocks: u64,
}

impl UnitTally {
    /// Creates an empty tally for this number of rivals.
    pub(crate) fn new(rivals: usize) -> UnitTally {
        UnitTally {
            rivals: vec![Tally::default(); rivals],
            rival_bytes: vec![0; rivals],
            ..Default::default()
        }
    }

    /// Adds the sums of another tally.
    pub(crate) fn merge(&mut self, other: &UnitTally) {
        self.rivals.iter_mut().zip(&other.rivals).for_each(|(to, from)| to.merge(from));
        self.rival_bytes.iter_mut().zip(&other.rival_bytes).for_each(|(to, from)| *to += from);
        self.settled.merge(&other.settled);
        self.settled_sum += other.settled_sum;
        self.count += other.count;
        self.blocks += other.blocks;
    }
}

/// Sums of the space taken by groups of blocks. A value is the size of the stored group divided by its number
/// of blocks, in [`PARTS_A_BYTE`]. It is a whole number for groups of up to eight blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CostTally {
    /// Bytes of records.
    pub(crate) records: Tally,
    /// Bytes of records plus the least that they add to the map.
    pub(crate) mapped: Tally,
}

impl CostTally {
    /// Adds a group of `blocks` blocks as the sample of `times` of its blocks.
    pub(crate) fn add(&mut self, cost: Cost, blocks: u64, times: u64) {
        let value = |bytes: u64| bytes * PARTS_A_BYTE / blocks.max(1);
        self.records.add_times(value(cost.records), times);
        self.mapped.add_times(value(cost.records + cost.map), times);
    }

    /// Adds the sums of another tally.
    pub(crate) fn merge(&mut self, other: &CostTally) {
        self.records.merge(&other.records);
        self.mapped.merge(&other.mapped);
    }
}

/// Codec and layout state of one thread.
pub(crate) struct Meter {
    engines: Vec<Engine>,
    rivals: Vec<(Layout, usize)>,
    rival_engines: Vec<Engine>,
    framer: Framer,
    settler: Framer,
    kept: Vec<Kept>,
    payloads: Vec<u8>,
    spans: Vec<(CodecId, Range<usize>)>,
    back: Vec<u8>,
}

/// Returns the CPU time of this thread. Other load on the machine does not count.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Meter {
    /// Creates a meter for these codecs and rivals. The first codec is that of the drive.
    pub(crate) fn new(codecs: &[Policy], rivals: &[Rival]) -> Meter {
        let mut used: Vec<Policy> = Vec::new();
        let mut engine_of = |codec: Policy| {
            used.iter().position(|have| *have == codec).unwrap_or_else(|| {
                used.push(codec);
                used.len() - 1
            })
        };
        let rivals = rivals.iter().map(|rival| (rival.layout, engine_of(rival.codec))).collect();
        Meter {
            engines: codecs.iter().copied().map(Engine::of_drive).collect(),
            rivals,
            rival_engines: used.into_iter().map(Engine::of_rival).collect(),
            framer: Framer::new(codecs.first().copied().unwrap_or_default()),
            settler: Framer::settling(settled_codec(codecs.first().copied().unwrap_or_default())),
            kept: Vec::new(),
            payloads: Vec::new(),
            spans: Vec::new(),
            back: vec![0; BLOCK_BYTES],
        }
    }

    /// Measures whole blocks. Calls `each` in order with the form in which the drive's codec stores each
    /// block.
    pub(crate) fn blocks(&mut self, data: &[u8], tally: &mut BlockTally, mut each: impl FnMut(Kept)) {
        for batch in data.chunks(BLOCKS_A_BATCH * BLOCK_BYTES) {
            let fills: Vec<Option<u32>> = batch.chunks(BLOCK_BYTES).map(fill_word).collect();
            for fill in &fills {
                tally.zeros.add((*fill == Some(0)).into());
                tally.fills.add(fill.is_some_and(|word| word != 0).into());
            }
            for at in 0..self.engines.len() {
                self.batch(at, batch, &fills, tally, &mut each);
            }
        }
    }

    /// Measures the blocks of a batch with one codec, except fills.
    fn batch(
        &mut self,
        at: usize,
        batch: &[u8],
        fills: &[Option<u32>],
        tally: &mut BlockTally,
        each: &mut impl FnMut(Kept),
    ) {
        let engine = &mut self.engines[at];
        self.payloads.clear();
        self.spans.clear();
        let data = || batch.chunks(BLOCK_BYTES).zip(fills).filter(|(_, fill)| fill.is_none()).map(|(b, _)| b);
        let started = cpu_time();
        for block in data() {
            let start = self.payloads.len();
            let stored = engine.compress(block, &mut self.payloads);
            self.spans.push((stored, start..self.payloads.len()));
        }
        let compressed = cpu_time();
        for (block, (stored, span)) in data().zip(&self.spans) {
            let payload = if *stored == CodecId::Raw { block } else { &self.payloads[span.clone()] };
            let whole = engine.decompress(*stored, payload, &mut self.back);
            debug_assert!(whole, "what was compressed a moment ago comes back");
        }
        let speed = &mut tally.speeds[at];
        speed.bytes += (self.spans.len() * BLOCK_BYTES) as u64;
        speed.compressing += compressed.saturating_sub(started);
        speed.decompressing += cpu_time().saturating_sub(compressed);
        let mut spans = self.spans.iter();
        for fill in fills {
            let kept = match (fill, spans.as_slice().first()) {
                (Some(word), _) => Kept::Fill(*word),
                (None, Some((stored, span))) => {
                    spans.next();
                    let payload = if *stored == CodecId::Raw { BLOCK_BYTES } else { span.len() };
                    Kept::record(payload, 1)
                }
                (None, None) => continue,
            };
            tally.records[at].add(kept.record_bytes());
            if at == 0 {
                tally.raw.add((kept.record_bytes() >= RECORD_BYTES_MAX).into());
                each(kept);
            }
        }
    }

    /// Appends the stored form of adjacent blocks from `first` on to `kept`, treated as one write.
    pub(crate) fn frames(&mut self, first: u64, data: &[u8], kept: &mut Vec<Kept>) {
        self.framer.run(first, data, kept);
    }

    /// Measures one unit of up to 128 KiB, which begins at block `first`, with every rival and as a settled
    /// drive stores it.
    pub(crate) fn unit(&mut self, first: u64, data: &[u8], tally: &mut UnitTally) {
        let blocks = (data.len() / BLOCK_BYTES) as u64;
        if blocks == 0 || self.rivals.is_empty() {
            return;
        }
        for (at, (layout, engine)) in self.rivals.iter().enumerate() {
            let engine = &mut self.rival_engines[*engine];
            let bytes = match layout {
                Layout::Sectors { unit_bytes } => {
                    sectors_bytes(data, *unit_bytes, engine, &mut self.payloads)
                }
                Layout::Vdo => vdo_bytes(data, engine, &mut self.payloads),
            };
            tally.rivals[at].add(bytes / blocks);
            tally.rival_bytes[at] += bytes;
        }
        self.kept.clear();
        self.settler.run(first, data, &mut self.kept);
        let mut costs = Cost::default();
        let (mut at, mut from) = (first, 0);
        for (i, one) in self.kept.iter().enumerate() {
            at += one.blocks();
            if at.is_multiple_of(GROUP_BLOCKS) || i + 1 == self.kept.len() {
                costs += Cost::of(self.kept[from..=i].iter().copied());
                from = i + 1;
            }
        }
        tally.settled.add(costs, blocks, 1);
        tally.settled_sum += costs;
        tally.count += 1;
        tally.blocks += blocks;
    }
}

/// Codec for cold data on a drive without dictionaries: zstd at level 8 or higher.
pub(crate) fn settled_codec(codec: Policy) -> Policy {
    const LEVEL: i8 = 8;
    match codec {
        Policy::Zstd(level) => Policy::Zstd(level.max(LEVEL)),
        _ => Policy::Zstd(LEVEL),
    }
}
