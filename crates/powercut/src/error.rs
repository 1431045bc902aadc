//! Reasons for which a story fails.

use std::io;

use sim::oracle::Violation;

use crate::server::CommandFailed;

/// Reason for which a story fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A reply or content that a correct server does not return.
    #[error("{0}")]
    Violation(String),
    /// The server does not start, stop or answer as it should.
    #[error("the server {problem}{}", appended(log))]
    Server {
        /// What it did, or did not do.
        problem: String,
        /// Its log, or nothing.
        log: String,
    },
    /// A command of the program failed.
    #[error(transparent)]
    Command(#[from] CommandFailed),
    /// fio found an error, or did not end.
    #[error("fio {problem}:\n{output}")]
    Fio {
        /// What it found.
        problem: String,
        /// Its output.
        output: String,
    },
    /// A program that stories need is missing.
    #[error("{0}")]
    Missing(&'static str),
    /// An error of the system.
    #[error("{what}: {source}")]
    System {
        /// What failed.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
    /// An error, and the moment of the story.
    #[error("{when}: {source}")]
    At {
        /// The moment.
        when: String,
        /// The error.
        source: Box<Error>,
    },
}

impl Error {
    /// Error of the server, without its log.
    pub(crate) fn server(problem: impl Into<String>) -> Error {
        Error::Server { problem: problem.into(), log: String::new() }
    }

    /// Error of the system in an action, such as "cannot start fio".
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }

    /// Adds the moment of the story.
    pub(crate) fn at(self, when: impl Into<String>) -> Error {
        Error::At { when: when.into(), source: Box::new(self) }
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Error {
        Error::Violation(violation.0)
    }
}

/// A log after a message, on lines of its own.
fn appended(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(":\n{log}") }
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
