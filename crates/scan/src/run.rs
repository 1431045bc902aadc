//! Execution of a scan.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use codec::Policy;
use layout::{BLOCK_BYTES, NODE_ENTRIES};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::estimate::{Design, Tally};
use crate::frames::{Cost, Framer, GROUP_BLOCKS, PARTS_A_BYTE};
use crate::layouts::{Rival, UNIT_BYTES_MAX, rivals};
use crate::measure::{BlockTally, CostTally, RECORD_BYTES_MAX, UnitTally};
use crate::outcome::Outcome;
use crate::report::Report;
use crate::source::{Extent, Pace, Population, SourceError};
use crate::worker::{Shared, Sums, Worker, fill};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bytes of the blocks under one leaf: the piece that a full scan reads at once.
const LEAF_BYTES: usize = NODE_ENTRIES * BLOCK_BYTES;
/// Number of blocks that a thread takes from a batch of samples at once.
const BLOCKS_A_TURN: usize = 32;
/// Limit on draws per sample. A sample that cannot be read is drawn again.
const DRAWS_A_SAMPLE: u64 = 3;

/// Measurements to make, and their precision.
#[derive(Clone, Debug)]
pub struct Options {
    /// Codec of the drive to predict.
    pub codec: Policy,
    /// Codecs to compare with that of the drive.
    pub compare: Vec<Policy>,
    /// Codecs of the rival layouts.
    pub rival_codecs: Vec<Policy>,
    /// Probability that each interval contains the true value.
    pub confidence: f64,
    /// Half-width to reach for 4 KiB blocks, as a share (0.01 is one percentage point).
    pub precision: f64,
    /// Half-width to reach for units of up to 128 KiB, as a share; `None` omits the rival layouts.
    pub unit_precision: Option<f64>,
    /// Whether to read everything.
    pub full: bool,
    /// Seed of the random choices.
    pub seed: u64,
    /// Number of threads that read and measure.
    pub threads: usize,
    /// Largest read rate over all threads, in bytes per second.
    pub max_rate: Option<u64>,
}

impl Options {
    /// Codecs to measure on 4 KiB blocks, that of the drive first.
    pub fn codecs(&self) -> Vec<Policy> {
        let drive = self.codec;
        std::iter::once(drive).chain(self.compare.iter().copied().filter(|codec| *codec != drive)).collect()
    }

    /// The rival layouts to measure.
    pub fn rivals(&self) -> Vec<Rival> {
        if self.unit_precision.is_some() { rivals(&self.rival_codecs) } else { Vec::new() }
    }

    pub(crate) fn block_design(&self) -> Design {
        let precision = self.precision * BLOCK_BYTES as f64;
        Design { confidence: self.confidence, precision, range: RECORD_BYTES_MAX as f64 }
    }

    pub(crate) fn unit_design(&self) -> Option<Design> {
        let precision = self.unit_precision? * BLOCK_BYTES as f64;
        Some(Design { confidence: self.confidence, precision, range: BLOCK_BYTES as f64 })
    }

    /// Largest number of blocks that is read completely instead of sampled: twice the largest number of blocks that
    /// sampling measures with all codecs.
    pub fn small_blocks(&self) -> u64 {
        let units = self.unit_design().map_or(0, |design| design.samples_max());
        2 * (self.block_design().samples_max() + units * (UNIT_BYTES_MAX as u64 / BLOCK))
    }
}

/// Codecs compared by default.
pub const CODECS_DEFAULT: [Policy; 6] =
    [Policy::Lz4, Policy::Zstd(1), Policy::Zstd(3), Policy::Zstd(9), Policy::Deflate(1), Policy::Deflate(6)];
/// Codecs of rival layouts by default: those that ZFS and btrfs users choose.
pub const RIVAL_CODECS_DEFAULT: [Policy; 2] = [Policy::Lz4, Policy::Zstd(3)];

impl Default for Options {
    fn default() -> Self {
        Options {
            codec: Policy::Auto,
            compare: CODECS_DEFAULT.to_vec(),
            rival_codecs: RIVAL_CODECS_DEFAULT.to_vec(),
            confidence: 0.95,
            precision: 0.01,
            unit_precision: Some(0.05),
            full: false,
            seed: 0,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            max_rate: None,
        }
    }
}

