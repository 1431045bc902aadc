//! Compression of blocks: codec, size of frames, dictionary.

use std::sync::Arc;

use codec::{Dictionary, Effort, Policy};

/// Settings for the compression of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) policy: Policy,
    /// Most adjacent blocks in a frame.
    pub(crate) frame_blocks: u64,
    /// For zstd: each record uses the one that fits its data, if any.
    pub(crate) dictionaries: Arc<[Dictionary]>,
    /// Its output cannot be improved any more.
    pub(crate) settled: bool,
    /// For zstd: frames whose data has structure are transformed before. With this effort it is looked for.
    pub(crate) effort: Option<Effort>,
    /// Data that gains little is stored uncompressed for now.
    pub(crate) puts_off: bool,
}

impl Recipe {
    /// Returns the dictionary for some data.
    pub(crate) fn dictionary_for(&self, data: &[u8]) -> Option<&Dictionary> {
        if self.dictionaries.is_empty() { None } else { codec::choose(&self.dictionaries, data) }
    }

    /// For what the drive stores for itself. Needs nothing that would have to be read first.
    pub(crate) fn own() -> Recipe {
        Recipe {
            policy: Policy::Zstd(1),
            frame_blocks: 1,
            dictionaries: Arc::new([]),
            settled: false,
            effort: None,
            puts_off: false,
        }
    }
}
