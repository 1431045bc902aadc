//! Reasons why a drive accepts no changes.

/// Why a drive accepts no changes.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnly {
    /// It was opened read-only.
    #[error("opened read-only")]
    Requested,
    /// Its log is damaged, and it was opened nevertheless.
    #[error("{0}")]
    Damaged(String),
    /// A write or sync of the backing failed, or the engine panicked: no write is accepted until it is opened again.
    #[error("{0}")]
    Poisoned(String),
    /// It was closed.
    #[error("the drive is closed")]
    Closed,
}
