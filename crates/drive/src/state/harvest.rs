//! What cleaning brings, so that it is given up where that is nothing.

use crate::state::core::Core;

/// Segments cleaned in the background without one more free in the end, after which it is given up until something has changed:
/// more than it takes to gain one from segments that are nearly all live.
pub(crate) const CLEANED_IN_VAIN_MAX: u32 = 64;
/// The same for requests, which try harder.
pub(crate) const CLEANED_IN_VAIN_BY_REQUESTS_MAX: u32 = 2 * CLEANED_IN_VAIN_MAX;

/// What cleaning has brought since anything changed as much as a segment. On a full drive with a large map it may bring nothing:
/// what is moved changes the map, and that is written to what was gained.
#[derive(Default)]
pub(crate) struct Harvest {
    /// Segments' worth of data that hosts had written and trimmed.
    changed: u64,
    /// Live units.
    live_units: u64,
    /// Free segments, at most, dead ones counted.
    best: u32,
    /// Segments cleaned since there were so many.
    in_vain: u32,
}

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

    /// Whether so many segments were cleaned for nothing.
    pub(crate) fn cleans_in_vain(&self, most: u32) -> bool {
        self.harvest.in_vain >= most && !self.has_changed()
    }

    /// Whether cleaning may bring what it did not bring before.
    fn has_changed(&self) -> bool {
        let harvest = &self.harvest;
        self.segments_changed() != harvest.changed
            || self.supply() > harvest.best
            || self.segments.live_units() + self.segments.segment_units() <= harvest.live_units
    }

    /// Free segments, dead ones counted.
    pub(crate) fn supply(&self) -> u32 {
        self.segments.free_count() + self.segments.dead_count()
    }

    fn segments_changed(&self) -> u64 {
        let bytes = self.counters.host_written_bytes.saturating_add(self.counters.host_trimmed_bytes);
        bytes / u64::from(self.geometry().segment_bytes)
    }
}
