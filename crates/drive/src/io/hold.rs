//! Blocks that a request holds, so that it gets its turn.
//!
//! A request that covers a block in part reads the block, merges its bytes and appends the block anew, unless
//! it has changed in between: then it begins again. Preparing a large write takes a thousand times as long as
//! a small one. Beside a client that changes that block all the time, it would begin again for ever. After
//! some conflicts it therefore holds the blocks that it merges: others that change them wait until it is
//! done.
//!
//! One request at a time holds blocks, and it never waits for another that could hold some. So nobody waits
//! for each other.

use media::Media;

use crate::planted::PlantedBug;
use crate::shared::Shared;
use crate::state::batch::Batch;
use crate::wait::wait_until;

/// The right to change some blocks. Given back when dropped.
pub(crate) struct Hold<'a, M: Media>(&'a Shared<M>);

impl<M: Media> Drop for Hold<'_, M> {
    fn drop(&mut self) {
        if !self.0.planted.has(PlantedBug::HoldKept) {
            self.0.core().held.give_back();
        }
        self.0.progress.notify(usize::MAX);
    }
}

/// The turn of a request: its conflicts so far, and what it holds because of them.
pub(crate) struct Turn<'a, M: Media> {
    shared: &'a Shared<M>,
    conflicts: u32,
    hold: Option<Hold<'a, M>>,
}

impl<'a, M: Media> Turn<'a, M> {
    pub(crate) fn new(shared: &'a Shared<M>) -> Turn<'a, M> {
        Turn { shared, conflicts: 0, hold: None }
    }

    /// Notes that a block of `batch` has changed since it was read. Waits if it is time to hold the blocks
    /// and another request holds some. Who holds some already holds these in addition: a batch that is packed
    /// as small as possible relies on neighbours, too.
    pub(crate) async fn lost(&mut self, batch: &Batch) {
        self.conflicts += 1;
        self.shared.core().held.note_conflict(self.conflicts);
        // Without expectations, it was no block that changed, and none needs to be held.
        if self.conflicts < self.shared.conflicts_before_hold || batch.expected.is_empty() {
            return;
        }
        let holds = self.holds();
        let take = || {
            let mut core = self.shared.core();
            let is_free = holds || core.held.blocks().is_empty();
            is_free.then(|| core.held.take(&batch.expected))
        };
        wait_until(&self.shared.progress, take).await;
        if !holds {
            self.hold = Some(Hold(self.shared));
        }
    }

    /// Returns whether the request holds blocks.
    pub(crate) fn holds(&self) -> bool {
        self.hold.is_some()
    }
}
