//! Compressibility of data, and a prediction of a Pumice drive that stores it. The data is read completely,
//! or as random samples with confidence intervals that hold with the stated probability.
//!
//! [`Population`] lists the sources (files, directories, devices, NBD exports, buckets). [`scan`] measures
//! them. `pumice scan --json` prints the resulting [`Report`]. Sources are never written to.
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
mod looks;
mod measure;
mod options;
mod outcome;
pub mod plan;

mod predict;
pub mod report;
mod reservoir;
mod run;
mod sequence;
pub mod source;
#[cfg(feature = "testing")]
pub mod testing;
mod types;
mod worker;

pub use estimate::{Bound, Interval};
pub use frames::GROUP_BLOCKS;
pub use measure::RECORD_BYTES_MAX;
pub use options::{CODECS_DEFAULT, Options, RIVAL_CODECS_DEFAULT};

/// PEM files for NBD over TLS.
pub use nbd::client::ClientTlsFiles as NbdTlsFiles;
pub use predict::{MapNeeds, PredictedDrive, limit_bytes, smallest_drive};
pub use report::Report;
pub use run::{Progress, scan, scan_stream};
pub use source::{Population, SourceError, WalkOptions, s3::S3Options};
