//! Execution of a scan.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use layout::{BLOCK_BYTES, NODE_ENTRIES};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::estimate::{Design, Tally};
use crate::frames::{GROUP_BLOCKS, PARTS_A_BYTE};
use crate::layouts::UNIT_BYTES_MAX;
use crate::looks::{BlocksLook, Looks};
use crate::measure::{BlockTally, CostTally, UnitTally};
use crate::options::Options;
use crate::outcome::Outcome;
use crate::report::Report;
use crate::reservoir::Reservoir;
use crate::source::{Extent, Pace, Population, SourceError};
use crate::worker::{ScanState, Sums, Worker, fill};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bytes of the blocks under one leaf: the piece that a full scan reads at once.
const LEAF_BYTES: usize = NODE_ENTRIES * BLOCK_BYTES;
/// Number of blocks that a thread takes from a batch of samples at once.
const BLOCKS_A_TURN: usize = 32;
/// Limit on draws per sample. A sample that cannot be read is drawn again.
const DRAWS_A_SAMPLE: u64 = 3;

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
    let state = ScanState::new(population, &pace, full, &read);
    let mut workers: Vec<Worker> =
        (0..options.threads.max(1)).map(|_| Worker::new(&options.codecs(), &options.rivals())).collect();
    let mut looks = Looks::default();
    if full {
        progress(Progress::Begin(Some(population.blocks() * BLOCK)));
        read_all(&state, &mut workers);
    } else {
        let blocks = options.block_design().samples_max() * GROUP_BLOCKS * BLOCK;
        let units = options.unit_design().map_or(0, |design| design.samples_max());
        progress(Progress::Begin(Some(blocks + units * UNIT_BYTES_MAX as u64)));
        looks = sample(&state, options, &mut workers);
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
        state: Some(&state),
        sums: &sums,
        looks: &looks,
        exact: full,
        known: None,
        seconds: started.elapsed().as_secs_f64(),
    };
    Ok(outcome.report())
}

/// Scans a stream to its end. Measures all of it with `full` or if it is short, else samples drawn while
/// reading.
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
        state: None,
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

/// Draws blocks, then units, until all intervals are narrow enough.
fn sample(state: &ScanState<'_>, options: &Options, workers: &mut [Worker]) -> Looks {
    let mut rng = StdRng::seed_from_u64(options.seed);
    let mut looks = Looks::default();
    sample_blocks(state, options, workers, &mut rng, &mut looks.blocks);
    sample_units(state, options, workers, &mut rng, &mut looks.units);
    looks
}

/// Random blocks, uniform over all blocks that hold data.
struct Draws<'a> {
    population: &'a Population,
    rng: &'a mut StdRng,
    /// Number of draws used of each range of which only a sample is known.
    used: Vec<usize>,
    /// Such a range has no draws left.
    ended: bool,
}

impl<'a> Draws<'a> {
    fn new(population: &'a Population, rng: &'a mut StdRng) -> Draws<'a> {
        Draws { population, rng, used: vec![0; population.thinned.len()], ended: false }
    }

    /// Draws block numbers, less than `count` if no more can be drawn, and sorts them, so that each file is
    /// opened once per look and disks are read forward.
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

/// Returns true if the interval from the tallies at the looks is as narrow as the design requires.
fn is_narrow(design: &Design, tallies: impl Iterator<Item = Tally>) -> bool {
    design.sequence(&tallies.collect::<Vec<_>>()).0.half_width() <= design.precision
}

fn sample_blocks(
    state: &ScanState<'_>,
    options: &Options,
    workers: &mut [Worker],
    rng: &mut StdRng,
    looks: &mut Vec<BlocksLook>,
) {
    let design = options.block_design();
    let group_design = design.for_range(design.range * PARTS_A_BYTE as f64);
    let mut random = Draws::new(state.population, rng);
    let (mut draws, mut groups_done) = (0, false);
    for look in design.looks() {
        while measured(workers) < look && draws < design.samples_max() * DRAWS_A_SAMPLE && !random.ended {
            let count = look - measured(workers);
            draws += count;
            let blocks = random.draw(count);
            let turns: Vec<&[u64]> = blocks.chunks(BLOCKS_A_TURN).collect();
            // A group takes eight times as much reading as a block.
            match groups_done {
                true => each(workers, &turns, |worker, turn| worker.sample_alone(state, turn)),
                false => each(workers, &turns, |worker, turn| worker.sample(state, turn)),
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
        groups_done |= is_narrow(&group_design, looks.iter().map(|look| look.framed.records));
        let reached = |at: usize| is_narrow(&design, looks.iter().map(|look| look.blocks.records[at]));
        if random.ended || groups_done && (0..options.codecs().len()).all(reached) {
            break;
        }
    }
}

fn sample_units(
    state: &ScanState<'_>,
    options: &Options,
    workers: &mut [Worker],
    rng: &mut StdRng,
    looks: &mut Vec<UnitTally>,
) {
    let Some(design) = options.unit_design() else { return };
    let mut random = Draws::new(state.population, rng);
    let mut draws = 0;
    for look in design.looks() {
        let units = |workers: &[Worker]| workers.iter().map(|w| w.sums.units.count).sum::<u64>();
        while units(workers) < look && draws < design.samples_max() * DRAWS_A_SAMPLE && !random.ended {
            let count = look - units(workers);
            draws += count;
            let blocks = random.draw(count);
            each(workers, &blocks, |worker, block| worker.sample_unit(state, *block));
        }
        let mut sums = UnitTally::new(options.rivals().len());
        workers.iter().for_each(|worker| sums.merge(&worker.sums.units));
        looks.push(sums);
        let reached = |at: usize| is_narrow(&design, looks.iter().map(|look| look.rivals[at]));
        if random.ended || (0..options.rivals().len()).all(reached) {
            break;
        }
    }
}

fn measured(workers: &[Worker]) -> u64 {
    workers.iter().map(|worker| worker.sums.blocks.count()).sum()
}

/// Reads everything, in units of the leaves of the map that the drive would have.
fn read_all(state: &ScanState<'_>, workers: &mut [Worker]) {
    const LEAF: u64 = NODE_ENTRIES as u64;
    let population = state.population;
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
    each(workers, &leaves, |worker, leaf| worker.leaf(state, leaf));
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
