//! Making what was read durable if reads may show what never reached the medium.
//!
//! After a failed sync, a page cache may continue to show what it could not write, and report success the next time.
//! A drive that is opened then finds a log that is whole in the cache but not on the medium, and must not build on
//! it. So everything that recovery relies on is written again, the same bytes to the same places, and synced:
//! superblock, checkpoint, and the packs after it. A power cut does no harm: durable data is overwritten with itself.
//! Of superblock and checkpoint one copy is enough. A pack that the medium does not take any more is handled as one
//! that it did not take: see `rehome.rs`.

use std::sync::Arc;

use layout::{Checkpoint, PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::open::copies::{sync, with_room, write, write_superblock};
use crate::open::replay::PackPlace;
use crate::open::slots::read_pages;
use crate::open::whole::write_checkpoint;
use crate::shared::Shared;

/// Structures and packs that the medium did not take.
#[derive(Default)]
pub(crate) struct Rewritten {
    /// For each copy of the superblock, why it was not taken.
    pub(crate) superblock: [Option<Error>; 2],
    /// The same for the checkpoint.
    pub(crate) checkpoint: [Option<Error>; 2],
    /// Packs whose contents have to be written elsewhere.
    pub(crate) packs: Vec<NotTaken>,
}

/// A pack that the medium does not take.
pub(crate) struct NotTaken {
    /// Its number among those that recovery found.
    pub(crate) at: usize,
    pub(crate) buf: Arc<IoBuf>,
    /// The error of the medium.
    pub(crate) error: Error,
}

/// Most packs that the medium may not take. With more, the whole medium is broken, and not a place on it.
const NOT_TAKEN_MAX: usize = 32;
/// Bytes of log read and written at once.
const RUN_BYTES_MAX: u64 = 4 << 20;

/// Attempts to blank a copy.
const BLANK_ATTEMPTS: usize = 4;

/// Writes again what recovery found: the superblock, the checkpoint, and packs in their order. Returns what the
/// medium does not take.
pub(crate) async fn rewrite<M: Media>(
    media: &M,
    superblock: &Superblock,
    checkpoint: (&Checkpoint, usize),
    packs: &[PackPlace],
) -> Result<Rewritten, Error> {
    let of_superblock = with_room(write_superblock(media, superblock).await?)?;
    let of_checkpoint = with_room(rewrite_checkpoint(media, superblock, checkpoint).await?)?;
    let mut not_taken = Vec::new();
    let mut pending = vec![(0, packs.len())];
    while let Some((from, until)) = pending.pop() {
        let error = match rewrite_packs(media, &packs[from..until]).await? {
            Ok(()) => continue,
            // No place is bad. What was read stays as it is, and the next opening writes it.
            Err(Error::BackingFull) => return Err(Error::BackingFull),
            Err(error) => error,
        };
        // Somewhere in this range the medium takes no write any more. Bisect.
        let middle = from + (until - from) / 2;
        if until - from > 1 {
            pending.extend([(middle, until), (from, middle)]);
        } else if let Some(pack) = packs.get(from)
            && not_taken.len() < NOT_TAKEN_MAX
        {
            let buf = Arc::new(read_again(media, std::slice::from_ref(pack)).await?);
            not_taken.push(NotTaken { at: from, buf, error });
        } else {
            return Err(error);
        }
    }
    Ok(Rewritten { superblock: of_superblock, checkpoint: of_checkpoint, packs: not_taken })
}

/// Writes packs again durably, consecutive ones at once. The inner result is that of the medium.
async fn rewrite_packs<M: Media>(media: &M, packs: &[PackPlace]) -> Result<Result<(), Error>, Error> {
    let mut rest = packs;
    while let [first, ..] = rest {
        let (mut end, mut count) = (first.position, 0);
        while let Some(pack) = rest.get(count)
            && pack.position == end
            && (count == 0 || end + u64::from(pack.len) - first.position <= RUN_BYTES_MAX)
        {
            end += u64::from(pack.len);
            count += 1;
        }
        let buf = read_again(media, &rest[..count]).await?;
        if let Err(error) = write(media, first.position, Arc::new(buf)).await {
            return Ok(Err(error));
        }
        rest = &rest[count..];
    }
    Ok(sync(media).await)
}

/// Reads consecutive packs. After a failed sync, reads may show something else than before.
async fn read_again<M: Media>(media: &M, packs: &[PackPlace]) -> Result<IoBuf, Error> {
    let len = packs.iter().map(|pack| pack.len as usize).sum();
    let start = packs.first().map_or(0, |pack| pack.position);
    let buf = read_pages(media, start, len).await?;
    for pack in packs {
        let at = (pack.position - start) as usize;
        if crc32c::crc32c(&buf[at..at + pack.len as usize]) != pack.crc {
            let position = pack.position;
            return Err(Error::Io(format!(
                "byte {position:#x} of the backing was read as one thing, then as another: a write was lost; open the drive again"
            )));
        }
    }
    Ok(buf)
}

/// Writes both copies of a checkpoint again, the `first` one first. Returns the same as [`write_checkpoint`].
pub(crate) async fn rewrite_checkpoint<M: Media>(
    media: &M,
    superblock: &Superblock,
    (checkpoint, first): (&Checkpoint, usize),
) -> Result<[Option<Error>; 2], Error> {
    // One is whole at any time: after growth they have more rows than what is there.
    write_checkpoint(media, superblock.geometry, checkpoint, first).await
}

impl<M: Media> Shared<M> {
    /// Blanks copies of checkpoints that could not be read. One of them may be newer, of a checkpoint that was never
    /// completed. If it became readable before this opening has completed its own checkpoint, it would be believed,
    /// although this opening writes packs to the places of its packs. A place that takes no write either stays as it
    /// is.
    pub(crate) async fn blank(self: &Arc<Self>, places: &[u64]) -> Result<(), Error> {
        for place in places {
            let page = Arc::new(IoBuf::zeroed(PAGE_BYTES));
            let mut answer = self.write_to_end(*place, page.clone()).await;
            for _ in 1..BLANK_ATTEMPTS {
                if !matches!(answer, Err(Error::Io(_))) {
                    break;
                }
                answer = self.write_to_end(*place, page.clone()).await;
            }
            match answer {
                Ok(()) => {}
                Err(error @ (Error::ReadOnly(_) | Error::BackingFull)) => return Err(error),
                Err(error) => {
                    let mut core = self.core();
                    core.note_copy(*place, false);
                    core.note(format!("a copy of a checkpoint can neither be read nor written: {error}"));
                }
            }
        }
        match places.is_empty() {
            true => Ok(()),
            false => self.sync_once().await,
        }
    }
}
