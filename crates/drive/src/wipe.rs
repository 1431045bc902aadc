//! Factory reset.
//!
//! Instant, whatever the size: packs and checkpoints carry an id made of the drive's own and of how often it was wiped, so
//! one superblock makes everything before it meaningless. The first checkpoint of the new incarnation is written to the
//! slot that the newest one of the old does *not* lie in; then the superblock commits. A power cut on the way leaves the
//! drive as it was, or wiped.

use std::sync::Arc;

use layout::geometry::validate_capacity;
use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Geometry, PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::create::{empty_checkpoint, sync, write};
use crate::error::Error;
use crate::recovery::is_outdated;
use crate::shared::Drive;
use crate::slots::{Found, must_hold, read_checkpoint, read_copies, read_superblock};

/// What may change with a wipe; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct WipeOptions {
    /// 512 or 4096.
    pub sector_bytes: Option<u32>,
    /// What the host sees from then on, in bytes; may be smaller than before.
    pub logical_capacity_bytes: Option<u64>,
}

/// Bytes discarded at once.
const DISCARD_BYTES: u64 = 1 << 30;

impl<M: Media> Drive<M> {
    /// Wipes the drive on `media`, which no server may have open: all data and statistics, but not what was written to the
    /// backing over its life. A drive whose log or checkpoints are damaged can be wiped too; its superblock must be whole.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that cannot be, [`Error::Corrupt`] if there is no drive, [`Error::Io`] if neither place
    /// of a checkpoint can be read; nothing was changed then.
    pub async fn wipe(media: &M, options: WipeOptions) -> Result<(), Error> {
        let (mut superblock, _) = read_superblock(media).await?;
        must_hold(media, &superblock)?;
        if let Some(bytes) = options.sector_bytes {
            if bytes != 512 && bytes != 4096 {
                return Err(Error::Invalid(format!("sector size of {bytes} bytes: 512 or 4096 it is")));
            }
            superblock.sector_bytes = bytes;
        }
        if let Some(bytes) = options.logical_capacity_bytes {
            validate_capacity(bytes).map_err(|e| Error::Invalid(e.to_string()))?;
            superblock.logical_capacity_bytes = bytes;
        }
        // What is read now may stand in a cache only (after a kill without a power cut), and the slot that is written next is
        // the one to fall back on if it does.
        sync(media).await?;
        let (number, written_bytes) = spare_number(media, &superblock).await?;
        superblock.worn_bytes = superblock.worn_bytes.saturating_add(written_bytes);
        superblock.incarnation += 1;
        superblock.update += 1;
        let checkpoint = empty_checkpoint(&superblock, number);
        for copy in 0..2 {
            let offset = superblock.geometry.checkpoint_offset((number % 2) as usize, copy);
            write(media, offset, checkpoint.clone()).await?;
        }
        sync(media).await?;
        let mut page = IoBuf::zeroed(PAGE_BYTES);
        page.copy_from_slice(&superblock.encode());
        let page = Arc::new(page);
        for copy in 0..SUPERBLOCK_COPIES {
            write(media, Geometry::superblock_offset(copy), page.clone()).await?;
            sync(media).await?;
        }
        Ok(())
    }

    /// Gives the space of all segments back to the backing of a drive that was just wiped, and tells `progress` how many
    /// bytes of how many are done. False if the backing cannot discard. May be given up at any time, and need not be done.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the drive is empty and closed; what the medium answered.
    pub async fn discard_all(media: &M, mut progress: impl FnMut(u64, u64)) -> Result<bool, Error> {
        let (superblock, _) = read_superblock(media).await?;
        let checkpoint = read_checkpoint(media, &superblock).await?.checkpoint;
        if !checkpoint.root.is_unmapped() || checkpoint.sequence > 0 || !checkpoint.clean {
            return Err(Error::Invalid("the drive is in use: wipe it first".into()));
        }
        let (start, end) = (superblock.geometry.segments_offset(), superblock.geometry.physical_size_bytes);
        let mut at = start;
        while at < end {
            progress(at - start, end - start);
            let len = DISCARD_BYTES.min(end - at);
            match media.discard(at, len).await {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(false),
                Err(error) => return Err(Error::io("discarding", at, &error)),
            }
            at += len;
        }
        progress(end - start, end - start);
        Ok(true)
    }
}

/// The number of a checkpoint that goes to the slot that the newest one does not lie in, and what the newest says was
/// written to the backing. A checkpoint that cannot be read just now is not overwritten if it may be the newest.
async fn spare_number<M: Media>(media: &M, superblock: &Superblock) -> Result<(u64, u64), Error> {
    match read_checkpoint(media, superblock).await {
        Ok(Found { checkpoint, alone, unread, .. }) => {
            let number = checkpoint.number;
            let is_older = alone && unread.is_some() && is_outdated(media, superblock, &checkpoint).await;
            let next = if is_older { number + 2 } else { number + 1 };
            Ok((next, checkpoint.counters.physical_written_bytes))
        }
        // There is none, or it is in a slot that cannot be read.
        Err(error) => match read_copies(media, superblock).await {
            (found, _) if !found.is_empty() => Err(error),
            (_, [Some(_), Some(_)]) => Err(error),
            (_, [_, Some(_)]) => Ok((2, 0)),
            _ => Ok((1, 0)),
        },
    }
}
