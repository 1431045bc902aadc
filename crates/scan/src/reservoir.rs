//! Samples of a stream, drawn while it is read.

use layout::BLOCK_BYTES;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::estimate::Design;
use crate::frames::{Cost, Framer, GROUP_BLOCKS};
use crate::layouts::UNIT_BYTES_MAX;
use crate::options::Options;

/// Counts over all blocks of a stream, measured or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) blocks: u64,
    pub(crate) zeros: u64,
    pub(crate) fills: u64,
}

/// Blocks and units drawn from a stream of unknown length, each with the same probability (algorithm R: A. G.
/// Waterman, in D. E. Knuth, *The Art of Computer Programming* 2, 3.4.2). They are drawn without replacement;
/// Hoeffding's bound holds for that too (section 6 of his paper). The number of samples is fixed, and there
/// is one look.
pub(crate) struct Reservoir {
    rng: StdRng,
    blocks_max: usize,
    units_max: usize,
    /// Each block with the space taken by its group and the number of blocks in the group. The space is
    /// measured immediately, so that the group need not be kept.
    pub(crate) blocks: Vec<(Vec<u8>, Cost, u64)>,
    framer: Framer,
    pub(crate) units: Vec<Vec<u8>>,
    units_seen: u64,
    pub(crate) known: Known,
}

impl Reservoir {
    pub(crate) fn new(options: &Options) -> Reservoir {
        let samples = |design: Design| usize::try_from(design.samples_max()).unwrap_or(usize::MAX);
        Reservoir {
            rng: StdRng::seed_from_u64(options.seed),
            blocks_max: samples(options.block_design()),
            units_max: options.unit_design().map_or(0, samples),
            blocks: Vec::new(),
            framer: Framer::new(options.codec),
            units: Vec::new(),
            units_seen: 0,
            known: Known::default(),
        }
    }

    pub(crate) fn add(&mut self, leaf: &[u8]) {
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
