//! Sizes of packs.

use layout::ATOMIC_WRITE_BYTES;

/// A pack is sealed once it holds this much.
pub(crate) const PACK_SOFT_BYTES: usize = 256 * 1024;
/// A pack never grows beyond this: a full soft one and the largest atomic write on top.
pub(crate) const PACK_HARD_BYTES: usize = PACK_SOFT_BYTES + ATOMIC_WRITE_BYTES;
