//! Options of a run.

use std::path::PathBuf;
use std::time::Duration;

use crate::data_set::DataSet;
use crate::fio::Fio;
use crate::objects::S3Client;
use crate::target::Target;

/// Why a scene was left out.
pub(crate) const NO_TIME: &str = "no time left";

/// What a run needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured. Empty: the targets of the suite.
    pub targets: Vec<Target>,
    /// Time for the run. Scenes that were begun are finished.
    pub limit: Duration,
    /// Physical size of stores that are made; `None`: that of the suite.
    pub size_bytes: Option<u64>,
    /// Folder for everything temporary, on the disk to measure. It must exist, and stays.
    pub folder: PathBuf,
    /// The program `pumice`.
    pub program: PathBuf,
    /// The fio to use.
    pub fio: Fio,
    /// Repeats timed jobs that write until they are in a steady state.
    pub to_steady: bool,
    /// Data sets for the suite `datasets`.
    pub data: Vec<DataSet>,
    /// Client of the suite `s3`.
    pub s3_client: S3Client,
    /// The command line, for the report.
    pub command: String,
}
