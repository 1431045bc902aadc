//! The outcome of recovery.

/// Result of an opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Packs rolled forward.
    pub packs_count: u64,
    /// Bytes of log read for that.
    pub log_bytes: u64,
    /// Records of data in it that were durable and cannot be read.
    pub damaged_records_count: u64,
    /// The drive had been closed properly.
    pub clean: bool,
    /// No copy of the superblock was left at the start of the backing. The far copies were used.
    pub start_lost: bool,
}
