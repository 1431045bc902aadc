//! Frames that are read at random often are cut into single blocks: such a read decompresses 4 KiB then, not
//! up to 32 KiB. Which they are, `state/heat` counts.
//!
//! Single blocks take more space, least with a dictionary. Data that would take more than an eighth more than
//! settled stays as it is, and so does everything while the drive has not much room. What was cut counts as
//! settled, so that settling leaves it while there is room; without, settling joins it again (`recompress`).

use std::sync::atomic::Ordering;

use codec::Policy;
use layout::Entry;
use media::Media;

use crate::error::Error;
use crate::shared::Drive;
use crate::state::core::Core;
use crate::state::map::Missing;
use crate::state::pins::Pin;
use crate::upkeep::make_settled::{GROUP_BLOCKS, Pick};
use crate::upkeep::recompress::SettleStep;

impl<M: Media> Drive<M> {
    /// Returns whether frames wait that are read at random often, and may be cut.
    pub fn has_hot(&self) -> bool {
        let shared = &self.0;
        shared.heat.has_hot() && shared.codec() != Policy::None && shared.has_room.load(Ordering::Relaxed)
    }

    /// Cuts the frames of one group of blocks that is read at random often. Returns `None` if there is none,
    /// or if everything stays as it is for now: there is not much room, or nothing is compressed.
    ///
    /// # Errors
    ///
    /// Errors of the medium. The drive is as it was.
    pub async fn cut_hot_step(&self) -> Result<Option<SettleStep>, Error> {
        let shared = &self.0;
        shared.core().mode.writable()?;
        if !self.has_hot() {
            return Ok(None);
        }
        let Some(hot) = shared.heat.take_hot() else { return Ok(None) };
        let first = hot.first();
        let (entries, pins) = loop {
            let looked = shared.core().frames_of(first);
            match looked {
                Ok(found) => break found,
                Err(missing) => match shared.load(missing).await {
                    Ok(()) => {}
                    // What is mapped there is not available.
                    Err(Error::Corrupt(_)) => {
                        hot.refuse();
                        return Ok(Some(SettleStep::default()));
                    }
                    Err(error) => return Err(error),
                },
            }
        };
        if pins.is_empty() {
            return Ok(Some(SettleStep::default()));
        }
        let (mut step, made) = shared.settle_found(first, entries, pins, &Pick::Hot).await?;
        if step.next_block == Some(first) {
            hot.put_back();
        } else if !made {
            hot.refuse();
        }
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
