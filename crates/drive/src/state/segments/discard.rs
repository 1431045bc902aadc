//! Free segments whose space may be discarded in the backing.

use super::{Segments, State};

impl Segments {
    /// Takes a free segment whose space may be discarded in the backing. It leaves the free list until
    /// [`Segments::discarded`]. The highest is taken, because it is handed out last.
    pub(crate) fn take_for_discard(&mut self) -> Option<u32> {
        if self.discards == 0 {
            return None;
        }
        let segment = self.all(|s| s.discard).rev().find(|s| self.free.contains(*s))?;
        self.free.remove(segment);
        assert!(self.get(segment).state == State::Free && self.get(segment).live_units == 0);
        self.get_mut(segment).discard = false;
        self.discards -= 1;
        Some(segment)
    }

    /// Returns a segment to the free list after a discard.
    pub(crate) fn discarded(&mut self, segment: u32) {
        // It may have been set aside in the meantime.
        if self.get(segment).state() == State::Free {
            self.free.insert(segment);
        }
    }

    /// Returns whether freed space could be discarded.
    pub(crate) fn has_discard(&self) -> bool {
        self.discards > 0
    }

    /// Returns whether another checkpoint would let freed space be discarded.
    pub(crate) fn keeps_for_fallback(&self) -> bool {
        !self.kept_for_fallback.is_empty()
    }

    /// Another checkpoint is durable: what the one before it freed may be discarded, if it is still free.
    pub(crate) fn let_discard(&mut self) {
        for segment in std::mem::take(&mut self.kept_for_fallback) {
            let row = self.table.get_mut(segment);
            let is_free = row.state == State::Free;
            if is_free && !row.discard || row.state == State::Waiting {
                row.discard = true;
                self.discards += u32::from(is_free);
            }
        }
    }
}
