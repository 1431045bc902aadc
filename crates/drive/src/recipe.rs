//! How blocks are compressed: codec, size of frames, dictionary.

use codec::{Dictionary, Policy};

/// How blocks are compressed.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) policy: Policy,
    /// Most adjacent blocks in a frame.
    pub(crate) frame_blocks: u64,
    /// For zstd.
    pub(crate) dictionary: Option<Dictionary>,
    /// What is made by it is as good as it gets.
    pub(crate) settled: bool,
}

impl Recipe {
    /// For what the drive keeps for itself: nothing that would have to be read before it.
    pub(crate) fn own() -> Recipe {
        Recipe { policy: Policy::Zstd(1), frame_blocks: 1, dictionary: None, settled: false }
    }
}
