//! Sizes of what is compressed.

/// Longest input of [`Compressor::compress`](crate::Compressor::compress), in bytes: a frame of 16 blocks.
pub const FRAME_BYTES_MAX: usize = 65536;

/// Granularity of records in bytes. A payload that does not save one unit is not worth decompressing.
pub const UNIT_BYTES: usize = 16;
