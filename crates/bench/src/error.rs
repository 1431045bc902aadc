//! Reasons why a benchmark cannot run.

use std::io;
use std::path::PathBuf;

/// Words of [`BenchError::TooFew`].
pub(crate) const TOO_FEW: &str = "too few requests for a figure";

/// Reason why a target must not be used, with the remedy.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// Reason why a benchmark cannot run or be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A program is missing.
    #[error("{program} is not installed: install the package {package}")]
    Missing {
        /// The program.
        program: String,
        /// The package of Debian and Ubuntu that has it.
        package: &'static str,
    },
    /// fio is too old.
    #[error("{found}: too old, expected fio {oldest} or newer")]
    OldFio {
        /// What it calls itself.
        found: String,
        /// Oldest version that works.
        oldest: &'static str,
    },
    /// A program failed.
    #[error("{program}: {problem}")]
    Program {
        /// The program.
        program: String,
        /// The last line it printed, or how it ended.
        problem: String,
        /// Whether it was killed, by the run after its time or by others. It may have done what it was asked
        /// for.
        was_killed: bool,
    },
    /// A program did its work, in which there was too little for figures: nothing has failed, and nothing was
    /// measured.
    #[error("{program}: {TOO_FEW}, {requests}: {remedy}")]
    TooFew {
        /// The program.
        program: &'static str,
        /// Requests that were made.
        requests: u64,
        /// What gives more of them.
        remedy: &'static str,
    },
    /// Output of fio, or a file with a run, is not what it should be.
    #[error("{what}: {problem}")]
    Format {
        /// The program or file.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A target cannot be used.
    #[error("target {target}: {problem}")]
    Target {
        /// The target as given.
        target: String,
        /// Problem and remedy.
        #[source]
        problem: Refusal,
    },
    /// Two data sets cannot be told apart.
    #[error("data set {name}: {problem}")]
    DataSet {
        /// One of them.
        name: String,
        /// Problem and remedy.
        problem: String,
    },
    /// What is made for a target does not fit.
    #[error("target {target}: takes up to {needed_mib} MiB, and {} has {free_mib} MiB free: use --size or \
        --dir", folder.display())]
    NoRoom {
        /// The target.
        target: String,
        /// Where it would be made.
        folder: PathBuf,
        /// What it may take there, in MiB.
        needed_mib: u64,
        /// What is free there, in MiB.
        free_mib: u64,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Nothing in a suite suits the targets or the machine.
    #[error("suite {suite}: nothing was measured: {why}")]
    Nothing {
        /// The suite.
        suite: &'static str,
        /// What was left out, and why.
        why: String,
    },
    /// A run without results could not take away what it had made.
    #[error("{source}; {left}")]
    LeftBehind {
        /// Why there are no results.
        source: Box<BenchError>,
        /// What is still there, and how to take it away.
        left: String,
    },
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// Whether the user stopped it.
    pub fn is_interrupted(&self) -> bool {
        match self {
            BenchError::Interrupted => true,
            BenchError::LeftBehind { source, .. } => source.is_interrupted(),
            _ => false,
        }
    }

    /// Whether what a program was asked for may be done all the same: it was killed at its work.
    pub(crate) fn may_be_done(&self) -> bool {
        matches!(self, BenchError::Interrupted | BenchError::Program { was_killed: true, .. })
    }

    /// Whether a store had no room for what was written.
    pub(crate) fn is_out_of_space(&self) -> bool {
        matches!(self, BenchError::Program { problem, .. } if problem.contains("No space left"))
    }

    pub(crate) fn program(program: &str, problem: impl Into<String>) -> BenchError {
        BenchError::Program { program: program.to_string(), problem: problem.into(), was_killed: false }
    }

    pub(crate) fn killed(program: &str, problem: impl Into<String>) -> BenchError {
        BenchError::Program { program: program.to_string(), problem: problem.into(), was_killed: true }
    }

    pub(crate) fn target(target: &str, problem: impl Into<Refusal>) -> BenchError {
        BenchError::Target { target: target.to_string(), problem: problem.into() }
    }

    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(io::Error) -> BenchError + '_ {
        |source| BenchError::Io { path: path.to_path_buf(), source }
    }
}

pub(crate) type Result<T, E = BenchError> = std::result::Result<T, E>;
