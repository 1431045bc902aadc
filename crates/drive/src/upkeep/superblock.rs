//! Changing the superblock while the drive is in use: its copies are written one after the other, each made
//! durable before the next, so that one of them is always whole.

use std::sync::Arc;

use layout::{PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::shared::Shared;

impl<M: Media> Shared<M> {
    /// Returns the superblock, to be changed.
    pub(crate) fn writable_superblock(&self) -> Result<Superblock, Error> {
        let core = self.core();
        core.mode.writable()?;
        Ok(core.superblock.clone())
    }

    /// Writes all copies of the superblock, with a number above that of any copy that could not be read.
    pub(crate) async fn renew_superblock(self: &Arc<Self>) -> Result<(), Error> {
        let mut superblock = self.writable_superblock()?;
        superblock.update += 1;
        self.write_superblock(&mut superblock).await?;
        self.core().superblock = superblock;
        Ok(())
    }

    /// A checkpoint records that there is a newer superblock before what it adds is used: an opening that
    /// finds only the older one must not continue from it. If there is no checkpoint, the superblock is
    /// restored, as far as it can be written. The caller has the right to maintenance.
    pub(crate) async fn announce_superblock(self: &Arc<Self>, update: u64) -> Result<(), Error> {
        self.core().superblock.update = update;
        let announced = self.write_checkpoint().await;
        if announced.is_err() {
            let _ = self.renew_superblock().await;
        }
        announced
    }

    /// Makes a changed superblock durable. The caller has the right to maintenance. One copy is enough. If
    /// none can be written the drive is poisoned: which of the two versions the next opening will find is
    /// unknown.
    pub(crate) async fn write_superblock(self: &Arc<Self>, superblock: &mut Superblock) -> Result<(), Error> {
        {
            // A copy of one that was given up may be there.
            let mut core = self.core();
            superblock.update = superblock.update.max(core.updates_tried) + 1;
            core.updates_tried = superblock.update;
        }
        let mut page = IoBuf::zeroed(PAGE_BYTES);
        page.copy_from_slice(&superblock.encode());
        let page = Arc::new(page);
        let mut written = 0;
        let places = superblock.geometry.superblock_places();
        for (copy, offset) in places.iter().copied().enumerate() {
            let answer = self.write_to_end(offset, page.clone()).await;
            let error = match answer {
                // Nothing has changed.
                Err(error @ Error::ReadOnly(_)) => return Err(error),
                Err(Error::BackingFull) if copy == 0 => return Err(Error::BackingFull),
                answer => answer.err(),
            };
            {
                let mut core = self.core();
                core.note_copy(offset, error.is_none());
                match error {
                    None => written += 1,
                    Some(error) => {
                        let why = format!("a copy of the superblock cannot be written: {error}");
                        match written == 0 && copy + 1 == places.len() {
                            true => core.mode.poison(why),
                            false => core.note(why),
                        }
                    }
                }
            }
            self.sync_once().await?;
        }
        Ok(())
    }
}
