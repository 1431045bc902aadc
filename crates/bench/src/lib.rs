//! Experiments of published documents, repeated with fio on Pumice drives and other stores.
//!
//! A suite is data: scenes of steps, and a function that compares what was measured with what a document
//! states. [`Session::run`] runs the scenes in rounds, target by target, and returns a [`Run`]: the document
//! behind `pumice bench --json`. [`comparison()`], [`scorecard()`], [`text()`] and [`page()`] show runs.
//!
//! Pumice itself is one of the programs that are run: this crate starts `pumice create`, `serve` and
//! `status`, as a user would.

#![forbid(unsafe_code)]

mod budget;
mod compare;
mod data_set;
mod documents;
mod error;
mod examine;
mod failed_scene;
mod finding;
mod fio;
mod load;
mod machine;
mod objects;
mod options;
mod page;
mod plan;
mod process;
mod processors;
mod run;
mod sample;
mod scene;
mod scorecard;
mod session;
mod stats;
mod steady;
mod store;
mod suite;
mod target;
mod text;
mod value;

pub use compare::{Compared, Comparison, Difference, comparison, comparison_text};
pub use data_set::{DataSet, distinct_data};
pub use documents::{Document, STATEMENTS, Statement};
pub use error::{BenchError, Refusal};
pub use examine::{Unusable, large_enough};
pub use failed_scene::FailedScene;
pub use finding::{Finding, Verdict};
pub use fio::Fio;
pub use machine::Machine;
pub use objects::{S3Client, UnknownS3Client};
pub use options::Options;
pub use page::page;
pub use process::Stop;
pub use run::{Run, RunData, RunTarget, Series};
pub use sample::{Sample, Steady};
pub use scorecard::scorecard;
pub use session::{Check, Progress, Session};
pub use stats::Figure;
pub use store::{Connections, InUse, connect};
pub use suite::{SUITES, Suite, suite};
pub use target::{AddressError, Kind, NvmeTcpAddress, S3Address, Target, TargetError, distinct};
pub use text::text;
