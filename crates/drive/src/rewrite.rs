//! Making what was read durable, where reads may show what never reached the medium.
//!
//! After a sync that failed, a page cache may go on showing what it could not write, and report success the next time. A drive
//! that is opened then finds a log that is whole in the cache and not on the medium, and must not build on it. So all that
//! recovery relies on is written again, the same bytes to the same places, and synced: superblock, checkpoint, and the packs
//! behind it. A power cut on the way does no harm: whatever was durable is overwritten with itself. A pack where the medium takes no
//! write any more counts as one that it did not take: see `rehome.rs`.

use std::sync::Arc;

use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Checkpoint, Geometry, PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::create::{sync, write};
use crate::error::Error;
use crate::slots::read_pages;

/// Packs that the medium may not take. With more it is broken, and not a place on it.
const NOT_TAKEN_MAX: usize = 32;
/// Bytes of log read and written at once.
const RUN_BYTES_MAX: u64 = 4 << 20;

/// Writes what recovery found again: the superblock, the checkpoint, and packs (position, bytes) in their order. Answers which packs
/// the medium does not take, with their bytes: what they hold has to be written elsewhere.
pub(crate) async fn rewrite<M: Media>(
    media: &M,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    packs: &[(u64, u32)],
) -> Result<Vec<(usize, Arc<IoBuf>)>, Error> {
    let mut page = IoBuf::zeroed(PAGE_BYTES);
    page.copy_from_slice(&superblock.encode());
    let page = Arc::new(page);
    for copy in 0..SUPERBLOCK_COPIES {
        // One is whole at any time.
        write(media, Geometry::superblock_offset(copy), page.clone()).await?;
        sync(media).await?;
    }
    rewrite_checkpoint(media, superblock, checkpoint).await?;
    if rewrite_packs(media, packs).await.is_ok() {
        return Ok(Vec::new());
    }
    // Some are where the medium takes no write any more: which?
    let mut not_taken = Vec::new();
    for (at, (position, len)) in packs.iter().enumerate() {
        let bytes = Arc::new(read_pages(media, *position, *len as usize).await?);
        let mut written = write(media, *position, bytes.clone()).await;
        if written.is_ok() {
            written = sync(media).await;
        }
        if let Err(error) = written {
            if not_taken.len() == NOT_TAKEN_MAX {
                return Err(error);
            }
            not_taken.push((at, bytes));
        }
    }
    // What the last sync that succeeded covers is all of the others.
    sync(media).await?;
    Ok(not_taken)
}

/// Writes packs again, as many at once as follow each other.
async fn rewrite_packs<M: Media>(media: &M, packs: &[(u64, u32)]) -> Result<(), Error> {
    let mut rest = packs;
    while let [(start, _), ..] = rest {
        let (mut end, mut count) = (*start, 0);
        while let Some((position, len)) = rest.get(count)
            && *position == end
            && (count == 0 || end + u64::from(*len) - start <= RUN_BYTES_MAX)
        {
            end += u64::from(*len);
            count += 1;
        }
        let buf = read_pages(media, *start, (end - start) as usize).await?;
        write(media, *start, Arc::new(buf)).await?;
        rest = &rest[count..];
    }
    sync(media).await
}

/// Writes both copies of a checkpoint again, durably.
pub(crate) async fn rewrite_checkpoint<M: Media>(
    media: &M,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> Result<(), Error> {
    let mut encoded = IoBuf::zeroed(Checkpoint::encoded_len(checkpoint.rows.len()));
    checkpoint.encode(&mut encoded);
    let encoded = Arc::new(encoded);
    for copy in 0..2 {
        let offset = superblock.geometry.checkpoint_offset((checkpoint.number % 2) as usize, copy);
        write(media, offset, encoded.clone()).await?;
        // One is whole at any time: after growth they have more rows than what is there.
        sync(media).await?;
    }
    Ok(())
}
