//! Moments of a power cut, defined by events that the disk observes.

use media::SimRng;

use super::image::PAGE_BYTES;

/// End of the superblocks and checkpoints of a small drive, in pages.
pub(super) const SLOTS_END_PAGES: u64 = sim::executor::SLOTS_END_BYTES / PAGE_BYTES as u64;

/// Events that a disk reports to its trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A write, discard or sync was received.
    Arrived,
    /// A sync is about to take effect.
    SyncEnds,
    /// The reply to a sync was sent.
    SyncAnswered,
    /// A superblock or checkpoint was written, and is not durable yet.
    SlotWritten,
    /// A client has received the reply to its flush.
    FlushAnswered,
}

/// Event that a trigger waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A write, discard or sync is received, and is in flight.
    InRequest,
    /// A sync is about to take effect.
    InSync,
    /// The reply to a sync was sent.
    AfterSync,
    /// A client has received the reply to a flush.
    AfterFlush,
    /// A superblock or checkpoint was written.
    AtSlot,
    /// Never: only the time limit ends the wait.
    Never,
}

impl When {
    /// Draws one of them.
    pub fn draw(rng: &mut SimRng) -> When {
        match rng.below(12) {
            0..3 => When::InRequest,
            3..5 => When::InSync,
            5..7 => When::AfterSync,
            7..9 => When::AfterFlush,
            9..11 => When::AtSlot,
            _ => When::Never,
        }
    }
}

/// A moment: an event, the number of its occurrences to skip, and the number of requests to wait for after
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Event to wait for.
    pub when: When,
    /// Number of occurrences to skip.
    pub skip: u64,
    /// Number of requests to wait for after the event.
    pub more: u64,
    reached: bool,
}

impl Trigger {
    /// Creates a trigger.
    pub fn new(when: When, skip: u64, more: u64) -> Trigger {
        Trigger { when, skip, more, reached: false }
    }

    /// Counts an event. Returns whether the moment is reached with it.
    pub(super) fn fires_on(&mut self, event: Event) -> bool {
        if self.reached {
            if event != Event::Arrived {
                return false;
            }
            self.more -= 1;
            return self.more == 0;
        }
        let is_it = match self.when {
            When::InRequest => event == Event::Arrived,
            When::InSync => event == Event::SyncEnds,
            When::AfterSync => event == Event::SyncAnswered,
            When::AfterFlush => event == Event::FlushAnswered,
            When::AtSlot => event == Event::SlotWritten,
            When::Never => false,
        };
        if !is_it {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.reached = true;
        self.more == 0
    }
}
