//! How compressible is this data, and what would a Pumice drive make of it? Random samples, with an interval that holds
//! as often as it says, or all of it.
//!
//! [`Population`] lists what there is (files, directories, devices, NBD exports, buckets), [`scan`] measures it, and
//! the [`Report`] is what `pumice scan --json` prints. Nothing here writes to what it reads.
//!
//! ```
//! use scan::{Options, Population, WalkOptions};
//!
//! let mut all = Population::new();
//! all.add_path("src".as_ref(), WalkOptions::default(), &|_| ())?;
//! let report = scan::scan(&all, &Options::default(), &|_| ())?;
//! let drive = report.predicted_drive.expect("there is some source");
//! assert!(drive.ratio.low > 1.0);
//! # Ok::<(), scan::SourceError>(())
//! ```

#![forbid(unsafe_code)]

mod engine;
pub mod estimate;
mod frames;
pub mod layouts;
mod measure;
mod outcome;
pub mod plan;

mod predict;
pub mod report;
mod run;
mod sequence;
pub mod source;
mod types;
mod worker;

pub use estimate::{Bound, Interval};
pub use frames::GROUP_BLOCKS;
pub use measure::RECORD_BYTES_MAX;

pub use predict::{MapNeeds, PredictedDrive, limit_bytes, smallest_drive};
pub use report::Report;
pub use run::{CODECS_DEFAULT, Options, Progress, RIVAL_CODECS_DEFAULT, scan, scan_stream};
pub use source::{Population, SourceError, WalkOptions, s3::S3Options};
