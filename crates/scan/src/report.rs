//! What a scan found, as `--json` prints it: a stable interface. Bytes unless the name says otherwise.

use serde::{Deserialize, Serialize};

use crate::estimate::{Bound, Interval};
use crate::predict::PredictedDrive;
use crate::source::{Skipped, Trouble};

/// Version of this form. Fields may be added without changing it.
pub const REPORT_VERSION: u32 = 1;

/// A scan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Of the program.
    pub program_version: String,
    /// What the user named.
    pub sources: Vec<String>,
    /// `full` if everything was read, else `sample`.
    pub mode: Mode,
    /// Probability that an interval holds the truth, each for itself.
    pub confidence: f64,
    /// Half-width asked for, in percentage points of the stored share, at 4 KiB.
    pub precision_points: f64,
    /// The same for larger units; `None`: none were read.
    pub unit_precision_points: Option<f64>,
    /// With it the same samples are drawn again.
    pub seed: u64,
    /// How much data there is.
    pub data: Data,
    /// How much of it was read.
    pub read: ReadSummary,
    /// What blocks are.
    pub blocks: Blocks,
    /// The drive's codec first, then those compared.
    pub codecs: Vec<CodecResult>,
    /// Other ways to lay the data out.
    pub layouts: Vec<LayoutResult>,
    /// What a Pumice drive would make of it; `None` without data.
    pub predicted_drive: Option<PredictedDrive>,
    /// By kind of file, most stored bytes first.
    pub by_type: Vec<Part>,
    /// By directory, most stored bytes first.
    pub by_directory: Vec<Part>,
    /// The largest files, most stored bytes first.
    pub largest_files: Vec<Part>,
    /// Left out on purpose.
    pub skipped: Skipped,
    /// Files and objects that could not be read, or not wholly.
    pub unreadable_count: u64,
    /// The first of them.
    pub unreadable: Vec<Trouble>,
    /// Files that changed while they were scanned.
    pub changed_count: u64,
    /// The first of them.
    pub changed: Vec<Trouble>,
    /// What else the reader should know.
    pub notes: Vec<String>,
}

/// How a scan read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Random samples.
    Sample,
    /// Everything.
    Full,
}

/// How much data there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// Files, devices, exports and objects with at least a byte.
    pub files_count: u64,
    /// Directories gone through.
    pub directories_count: u64,
    /// Their bytes, holes in.
    pub apparent_bytes: u64,
    /// Whole blocks that hold data: what would be written to a drive.
    pub data_bytes: u64,
    /// Holes: not read, and not counted in any ratio.
    pub hole_bytes: u64,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadSummary {
    /// Bytes read.
    pub bytes: u64,
    /// Blocks measured.
    pub blocks_count: u64,
    /// Larger units measured.
    pub units_count: u64,
    /// Time it took, once all was listed.
    pub seconds: f64,
}

/// Shares of the blocks that hold data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blocks {
    /// Zeros.
    pub zero: Interval,
    /// Another 32-bit word, repeated.
    pub fill: Interval,
    /// Stored as they came by the drive's codec.
    pub incompressible: Interval,
}

/// One codec on 4 KiB blocks, packed to the byte (to 16 of them) as Pumice does, record headers in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CodecResult {
    /// As `--codec` reads it.
    pub codec: String,
    /// Bytes compressed as one.
    pub unit_bytes: usize,
    /// Stored bytes a logical byte.
    pub stored: Interval,
    /// Logical bytes a stored byte.
    pub ratio: Interval,
    /// What the interval rests on.
    pub bound: Bound,
    /// Millions of bytes a second and core, measured here in CPU time on the blocks that are no fills.
    pub compress_mb_per_second: Option<f64>,
    /// The same for decompressing.
    pub decompress_mb_per_second: Option<f64>,
}

/// One other layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LayoutResult {
    /// `sectors` of 4 KiB, or `vdo`.
    pub layout: String,
    /// Whom it stands for.
    pub like: String,
    /// Bytes compressed as one.
    pub unit_bytes: usize,
    /// How.
    pub codec: String,
    /// Stored bytes a logical byte.
    pub stored: Interval,
    /// Logical bytes a stored byte.
    pub ratio: Interval,
    /// What the interval rests on.
    pub bound: Bound,
}

/// A part of the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Kind of file, directory or file.
    pub name: String,
    /// Its data (estimated by its share of the samples).
    pub data_bytes: u64,
    /// What the drive's codec would store of it, records only.
    pub stored_bytes: u64,
    /// Blocks measured.
    pub samples_count: u64,
    /// Logical bytes a stored byte.
    pub ratio: Interval,
}
