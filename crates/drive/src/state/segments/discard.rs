//! Free segments whose space the backing may still hold.

use std::ops::Range;

use super::{SegmentSet, SegmentState, Segments};
use crate::planted::PlantedBug;

/// Whether the backing may hold free segments that no row knows to have been used: by a run that did not
/// close the drive, or before the drive was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OthersHeld {
    /// It holds none.
    No,
    /// It may. [`Segments::take_for_discard`] offers them.
    MayBe,
    /// All were discarded, which only a sync makes durable.
    Discarded,
}

impl Segments {
    /// Takes the highest run of neighbouring free segments whose space the backing may still hold, at most
    /// `most` of them. They leave the free list until [`Segments::discarded`]. The highest are taken, because
    /// they are handed out last.
    pub(crate) fn take_for_discard(&mut self, most: u32) -> Option<Range<u32>> {
        let last = self.discards.last()?;
        let mut first = last;
        while first > 0 && last + 1 - first < most && self.discards.contains(first - 1) {
            first -= 1;
        }
        for segment in first..=last {
            self.discards.remove(segment);
            self.free.remove(segment);
            let row = self.get(segment);
            assert!(
                row.state() == SegmentState::Free && row.live_units() == 0,
                "segment {segment} is in use: {row:?}"
            );
        }
        Some(first..last + 1)
    }

    /// Returns segments to the free list after a discard. If it failed for a reason that may pass, their
    /// space is still held. Returns how many of them this drive has ever written to.
    pub(crate) fn discarded(&mut self, segments: Range<u32>, is_held: bool) -> u32 {
        let mut used = 0;
        for segment in segments {
            let row = self.get(segment);
            used += u32::from(row.was_used());
            // It may have been set aside in the meantime.
            if row.state() == SegmentState::Free {
                self.free.insert(segment);
                if is_held {
                    self.discards.insert(segment);
                }
            }
        }
        used
    }

    pub(crate) fn others_held(&self) -> OthersHeld {
        self.others_held
    }

    /// A discard has succeeded, and no other is in flight.
    pub(crate) fn note_discard(&mut self) {
        if self.discards.len() == 0 && self.others_held == OthersHeld::MayBe {
            self.others_held = OthersHeld::Discarded;
        }
    }

    /// A checkpoint is durable that says that the backing holds no others.
    pub(crate) fn set_no_others_held(&mut self) {
        self.others_held = OthersHeld::No;
    }

    /// Number of free segments that may be discarded now.
    pub(crate) fn discards_count(&self) -> u32 {
        self.discards.len()
    }

    /// Number of freed segments that may be discarded once another checkpoint is durable.
    pub(crate) fn kept_for_fallback_count(&self) -> u32 {
        self.kept_for_fallback.len() as u32
    }

    /// Another checkpoint is durable: what the one before it freed may be discarded, if it is still free.
    pub(crate) fn let_discard(&mut self) {
        for segment in std::mem::take(&mut self.kept_for_fallback) {
            match self.get(segment).state() {
                SegmentState::Free => self.discards.insert(segment),
                SegmentState::Waiting => self.get_mut(segment).discard = true,
                _ => {}
            }
        }
    }

    /// At an opening: runs do not record what they discard. The backing may hold free segments that were ever
    /// written to, and any of them if it may hold others.
    pub(super) fn list_discards(&mut self, may_hold_others: bool) {
        self.others_held = if may_hold_others { OthersHeld::MayBe } else { OthersHeld::No };
        self.discards = match may_hold_others {
            true => self.free.clone(),
            false => {
                let mut set = SegmentSet::none(self.count());
                self.all(|s| s.state == SegmentState::Free && s.was_used())
                    .for_each(|segment| set.insert(segment));
                set
            }
        };
        if self.planted.has(PlantedBug::HeldSpaceForgotten) {
            self.discards = SegmentSet::none(self.count());
        }
    }
}
