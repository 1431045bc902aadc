//! Gain of cleaning.

use crate::state::core::Core;
use crate::state::harvest::Harvest;

impl Core {
    /// A segment was cleaned, or there was no room to clean one.
    pub(crate) fn note_harvest(&mut self) {
        if self.has_changed() {
            self.harvest = Harvest {
                changed: self.segments_changed(),
                live_units: self.segments.live_units(),
                best: self.supply(),
                in_vain: 0,
            };
        } else {
            self.harvest.in_vain += 1;
        }
    }

    /// Returns whether this number of segments was cleaned without gain.
    pub(crate) fn cleans_in_vain(&self, most: u32) -> bool {
        self.harvest.in_vain >= most && !self.has_changed()
    }

    /// Returns whether cleaning may gain what it did not gain before.
    fn has_changed(&self) -> bool {
        let harvest = &self.harvest;
        self.segments_changed() != harvest.changed
            || self.supply() > harvest.best
            || self.segments.live_units() + self.segments.segment_units() <= harvest.live_units
    }

    /// Number of free segments, including dead ones.
    pub(crate) fn supply(&self) -> u32 {
        self.segments.free_count() + self.segments.dead_count()
    }

    fn segments_changed(&self) -> u64 {
        let bytes = self.counters.host_written_bytes.saturating_add(self.counters.host_trimmed_bytes);
        bytes / u64::from(self.geometry().segment_bytes)
    }
}
