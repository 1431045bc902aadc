//! Fillings of segments that heads begin and leave. What is left gets its parity.

use layout::Geometry;
use layout::pack::NextSegment;

use super::{HeadState, Log};
use crate::state::accumulator::{Closed, FillingId};
use crate::state::segments::{SegmentState, Segments};

impl HeadState {
    /// The head begins to fill its current segment.
    pub(super) fn begin(&mut self, segments: &Segments, geometry: &Geometry) {
        self.parity = segments.get(self.current.segment).parity();
        self.room = self.parity.room_bytes(geometry.segment_bytes);
        self.offset = 0;
        self.leaves = false;
    }

    /// The filling that the head leaves, if it has parity and anything in it.
    pub(super) fn closed(&self, segments: &Segments) -> Option<Closed> {
        let NextSegment { segment, generation } = self.current;
        let last_sequence = segments.get(segment).last_sequence();
        let id = FillingId { segment, generation };
        let has_any = self.parity.part().is_some() && self.offset > 0;
        has_any.then_some(Closed { id, form: self.parity, end: self.offset, last_sequence })
    }
}

impl Log {
    /// Fillings to which nothing is added any more, since the last call.
    pub(crate) fn take_closed(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.closed)
    }

    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// All heads leave their segments: the next packs go elsewhere.
    pub(crate) fn leave_segments(&mut self, segments: &mut Segments) {
        for state in &mut self.heads {
            let may_leave = state.open.is_none() && state.current.is_some() && !state.leaves;
            if may_leave
                && state.parity.part().is_some()
                && segments.get(state.current.segment).state() == SegmentState::Open
            {
                segments.set_state(state.current.segment, SegmentState::Sealed);
                self.closed.extend(state.closed(segments));
                state.leaves = true;
            }
        }
    }
}