/// Progress of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Reading begins; at most this number of bytes will be read. `None` if the number is unknown.
    Begin(Option<u64>),
    /// This number of further bytes was read.
    Read(u64),
}

/// Scans a population.
///
/// # Errors
/// Fails if there is data but none of it could be read.
pub fn scan(
    population: &Population,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, SourceError> {
    let started = Instant::now();
    let pace = Pace::new(options.max_rate);
    let thinned = !population.thinned.is_empty();
    if options.full && thinned {
        return Err(SourceError::new("the data", "too many objects to read all of them; scan a prefix"));
    }
    let full = !thinned && (options.full || population.blocks() <= options.small_blocks());
    let read = |bytes| progress(Progress::Read(bytes));
    let shared = Shared::new(population, &pace, full, &read);
    let mut workers: Vec<Worker> =
        (0..options.threads.max(1)).map(|_| Worker::new(&options.codecs(), &options.rivals())).collect();
    let mut looks = Looks::default();
    if full {
        progress(Progress::Begin(Some(population.blocks() * BLOCK)));
        read_all(&shared, &mut workers);
    } else {
        let blocks = options.block_design().samples_max() * GROUP_BLOCKS * BLOCK;
        let units = options.unit_design().map_or(0, |design| design.samples_max());
        progress(Progress::Begin(Some(blocks + units * UNIT_BYTES_MAX as u64)));
        looks = sample(&shared, options, &mut workers);
    }
    let sums = finish(workers, options);
    if population.blocks() > 0 && sums.blocks.count() == 0 {
        let troubles = population.troubles();
        let (item, why) =
            troubles.unreadable.first_key_value().or(troubles.changed.first_key_value()).unzip();
        let name = item.map_or_else(|| "the data".to_string(), |item| population.name(*item));
        let why = why.map_or("nothing could be read", String::as_str);
        return Err(SourceError::new(name, format!("{why}; none of the data could be read")));
    }
    let outcome = Outcome {
        options,
        population,
        shared: Some(&shared),
        sums: &sums,
        looks: &looks,
        exact: full,
        known: None,
        seconds: started.elapsed().as_secs_f64(),
    };
    Ok(outcome.report())
}

/// Scans a stream to its end. Measures all of it with `full` or if it is short, else samples drawn while reading.
///
/// # Errors
/// Fails if the stream cannot be read.
pub fn scan_stream(
    name: &str,
    stream: &mut dyn Read,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, SourceError> {
    let started = Instant::now();
    let error = |error: std::io::Error| SourceError::new(name, error);
    let pace = Pace::new(options.max_rate);
    progress(Progress::Begin(None));
    let mut leaves = LeafReader { stream, pace: &pace, bytes: 0, ended: false, progress };
    let mut workers: Vec<Worker> =
        (0..options.threads.max(1)).map(|_| Worker::new(&options.codecs(), &options.rivals())).collect();
    let mut known = None;
    let mut exact = true;
    if options.full {
        stream_all(&mut leaves, &mut workers).map_err(error)?;
    } else {
        let mut start = Vec::new();
        while (start.len() * NODE_ENTRIES) as u64 <= options.small_blocks()
            && let Some(leaf) = leaves.next().map_err(error)?
        {
            start.push(leaf);
        }
        if leaves.ended {
            each(&mut workers, &start, |worker, leaf| worker.stream_piece(leaf));
        } else {
            exact = false;
            let mut reservoir = Reservoir::new(options);
            start.drain(..).for_each(|leaf| reservoir.add(&leaf));
            while let Some(leaf) = leaves.next().map_err(error)? {
                reservoir.add(&leaf);
            }
            each(&mut workers, &reservoir.blocks, |worker, block| worker.stream_block(block));
            each(&mut workers, &reservoir.units, |worker, unit| worker.stream_unit(unit));
            known = Some(reservoir.known);
        }
    }
    let mut population = Population::new();
    population.bytes = leaves.bytes;
    population.blocks = leaves.bytes.div_ceil(BLOCK);
    let sums = finish(workers, options);
    let outcome = Outcome {
        options,
        population: &population,
        shared: None,
        sums: &sums,
        looks: &Looks::default(),
        exact,
        known,
        seconds: started.elapsed().as_secs_f64(),
    };
    let mut report = outcome.report();
    report.sources = vec![name.to_string()];
    Ok(report)
}

fn finish(workers: Vec<Worker>, options: &Options) -> Sums {
    let mut sums = Sums::new(options.codecs().len(), options.rivals().len());
    workers.into_iter().for_each(|worker| sums.merge(&worker.finish()));
    sums
}

/// Distributes jobs to the workers, each in its own thread, until none is left.
fn each<T: Sync>(workers: &mut [Worker], jobs: &[T], work: impl Fn(&mut Worker, &T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in workers {
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(worker, job);
                }
            });
        }
    });
}

