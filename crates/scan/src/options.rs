//! Options of a scan.

use codec::Policy;
use layout::{BLOCK_BYTES, ParityForm};

use crate::estimate::Design;
use crate::layouts::{Rival, UNIT_BYTES_MAX, rivals};
use crate::measure::RECORD_BYTES_MAX;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Measurements to make, and their precision.
#[derive(Clone, Debug)]
pub struct Options {
    /// Codec of the drive to predict.
    pub codec: Policy,
    /// Parity of the drive to predict.
    pub parity: ParityForm,
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
    /// True to read everything.
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

    /// Largest number of blocks that is read completely instead of sampled: twice the largest number of
    /// blocks that sampling measures with all codecs.
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
            parity: ParityForm::OF_NEW_DRIVES,
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
