//! Whether the superblock says that records may be structured (codec 4), which older programs cannot read. It
//! does so from the first time on that such a record could be of use.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use codec::CodecId;
use layout::Superblock;

use crate::planted::{Planted, PlantedBug};

const UNKNOWN: u8 = 0;
const WANTED: u8 = 1;
const RECORDED: u8 = 2;

/// The bit of the codec in [`Superblock::codecs`].
pub(crate) const STRUCTURED: u32 = 1 << CodecId::Structured as u8;

/// State of the bit in the superblock.
pub(crate) struct Structure {
    state: AtomicU8,
    /// Tick before which recording is not tried again.
    not_before: AtomicU64,
}

impl Structure {
    pub(crate) fn of(superblock: &Superblock, planted: Planted) -> Structure {
        let is_recorded = superblock.codecs & STRUCTURED != 0 || planted.has(PlantedBug::CodecUnrecorded);
        let state = AtomicU8::new(if is_recorded { RECORDED } else { UNKNOWN });
        Structure { state, not_before: AtomicU64::new(0) }
    }

    /// Returns whether records may be structured. If not, it is remembered that they could have been.
    pub(crate) fn may(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            RECORDED => true,
            WANTED => false,
            _ => {
                // Of two at once, the one that records it wins.
                let _ = self.state.compare_exchange(UNKNOWN, WANTED, Ordering::Relaxed, Ordering::Relaxed);
                false
            }
        }
    }

    /// Returns whether it is to be recorded, at this tick.
    pub(crate) fn is_wanted(&self, tick: u64) -> bool {
        self.state.load(Ordering::Relaxed) == WANTED && tick >= self.not_before.load(Ordering::Relaxed)
    }

    /// Recording is not tried again before this tick.
    pub(crate) fn put_off(&self, until: u64) {
        self.not_before.store(until, Ordering::Relaxed);
    }

    /// It is recorded durably.
    pub(crate) fn set_recorded(&self) {
        self.state.store(RECORDED, Ordering::Release);
    }
}