/// Tallies of the blocks drawn up to a look.
pub(crate) struct BlocksLook {
    pub(crate) blocks: BlockTally,
    pub(crate) framed: CostTally,
    pub(crate) single: CostTally,
}

/// Tallies at each look, the input of confidence sequences.
#[derive(Default)]
pub(crate) struct Looks {
    pub(crate) blocks: Vec<BlocksLook>,
    pub(crate) units: Vec<UnitTally>,
}

/// Draws blocks, then units, until all intervals are narrow enough.
fn sample(shared: &Shared<'_>, options: &Options, workers: &mut [Worker]) -> Looks {
    let mut rng = StdRng::seed_from_u64(options.seed);
    let mut looks = Looks::default();
    sample_blocks(shared, options, workers, &mut rng, &mut looks.blocks);
    sample_units(shared, options, workers, &mut rng, &mut looks.units);
    looks
}

/// Random blocks, uniform over all blocks that hold data.
struct Draws<'a> {
    population: &'a Population,
    rng: &'a mut StdRng,
    /// Number of draws used of each range of which only a sample is known.
    used: Vec<usize>,
    /// Whether such a range has no draws left.
    ended: bool,
}

impl<'a> Draws<'a> {
    fn new(population: &'a Population, rng: &'a mut StdRng) -> Draws<'a> {
        Draws { population, rng, used: vec![0; population.thinned.len()], ended: false }
    }

    /// Draws block numbers, less than `count` if no more can be drawn, and sorts them, so that each file is opened once per
    /// look and disks are read forward.
    fn draw(&mut self, count: u64) -> Vec<u64> {
        let mut blocks: Vec<u64> = (0..count).map_while(|_| self.next()).collect();
        blocks.sort_unstable();
        blocks
    }

    fn next(&mut self) -> Option<u64> {
        let block = self.rng.random_range(0..self.population.blocks());
        let thinned = self.population.thinned.iter().position(|thinned| thinned.blocks.contains(&block));
        let Some(at) = thinned else { return Some(block) };
        // A draw that was used again would not be independent of the others.
        let hit = self.population.thinned[at].draws.get(self.used[at]).cloned();
        self.used[at] += 1;
        self.ended |= hit.is_none();
        hit.map(|blocks| self.rng.random_range(blocks))
    }
}

