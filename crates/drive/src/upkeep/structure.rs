//! Recording in the superblock that records may be structured.

use std::sync::Arc;

use media::Media;

use crate::error::Error;
use crate::shared::Shared;
use crate::state::structure::STRUCTURED;

/// Ticks before recording is tried again, if the backing had no room for it.
const AGAIN_TICKS: u64 = 1000;

impl<M: Media> Shared<M> {
    /// Returns whether it is to be recorded that records may be structured, and can be.
    pub(crate) fn owes_structure(&self) -> bool {
        let core = self.core();
        self.structure.is_wanted(core.ticks) && core.mode.writable().is_ok() && !core.full_backing.is_full()
    }

    /// Records that records may be structured. The caller has the right to maintenance. While the backing is
    /// full it is left for later.
    pub(crate) async fn record_structure(self: &Arc<Self>) -> Result<(), Error> {
        let mut superblock = self.writable_superblock()?;
        if superblock.codecs & STRUCTURED == 0 {
            superblock.codecs |= STRUCTURED;
            let written = match self.write_superblock(&mut superblock).await {
                Ok(()) => self.announce_superblock(superblock.update).await,
                error => error,
            };
            match written {
                Ok(()) => self.core().superblock = superblock,
                Err(Error::BackingFull) => {
                    self.structure.put_off(self.core().ticks + AGAIN_TICKS);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.structure.set_recorded();
        Ok(())
    }
}
