//! Frames that are read at random often are cut into single blocks: such a read decompresses 4 KiB then, not up to
//! 32 KiB. Which they are, `state/heat` counts.
//!
//! Single blocks take more space, least with a dictionary. Data that would grow by more than an eighth stays as it is,
//! and so does everything while the drive has not much room. What was cut counts as settled, so that settling leaves
//! it: a frame is made of it again when it is overwritten, when newer dictionaries make it smaller, or when the drive is
//! full.

use std::sync::atomic::Ordering;

use codec::Policy;
use layout::Entry;
use media::Media;

use crate::error::Error;
use crate::shared::Drive;
use crate::state::core::Core;
use crate::state::map::Missing;
use crate::state::pins::Pin;
use crate::upkeep::recompress::{GROUP_BLOCKS, Pick, SettleStep};

/// Frames may grow to this many eighths.
pub(crate) const GROWTH_MAX_EIGHTHS: u64 = 9;

impl<M: Media> Drive<M> {
    /// Cuts the frames of one group of blocks that is read at random often. Returns `None` if there is none, or if
    /// everything stays as it is for now: there is not much room, or nothing is compressed.
    ///
    /// # Errors
    ///
    /// Errors of the medium. The drive is as it was.
    pub async fn cut_hot_step(&self) -> Result<Option<SettleStep>, Error> {
        let shared = &self.0;
        let Some(first) = shared.heat.take_hot() else { return Ok(None) };
        shared.core().writable()?;
        if shared.codec() == Policy::None || !shared.has_room.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (entries, pins) = loop {
            let looked = shared.core().frames_of(first);
            match looked {
                Ok(found) => break found,
                Err(missing) => shared.load(missing).await?,
            }
        };
        if pins.is_empty() {
            return Ok(Some(SettleStep::default()));
        }
        let mut step = shared.settle_found(first, entries, pins, &Pick::Hot).await?;
        // What changed meanwhile is counted again if it is still hot.
        step.next_block = None;
        Ok(Some(step))
    }
}

impl Core {
    /// Returns the entries of a group of blocks, those of frames only, with pins of their segments.
    fn frames_of(&mut self, first: u64) -> Result<(Vec<Entry>, Vec<Pin>), Missing> {
        let mut entries = Vec::with_capacity(GROUP_BLOCKS as usize);
        let count = GROUP_BLOCKS.min(self.blocks().saturating_sub(first));
        self.map.lookup(first, count as usize, |_, entry| entries.push(entry))?;
        self.pick(&mut entries, &Pick::Hot);
        let pins = self.pins_of(&entries);
        Ok((entries, pins))
    }
}