fn sample_blocks(
    shared: &Shared<'_>,
    options: &Options,
    workers: &mut [Worker],
    rng: &mut StdRng,
    looks: &mut Vec<BlocksLook>,
) {
    let design = options.block_design();
    let group_design = design.for_range(design.range * PARTS_A_BYTE as f64);
    let narrow =
        |design: &Design, tallies: Vec<Tally>| design.sequence(&tallies).0.half_width() <= design.precision;
    let mut random = Draws::new(shared.population, rng);
    let (mut draws, mut groups_done) = (0, false);
    for look in design.looks() {
        while measured(workers) < look && draws < design.samples_max() * DRAWS_A_SAMPLE && !random.ended {
            let count = look - measured(workers);
            draws += count;
            let blocks = random.draw(count);
            let turns: Vec<&[u64]> = blocks.chunks(BLOCKS_A_TURN).collect();
            // A group takes eight times as much reading as a block.
            match groups_done {
                true => each(workers, &turns, |worker, turn| worker.sample_alone(shared, turn)),
                false => each(workers, &turns, |worker, turn| worker.sample(shared, turn)),
            }
        }
        let mut sums = BlocksLook {
            blocks: BlockTally::new(options.codecs().len()),
            framed: CostTally::default(),
            single: CostTally::default(),
        };
        for worker in workers.iter() {
            sums.blocks.merge(&worker.sums.blocks);
            sums.framed.merge(&worker.sums.framed);
            sums.single.merge(&worker.sums.single);
        }
        looks.push(sums);
        groups_done |= narrow(&group_design, looks.iter().map(|look| look.framed.records).collect());
        let reached = |at: usize| narrow(&design, looks.iter().map(|look| look.blocks.records[at]).collect());
        if random.ended || groups_done && (0..options.codecs().len()).all(reached) {
            break;
        }
    }
}

fn sample_units(
    shared: &Shared<'_>,
    options: &Options,
    workers: &mut [Worker],
    rng: &mut StdRng,
    looks: &mut Vec<UnitTally>,
) {
    let Some(design) = options.unit_design() else { return };
    let mut random = Draws::new(shared.population, rng);
    let mut draws = 0;
    for look in design.looks() {
        let units = |workers: &[Worker]| workers.iter().map(|w| w.sums.units.count).sum::<u64>();
        while units(workers) < look && draws < design.samples_max() * DRAWS_A_SAMPLE && !random.ended {
            let count = look - units(workers);
            draws += count;
            let blocks = random.draw(count);
            each(workers, &blocks, |worker, block| worker.sample_unit(shared, *block));
        }
        let mut sums = UnitTally::new(options.rivals().len());
        workers.iter().for_each(|worker| sums.merge(&worker.sums.units));
        looks.push(sums);
        let reached = |at: usize| {
            let tallies: Vec<Tally> = looks.iter().map(|look| look.rivals[at]).collect();
            design.sequence(&tallies).0.half_width() <= design.precision
        };
        if random.ended || (0..options.rivals().len()).all(reached) {
            break;
        }
    }
}

fn measured(workers: &[Worker]) -> u64 {
    workers.iter().map(|worker| worker.sums.blocks.count()).sum()
}

/// Reads everything, in units of the leaves of the map that the drive would have.
fn read_all(shared: &Shared<'_>, workers: &mut [Worker]) {
    const LEAF: u64 = NODE_ENTRIES as u64;
    let population = shared.population;
    // Identifies the leaf: within a standalone item, or within all other items together.
    let leaf_of = |extent: &Extent| {
        let alone = population.items()[extent.item as usize].alone;
        (alone.then_some(extent.item), population.position(extent) / LEAF)
    };
    let mut pieces: Vec<Extent> = Vec::new();
    let mut starts = Vec::new();
    for extent in &population.extents {
        let mut rest = *extent;
        while rest.blocks > 0 {
            let blocks = (LEAF - population.position(&rest) % LEAF).min(rest.blocks);
            let piece = Extent { blocks, ..rest };
            if pieces.last().is_none_or(|last| leaf_of(last) != leaf_of(&piece)) {
                starts.push(pieces.len());
            }
            pieces.push(piece);
            let (first, before) = (rest.first + blocks, rest.before + blocks);
            rest = Extent { first, blocks: rest.blocks - blocks, before, ..rest };
        }
    }
    starts.push(pieces.len());
    let leaves: Vec<&[Extent]> = starts.windows(2).map(|pair| &pieces[pair[0]..pair[1]]).collect();
    each(workers, &leaves, |worker, leaf| worker.leaf(shared, leaf));
}

