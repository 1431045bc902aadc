//! Arithmetic of sizes: space held back and its purposes, rates of cleaning and of writers. The crate does
//! not depend on a drive: plans call the same functions as the drive itself.

#![forbid(unsafe_code)]

mod map;
mod pace;
mod reserve;

pub use map::{
    PAIR_BYTES, ancestors_bytes, leaves_max, map_churn_bytes, map_growth_bytes, upper_bytes, upper_nodes,
    with_ends,
};
pub use pace::{Pace, Supply, pace};
pub use reserve::{data_bytes_max, dense_bytes, host_floor_segments, kept_for_small, watermarks};

/// Number of bytes at which a pack is sealed.
pub const PACK_SOFT_BYTES: usize = 256 * 1024;
/// Most bytes of sealed packs that wait for the medium. Beyond this, writers wait.
pub const UNWRITTEN_MAX_BYTES: u64 = 16 << 20;
/// Records of log after a checkpoint at which another one is needed. Bounds the memory of roll-forward.
pub const LOG_RECORDS_MAX: u64 = 1 << 20;
/// Largest pack: a full soft one and the largest atomic write.
pub const PACK_HARD_BYTES: usize = PACK_SOFT_BYTES + layout::ATOMIC_WRITE_BYTES;
