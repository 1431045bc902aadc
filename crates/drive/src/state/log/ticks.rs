//! Ticks: packs that nothing else seals.

use layout::Head;

use super::Log;
use crate::state::segments::Segments;

impl Log {
    /// A tick: seals the open packs that got nothing since the last one. If no pack states the present
    /// durable number yet, an empty one does. With it, recovery distinguishes damage from a crash also at the
    /// end of the log.
    pub(crate) fn tick(&mut self, segments: &mut Segments) {
        if self.owes_durable_number() && self.has_no_open_pack() {
            self.open_pack(Head::Host);
            self.seal(Head::Host, segments);
        }
        for head in Head::ALL {
            if self.heads[head as usize].open.as_ref().is_some_and(|open| open.tick < self.tick) {
                self.seal(head, segments);
            }
        }
        self.tick += 1;
    }

    /// Returns whether ticks have nothing to do.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.has_no_open_pack() && !self.owes_durable_number()
    }

    fn has_no_open_pack(&self) -> bool {
        self.heads.iter().all(|head| head.open.is_none())
    }

    /// Returns whether no pack states the present durable number, and one could.
    fn owes_durable_number(&self) -> bool {
        self.durable > self.vouched && self.fits(Head::Host, 0)
    }
}
