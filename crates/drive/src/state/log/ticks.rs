//! Ticks: packs that nothing else seals.

use layout::Head;

use super::Log;
use crate::state::segments::{Claim, Segments};

impl Log {
    /// A tick: seals the open packs that got nothing since the last one. If no pack states the present
    /// durable number yet, an empty one does. With it, recovery distinguishes damage from a crash also at the
    /// end of the log.
    pub(crate) fn tick(&mut self, segments: &mut Segments) {
        if self.owes_durable_number(segments) && self.has_no_open_pack() {
            self.vouch(segments);
        }
        for head in Head::ALL {
            if self.heads[head as usize].open.as_ref().is_some_and(|open| open.tick < self.tick) {
                self.seal(head, segments);
            }
        }
        self.tick += 1;
    }

    /// Returns whether ticks have nothing to do.
    pub(crate) fn is_at_rest(&self, segments: &Segments) -> bool {
        self.has_no_open_pack() && !self.owes_durable_number(segments)
    }

    /// Returns whether all that was appended is written.
    pub(crate) fn is_written(&self) -> bool {
        self.has_no_open_pack() && self.written() >= self.filled()
    }

    fn has_no_open_pack(&self) -> bool {
        self.heads.iter().all(|head| head.open.is_none())
    }

    /// Returns whether no pack states the present durable number, and one could. At the end of its segment
    /// the host goes on to the next one for it, unless others may need that more.
    fn owes_durable_number(&self, segments: &Segments) -> bool {
        let host = &self.heads[Head::Host as usize];
        let may_advance = || host.current.is_some() && !host.leaves && host.next.is_some() && host.announced;
        self.durable > self.vouched
            && (self.fits(self.vouching_head(), 0) || segments.has_stock(Claim::Ordinary) && may_advance())
    }

    /// The head that vouches: cleaning's if no host has written in this run.
    fn vouching_head(&self) -> Head {
        match self.heads[Head::Host as usize].current.is_some() {
            true => Head::Host,
            false => Head::Cleaning,
        }
    }

    fn vouch(&mut self, segments: &mut Segments) {
        let by = self.vouching_head();
        if self.fits(by, 0) || self.advance(by, Claim::Ordinary, segments).is_ok() {
            self.open_pack(by);
            self.seal(by, segments);
        }
    }
}
