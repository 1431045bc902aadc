//! Compression engines behind one trait.

/// How a drive compresses new blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// What is best in general: zstd level 1 today.
    Auto,
    /// LZ4.
    Lz4,
    /// Zstandard at a level from -5 to 19.
    Zstd(i8),
    /// Stored as it came (zero and fill blocks still take no payload).
    None,
}
