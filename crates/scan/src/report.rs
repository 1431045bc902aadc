//! Report of a scan in the form printed by `--json`, which is a stable interface. Values are in bytes unless
//! the name says otherwise.

use serde::{Deserialize, Serialize};

use crate::estimate::{Bound, Interval};
use crate::predict::PredictedDrive;
use crate::source::{Skipped, Trouble};

/// Version of the report format. New fields do not change it.
pub const REPORT_VERSION: u32 = 1;

/// Result of a scan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Version of the program.
    pub program_version: String,
    /// Sources as the user named them.
    pub sources: Vec<String>,
    /// `full` if everything was read, else `sample`.
    pub mode: Mode,
    /// Probability that an interval contains the true value, for each interval separately.
    pub confidence: f64,
    /// Requested half-width for 4 KiB blocks, in percentage points of the stored share.
    pub precision_points: f64,
    /// Requested half-width for larger units, in percentage points of the stored share; `None` if none were
    /// read.
    pub unit_precision_points: Option<f64>,
    /// Random seed. A scan with the same seed draws the same samples.
    pub seed: u64,
    /// Amount of data found.
    pub data: Data,
    /// Amount of data read.
    pub read: ReadSummary,
    /// Shares of kinds of blocks.
    pub blocks: Blocks,
    /// Results of the codecs: first that of the drive, then those compared with it.
    pub codecs: Vec<CodecResult>,
    /// Results of other layouts.
    pub layouts: Vec<LayoutResult>,
    /// Prediction of a Pumice drive that holds the data; `None` without data.
    pub predicted_drive: Option<PredictedDrive>,
    /// Results by file type, most stored bytes first.
    pub by_type: Vec<Part>,
    /// By directory, most stored bytes first.
    pub by_directory: Vec<Part>,
    /// The largest files, most stored bytes first.
    pub largest_files: Vec<Part>,
    /// Files and directories that were skipped on purpose.
    pub skipped: Skipped,
    /// Number of files and objects that could not be read completely, and of directories that could not be
    /// listed.
    pub unreadable_count: u64,
    /// The first of the unreadable files, objects and directories.
    pub unreadable: Vec<Trouble>,
    /// Number of files that changed during the scan.
    pub changed_count: u64,
    /// The first of the changed files.
    pub changed: Vec<Trouble>,
    /// Further remarks for the reader.
    pub notes: Vec<String>,
}

/// Mode of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Random samples.
    Sample,
    /// Everything.
    Full,
}

/// Amount of data found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// Number of files, devices, exports and objects that are not empty.
    pub files_count: u64,
    /// Number of directories visited.
    pub directories_count: u64,
    /// Total length of the files, including holes.
    pub apparent_bytes: u64,
    /// Whole blocks that hold data and would be written to a drive.
    pub data_bytes: u64,
    /// Holes. They are neither read nor counted in any ratio.
    pub hole_bytes: u64,
}

/// Amount of data read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadSummary {
    /// Bytes read.
    pub bytes: u64,
    /// Number of blocks measured.
    pub blocks_count: u64,
    /// Number of larger units measured.
    pub units_count: u64,
    /// Time for reading and measuring, without listing.
    pub seconds: f64,
}

/// Shares among the blocks that hold data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blocks {
    /// Blocks of zeros.
    pub zero: Interval,
    /// Blocks that repeat another 32-bit word.
    pub fill: Interval,
    /// Blocks that the drive's codec stores uncompressed.
    pub incompressible: Interval,
}

/// Result of one codec on 4 KiB blocks. Records include headers and are rounded up to 16 bytes, as Pumice
/// stores them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CodecResult {
    /// Codec, as spelled for `--codec`.
    pub codec: String,
    /// Bytes compressed as one unit.
    pub unit_bytes: usize,
    /// Stored bytes per logical byte.
    pub stored: Interval,
    /// Logical bytes per stored byte.
    pub ratio: Interval,
    /// The bound that the interval is based on.
    pub bound: Bound,
    /// Compression speed in 10^6 bytes per second and core, measured as CPU time on the blocks that are not
    /// fills.
    pub compress_mb_per_second: Option<f64>,
    /// Decompression speed in 10^6 bytes per second and core, measured in the same way.
    pub decompress_mb_per_second: Option<f64>,
}

/// Result of another layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LayoutResult {
    /// `sectors` of 4 KiB, or `vdo`.
    pub layout: String,
    /// The systems that the layout represents.
    pub like: String,
    /// Bytes compressed as one unit.
    pub unit_bytes: usize,
    /// Codec of the layout.
    pub codec: String,
    /// Stored bytes per logical byte.
    pub stored: Interval,
    /// Logical bytes per stored byte.
    pub ratio: Interval,
    /// The bound that the interval is based on.
    pub bound: Bound,
}

/// Result for a part of the data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// File type, directory or file.
    pub name: String,
    /// Bytes of data, estimated from the share of samples.
    pub data_bytes: u64,
    /// Bytes of records that the drive's codec would store.
    pub stored_bytes: u64,
    /// Number of blocks measured.
    pub samples_count: u64,
    /// Logical bytes per stored byte.
    pub ratio: Interval,
}