/// Reader that splits a stream into pieces of one leaf each.
struct LeafReader<'a> {
    stream: &'a mut dyn Read,
    pace: &'a Pace,
    bytes: u64,
    ended: bool,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl LeafReader<'_> {
    /// Returns the next piece: whole blocks, the last one padded with zeros.
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        if self.ended {
            return Ok(None);
        }
        let mut leaf = vec![0; LEAF_BYTES];
        self.pace.wait(LEAF_BYTES as u64);
        let bytes = fill(self.stream, &mut leaf)?;
        self.bytes += bytes as u64;
        self.ended = bytes < LEAF_BYTES;
        leaf.truncate(bytes.next_multiple_of(BLOCK_BYTES));
        (self.progress)(Progress::Read(bytes as u64));
        Ok((bytes > 0).then_some(leaf))
    }
}

fn stream_all(leaves: &mut LeafReader<'_>, workers: &mut [Worker]) -> std::io::Result<()> {
    let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(2 * workers.len());
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for worker in workers.iter_mut() {
            let receiver = &receiver;
            scope.spawn(move || {
                loop {
                    let leaf = receiver.lock().ok().and_then(|receiver| receiver.recv().ok());
                    let Some(leaf) = leaf else { break };
                    worker.stream_piece(&leaf);
                }
            });
        }
        let mut result = Ok(());
        loop {
            match leaves.next() {
                Ok(Some(leaf)) => {
                    if sender.send(leaf).is_err() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        drop(sender);
        result
    })
}

/// Counts over all blocks of a stream, measured or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) blocks: u64,
    pub(crate) zeros: u64,
    pub(crate) fills: u64,
}

/// Blocks and units drawn from a stream of unknown length, each with the same probability (algorithm R: A. G. Waterman,
/// in D. E. Knuth, *The Art of Computer Programming* 2, 3.4.2). They are drawn without replacement; Hoeffding's bound
/// holds for that too (section 6 of his paper). The number of samples is fixed, and there is one look.
struct Reservoir {
    rng: StdRng,
    blocks_max: usize,
    units_max: usize,
    /// Each block with the space taken by its group and the number of blocks in the group. The space is measured
    /// immediately, so that the group need not be kept.
    blocks: Vec<(Vec<u8>, Cost, u64)>,
    framer: Framer,
    units: Vec<Vec<u8>>,
    units_seen: u64,
    known: Known,
}

impl Reservoir {
    fn new(options: &Options) -> Reservoir {
        let samples = |design: Design| usize::try_from(design.samples_max()).unwrap_or(usize::MAX);
        Reservoir {
            rng: StdRng::seed_from_u64(options.seed),
            blocks_max: samples(options.block_design()),
            units_max: options.unit_design().map_or(0, samples),
            blocks: Vec::new(),
            framer: Framer::new(options.codec, GROUP_BLOCKS),
            units: Vec::new(),
            units_seen: 0,
            known: Known::default(),
        }
    }

    fn add(&mut self, leaf: &[u8]) {
        for group in leaf.chunks(GROUP_BLOCKS as usize * BLOCK_BYTES) {
            let mut cost = None;
            for block in group.chunks(BLOCK_BYTES) {
                let fill = codec::fill_word(block);
                self.known.blocks += 1;
                self.known.zeros += u64::from(fill == Some(0));
                self.known.fills += u64::from(fill.is_some_and(|word| word != 0));
                let framer = &mut self.framer;
                draw(&mut self.rng, &mut self.blocks, self.blocks_max, self.known.blocks, || {
                    let cost = *cost.get_or_insert_with(|| {
                        let mut kept = Vec::new();
                        framer.run(0, group, &mut kept);
                        Cost::of(kept)
                    });
                    (block.to_vec(), cost, (group.len() / BLOCK_BYTES) as u64)
                });
            }
        }
        for unit in leaf.chunks(UNIT_BYTES_MAX) {
            self.units_seen += 1;
            draw(&mut self.rng, &mut self.units, self.units_max, self.units_seen, || unit.to_vec());
        }
    }
}

/// Keeps the piece number `seen` with probability `max / seen`, in place of a random earlier one.
fn draw<T>(rng: &mut StdRng, kept: &mut Vec<T>, max: usize, seen: u64, piece: impl FnOnce() -> T) {
    if kept.len() < max {
        kept.push(piece());
    } else if let Ok(at) = usize::try_from(rng.random_range(0..seen))
        && at < max
    {
        kept[at] = piece();
    }
}
