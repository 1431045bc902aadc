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
mod documents;
mod error;
mod finding;
mod fio;
mod load;
mod machine;
mod objects;
mod page;
mod process;
mod processors;
mod run;
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
mod warp;

pub use compare::{Compared, Comparison, Difference, comparison, comparison_text};
pub use documents::{Document, STATEMENTS, Statement};
pub use error::BenchError;
pub use finding::{Finding, Verdict};
pub use fio::Fio;
pub use machine::Machine;
pub use objects::S3Client;
pub use page::page;
pub use process::Stop;
pub use run::{FailedScene, Run, RunData, RunTarget, Sample, Series};
pub use scorecard::scorecard;
pub use session::{Check, Options, Progress, Session};
pub use stats::Figure;
pub use steady::Steady;
pub use store::{Connections, InUse, connect};
pub use suite::{DataSet, SUITES, Suite, distinct_data, suite};
pub use target::{Kind, NvmeTcpAddress, S3Address, Target, distinct, large_enough};
pub use text::text;
