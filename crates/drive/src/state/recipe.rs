//! How blocks are compressed: codec, size of frames, dictionary.

use std::sync::Arc;

use codec::{Dictionary, Policy};

/// How blocks are compressed.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) policy: Policy,
    /// Most adjacent blocks in a frame.
    pub(crate) frame_blocks: u64,
    /// For zstd: each record takes the one that fits its data, if any.
    pub(crate) dictionaries: Arc<[Dictionary]>,
    /// What is made by it is as good as it gets.
    pub(crate) settled: bool,
}

impl Recipe {
    /// The dictionary for some data.
    pub(crate) fn dictionary_for(&self, data: &[u8]) -> Option<&Dictionary> {
        if self.dictionaries.is_empty() { None } else { codec::choose(&self.dictionaries, data) }
    }

    /// For what the drive keeps for itself: nothing that would have to be read before it.
    pub(crate) fn own() -> Recipe {
        Recipe { policy: Policy::Zstd(1), frame_blocks: 1, dictionaries: Arc::new([]), settled: false }
    }
}
