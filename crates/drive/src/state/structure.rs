//! Whether the superblock says that records may be structured (codec 4), which older programs cannot read. It does so
//! from the first time on that such a record could be of use.

use std::sync::atomic::{AtomicU8, Ordering};

use codec::CodecId;
use layout::Superblock;

use crate::planted::{Planted, PlantedBug};

const UNKNOWN: u8 = 0;
const WANTED: u8 = 1;
const RECORDED: u8 = 2;

/// The bit of the codec in [`Superblock::codecs`].
pub(crate) const STRUCTURED: u32 = 1 << CodecId::Structured as u8;

/// State of the bit in the superblock.
pub(crate) struct Structure(AtomicU8);

impl Structure {
    pub(crate) fn of(superblock: &Superblock, planted: Planted) -> Structure {
        let is_recorded = superblock.codecs & STRUCTURED != 0 || planted.has(PlantedBug::CodecUnrecorded);
        Structure(AtomicU8::new(if is_recorded { RECORDED } else { UNKNOWN }))
    }

    /// Returns whether records may be structured. If not, it is remembered that they could have been.
    pub(crate) fn may(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            RECORDED => true,
            WANTED => false,
            _ => {
                // Of two at once, the one that records it wins.
                let _ = self.0.compare_exchange(UNKNOWN, WANTED, Ordering::Relaxed, Ordering::Relaxed);
                false
            }
        }
    }

    /// Returns whether it is to be recorded.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WANTED
    }

    /// It is recorded durably.
    pub(crate) fn set_recorded(&self) {
        self.0.store(RECORDED, Ordering::Release);
    }
}
