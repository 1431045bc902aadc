//! One segment: its state, and what is counted of it.

use layout::{ParityForm, SegmentRow, SegmentUse};

/// State of a segment in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// May be given to a head.
    Free,
    /// Freed while a reader still uses it. Free once the reader is done.
    Waiting,
    /// Promised to a head, not yet written.
    Promised,
    /// A head appends to it.
    Open,
    /// Full or given up: is only read, cleaned and freed.
    Sealed,
    /// Holds a record that could not be read. Stays as it is.
    Damaged,
    /// A write to it failed. Read only, never freed.
    Bad,
}

/// [`Segment::filled_units`] of a filling from an earlier run.
pub(super) const UNKNOWN: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Lengths of the records with anything live, in 16-byte units.
    pub(super) live_units: u32,
    /// Part of these: shares of dead blocks of frames, which packing the others anew may gain. Never more
    /// than that. Less if packing was tried without success, or if a death is not accounted yet.
    pub(super) repackable_units: u32,
    /// Lengths of all records of this filling that were ever live. `UNKNOWN` for a filling from an earlier
    /// run.
    pub(super) filled_units: u32,
    /// Number of this filling.
    pub(super) generation: u32,
    /// Sequence number of the newest pack in it.
    pub(super) last_sequence: u64,
    pub(super) state: SegmentState,
    /// What this filling has set apart for parity.
    pub(super) parity: ParityForm,
    /// That parity is durable.
    pub(super) has_parity: bool,
    /// Number of its packs that are in memory and not yet on the medium.
    pub(crate) unwritten: u16,
    /// Freed while being read, and to be discarded in the backing as soon as it is free.
    pub(super) discard: bool,
    /// Cleaned since the last checkpoint. What lives in it are map nodes, which the next checkpoint moves.
    pub(super) cleaned: bool,
}

impl SegmentState {
    /// Returns whether a segment may go from this state to another.
    pub(super) fn may_become(self, next: SegmentState) -> bool {
        match next {
            SegmentState::Free => matches!(self, SegmentState::Sealed | SegmentState::Waiting),
            SegmentState::Waiting => self == SegmentState::Sealed,
            SegmentState::Promised => self == SegmentState::Free,
            SegmentState::Open => self == SegmentState::Promised,
            // Recovery finds packs in segments that the checkpoint knew as free.
            SegmentState::Sealed => {
                matches!(self, SegmentState::Open | SegmentState::Free | SegmentState::Sealed)
            }
            SegmentState::Damaged | SegmentState::Bad => true,
        }
    }
}

impl Segment {
    /// A segment that was never used.
    pub(crate) const BLANK: Segment = Segment {
        live_units: 0,
        repackable_units: 0,
        // Set to 0 when it is taken. If the log shows that an earlier run did so, it is not known.
        filled_units: UNKNOWN,
        generation: 0,
        last_sequence: 0,
        state: SegmentState::Free,
        parity: ParityForm::None,
        has_parity: false,
        unwritten: 0,
        discard: false,
        cleaned: false,
    };

    pub(crate) fn live_units(&self) -> u32 {
        self.live_units
    }

    pub(crate) fn repackable_units(&self) -> u32 {
        self.repackable_units
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    pub(crate) fn parity(&self) -> ParityForm {
        self.parity
    }

    pub(crate) fn has_parity(&self) -> bool {
        self.has_parity
    }

    pub(crate) fn state(&self) -> SegmentState {
        self.state
    }

    /// Returns whether it was ever promised to a head, in this run or in one whose checkpoint is known.
    pub(super) fn was_used(&self) -> bool {
        self.generation != 0
    }

    /// Returns whether only a checkpoint is missing for it to become free.
    pub(super) fn is_dead(&self) -> bool {
        self.state == SegmentState::Sealed && self.live_units == 0
    }

    /// Returns whether it is out of use for good.
    pub(crate) fn is_set_aside(&self) -> bool {
        matches!(self.state, SegmentState::Damaged | SegmentState::Bad)
    }

    /// Its live units if its frames were packed anew.
    pub(super) fn expected_units(&self) -> u32 {
        self.live_units.saturating_sub(self.repackable_units)
    }

    /// Returns whether moving its live contents gains anything. `full` is the capacity of a segment in units,
    /// `dense` that of one packed densely. The gain is what died there or was never packed densely. Because
    /// of this condition cleaning comes to an end.
    pub(super) fn is_worth_cleaning(&self, full: u64, dense: u64) -> bool {
        let expected = u64::from(self.expected_units());
        let died = u64::from(self.filled_units) - expected.min(self.filled_units.into());
        // Nearly full segments cost more than they give.
        expected < dense || expected * 100 < full * 97 && died * 100 >= full
    }

    /// Returns whether it holds something live that cleaning may move and has not tried to move since the
    /// last checkpoint.
    pub(super) fn may_be_cleaned(&self) -> bool {
        self.state == SegmentState::Sealed && self.unwritten == 0 && !self.cleaned && self.live_units > 0
    }

    /// What is dead in it if that is at least a quarter of what was written to it, else 0. `full` is the
    /// capacity of a segment in units.
    pub(super) fn thin_units(&self, full: u64) -> u64 {
        let (filled, expected) = (full.min(self.filled_units.into()), u64::from(self.expected_units()));
        if expected * 4 <= filled * 3 { filled - expected } else { 0 }
    }

    pub(super) fn row(&self) -> SegmentRow {
        SegmentRow {
            live_units: self.live_units,
            generation: self.generation,
            last_sequence: self.last_sequence,
            repackable_units: self.repackable_units,
            usage: match self.state {
                SegmentState::Free | SegmentState::Waiting | SegmentState::Promised => SegmentUse::Free,
                SegmentState::Open | SegmentState::Sealed => SegmentUse::Used,
                SegmentState::Damaged => SegmentUse::Damaged,
                SegmentState::Bad => SegmentUse::Bad,
            },
            parity: self.parity,
            has_parity: self.has_parity,
        }
    }
}
