//! Segments that are out of use: bad or damaged ones.

use super::{SegmentState, Segments};
use crate::planted::PlantedBug;

impl Segments {
    /// Sets a segment aside for good.
    pub(crate) fn set_aside(&mut self, segment: u32, state: SegmentState) {
        assert!(matches!(state, SegmentState::Damaged | SegmentState::Bad));
        if !self.get(segment).is_set_aside() {
            self.set_aside.push(segment);
            // Readers that leave it must not make it free.
            self.waiting.retain(|waiting| *waiting != segment);
            self.free.remove(segment);
            self.discards.remove(segment);
        }
        self.set_state(segment, state);
    }

    /// The planted mistake with this name.
    pub(crate) fn forgets_bad(&self) -> bool {
        self.planted.has(PlantedBug::BadSegmentForgotten)
    }

    /// Numbers of damaged and of bad segments, without those that are set aside for the far copies.
    pub(crate) fn set_aside_counts(&self) -> (u32, u32) {
        let bad = self.set_aside.iter().filter(|s| self.get(**s).state == SegmentState::Bad).count();
        let far = self.geometry.far_segments().len();
        ((self.set_aside.len() - bad) as u32, bad.saturating_sub(far) as u32)
    }

    /// Number of bad segments.
    pub(crate) fn bad_count(&self) -> u32 {
        self.set_aside_counts().1
    }

    /// Bad segments in which something lives, all of it on the medium.
    pub(crate) fn bad_with_live(&self) -> impl Iterator<Item = u32> {
        let has_live = |s: &u32| {
            let row = self.get(*s);
            row.state == SegmentState::Bad && row.unwritten == 0 && row.live_units > 0
        };
        self.set_aside.iter().copied().filter(has_live)
    }

    /// Room lost in segments that were set aside.
    pub(crate) fn set_aside_units(&self) -> u64 {
        let lost = |s: &u32| self.segment_units().saturating_sub(self.get(*s).live_units.into());
        self.set_aside.iter().map(lost).sum()
    }
}
