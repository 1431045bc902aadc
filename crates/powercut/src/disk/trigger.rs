//! When to cut the power: at what the disk sees.

use media::SimRng;

use super::image::PAGE_BYTES;

/// What is before this on a small drive is superblocks and checkpoints, in pages.
pub(super) const SLOTS_END_PAGES: u64 = sim::executor::SLOTS_END_BYTES / PAGE_BYTES as u64;

/// What a disk tells its trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A write, discard or sync came in.
    Arrived,
    /// A sync is about to take effect.
    SyncEnds,
    /// The answer to a sync has gone out.
    SyncAnswered,
    /// A superblock or checkpoint was written, and is not durable.
    SlotWritten,
    /// A client has the answer to its flush.
    FlushAnswered,
}

/// The moment that a trigger waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A write, discard or sync comes in: it is in flight then.
    InRequest,
    /// A sync is about to take effect.
    InSync,
    /// The answer to a sync has gone out.
    AfterSync,
    /// A flush was answered, and the client knows.
    AfterFlush,
    /// After a superblock or checkpoint was written.
    AtSlot,
    /// Never: only the time decides.
    Never,
}

impl When {
    /// Any of them.
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

/// A moment: what it is, how often it passes before it counts, and how many requests come in after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// What to wait for.
    pub when: When,
    /// Times it passes first.
    pub skip: u64,
    /// Requests after it.
    pub more: u64,
    reached: bool,
}

impl Trigger {
    /// A trigger.
    pub fn new(when: When, skip: u64, more: u64) -> Trigger {
        Trigger { when, skip, more, reached: false }
    }

    /// Whether this is the moment.
    pub(super) fn hears(&mut self, event: Event) -> bool {
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
