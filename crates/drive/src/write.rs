//! Writing: split into atomic pieces, made ready outside the lock, appended and published inside it.

use std::sync::Arc;

use layout::{ATOMIC_WRITE_BYTES, BLOCK_BYTES};
use media::Media;

use crate::batch::Batch;
use crate::core::Stall;
use crate::error::Error;
use crate::shared::{Drive, Shared};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl<M: Media> Drive<M> {
    /// Writes `data` at `offset`; with `fua` it is durable before this returns.
    ///
    /// Up to 256 KiB are atomic across a power cut: all of it or none. Larger writes are atomic in pieces of 256 KiB.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if physical space cannot hold it: the piece that failed changed nothing.
    pub async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        self.check_range(offset, data.len() as u64)?;
        let mut done = 0;
        while done < data.len() {
            let piece = ATOMIC_WRITE_BYTES.min(data.len() - done);
            self.write_piece(offset + done as u64, &data[done..done + piece]).await?;
            done += piece;
        }
        if fua || !self.0.write_cache {
            self.flush().await?;
        }
        Ok(())
    }

    async fn write_piece(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut batch = Batch::take();
        let result = loop {
            batch.clear();
            if let Err(error) = self.prepare(&mut batch, offset, data).await {
                break Err(error);
            }
            match self.0.append(&batch, data).await {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(error) => break Err(error),
            }
        };
        batch.give_back();
        result
    }

    /// Fills a batch from the host's bytes: whole blocks as they are, the edges merged with what is there.
    async fn prepare(&self, batch: &mut Batch, offset: u64, data: &[u8]) -> Result<(), Error> {
        let end = offset + data.len() as u64;
        let (whole_from, whole_to) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        let policy = self.0.codec;
        let at = |position: u64| (position - offset) as usize;
        if whole_from > whole_to {
            // Inside one block.
            return self.merge(batch, offset, |block, from| block[from..from + data.len()].copy_from_slice(data)).await;
        }
        if offset < whole_from {
            let head = &data[..at(whole_from)];
            self.merge(batch, offset, |block, from| block[from..].copy_from_slice(head)).await?;
        }
        if whole_from < whole_to {
            batch.add_source(policy, whole_from / BLOCK, data, at(whole_from)..at(whole_to));
        }
        if whole_to < end {
            let tail = &data[at(whole_to)..];
            self.merge(batch, whole_to, |block, _| block[..tail.len()].copy_from_slice(tail)).await?;
        }
        Ok(())
    }

    /// Adds the block at `offset` to a batch as it will be after `change` (which gets the block and the offset in it).
    pub(crate) async fn merge(
        &self,
        batch: &mut Batch,
        offset: u64,
        change: impl FnOnce(&mut [u8], usize),
    ) -> Result<(), Error> {
        let block = offset / BLOCK;
        let mut bytes = vec![0; BLOCK_BYTES];
        let entry = self.read_block(block, &mut bytes).await?;
        change(&mut bytes, (offset % BLOCK) as usize);
        batch.add_merged(self.0.codec, block, &bytes, entry);
        Ok(())
    }
}

impl<M: Media> Shared<M> {
    /// Appends a batch, waiting while it must. False: a block changed under it, make it anew.
    pub(crate) async fn append(self: &Arc<Self>, batch: &Batch, source: &[u8]) -> Result<bool, Error> {
        // Others go on changing the map: without a limit, a write to a full drive might settle accounts for ever.
        let mut settlements = 64;
        loop {
            let (result, packs) = {
                let mut core = self.core();
                let result = core.append_batch(batch, source);
                if result.is_ok() {
                    core.counters.host_written_bytes += source.len() as u64;
                }
                (result, core.log.take_outbox())
            };
            self.write_out(packs);
            match result {
                Ok(()) => return Ok(true),
                Err(Stall::Conflict) => return Ok(false),
                Err(Stall::Refused(error)) => return Err(error),
                Err(Stall::Full) => {
                    settlements -= 1;
                    if settlements == 0 || !self.settle_accounts().await? {
                        return Err(Error::NoSpace);
                    }
                }
                Err(Stall::Space) => {
                    if !self.make_space().await? {
                        return Err(Error::NoSpace);
                    }
                }
                Err(Stall::Busy) => self.relieve().await?,
            }
        }
    }
}
