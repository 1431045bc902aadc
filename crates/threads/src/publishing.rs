//! Substitutes for what surrounds the memory of packs in `drive`.

use loom::sync::Arc;

use crate::arena::IoBuf;

/// Bytes of the largest pack: two units.
pub(crate) const PACK_HARD_BYTES: usize = 8192;

/// As in `state/log.rs`.
#[derive(Clone)]
pub(crate) struct SealedPack {
    pub(crate) sequence: u64,
    pub(crate) buf: Arc<IoBuf>,
    pub(crate) is_announced: bool,
}
