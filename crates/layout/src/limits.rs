//! Limits that several structures share.

/// Sequence numbers are below this: counting on from one that was read never overflows.
pub const SEQUENCE_LIMIT: u64 = 1 << 62;
/// As far as counters are taken over: whoever counts on for a drive's life need not look.
pub const COUNT_MAX: u64 = 1 << 60;
/// Copies of the superblock on a drive.
pub const SUPERBLOCK_COPIES: usize = 2;
