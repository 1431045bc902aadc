//! Making what was read durable: reads may show what never reached the medium.
//!
//! After a failed sync, a page cache may continue to show what it could not write, and report success the
//! next time. So may whatever lies below a backing that takes direct I/O: a loop device, a host that caches a
//! machine's disk, a disk with a cache of its own. And nobody may have seen that sync fail: its process was
//! killed meanwhile. A drive that is opened then finds a log that is whole, and is not on the medium, and
//! must not build on it. So whatever recovery relies on is written again, the same bytes to the same places,
//! and synced: superblock, checkpoint, and the packs after it.
//!
//! What is vouched for is not. Packs and checkpoints say up to which pack all are durable, packs say which
//! checkpoint is, and so does a note in the last checkpoint of a closed drive. All that was written after a
//! sync that succeeded, in a run in which none had failed. So it holds even if what says so is in a cache
//! only. That a drive was closed says nothing by itself: its last checkpoint looks the same if the sync of it
//! failed.
//!
//! A power cut does no harm: durable data is overwritten with itself. Of superblock and checkpoint one copy
//! is enough. A pack that the medium does not take any more is handled as one that it did not take: see
//! `rehome.rs`.

use std::sync::Arc;

use layout::{Checkpoint, PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::medium::write_out::FAILED_PACKS_MAX;
use crate::open::copies::{Answers, sync, with_room, write, write_superblock};
use crate::open::replay::{MendedPack, PackPlace, Tail};
use crate::open::slots::read_pages;
use crate::open::whole::write_checkpoint;
use crate::planted::{Planted, PlantedBug};
use crate::shared::Shared;

/// What nothing shows to be durable, besides the superblock.
pub(crate) struct Doubted<'a> {
    checkpoint: bool,
    /// The packs that recovery found.
    packs: &'a [PackPlace],
    /// Number of the first among them that is in doubt. All behind it are.
    from: usize,
    /// What some of them should hold.
    mended: &'a [MendedPack],
}

impl<'a> Doubted<'a> {
    /// `tail` is the log after a checkpoint, of which a copy may say that it is durable.
    pub(crate) fn of(
        tail: &'a Tail,
        (checkpoint, is_durable): (&Checkpoint, bool),
        planted: Planted,
    ) -> Doubted<'a> {
        let vouched = match planted {
            planted if planted.has(PlantedBug::SyncTrustedAfterError) => tail.sequence,
            planted if planted.has(PlantedBug::FollowedTakenForDurable) => tail.sequence.saturating_sub(1),
            _ => tail.vouched,
        };
        let is_closed = checkpoint.clean && planted.has(PlantedBug::CloseTrusted);
        let from = usize::try_from(vouched.saturating_sub(checkpoint.sequence)).unwrap_or(usize::MAX);
        // What was mended is not on the medium.
        let first_mended = tail.mended.first().map_or(tail.places.len(), |pack| pack.at);
        Doubted {
            checkpoint: !tail.checkpoint_vouched && !is_durable && !is_closed,
            packs: &tail.places,
            from: from.min(first_mended),
            mended: &tail.mended,
        }
    }

    /// So is the checkpoint, whatever vouches for it.
    pub(crate) fn includes_checkpoint(&mut self) {
        self.checkpoint = true;
    }

    /// Packs are in doubt from this one on, whatever vouches for them.
    pub(crate) fn includes_from(&mut self, at: usize) {
        self.from = self.from.min(at);
    }
}

/// What was written again, and structures and packs that the medium did not take.
#[derive(Default)]
pub(crate) struct Rewritten {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// For each copy of the superblock, why it was not taken.
    pub(crate) superblock: Answers,
    /// The same for the checkpoint, if it was written.
    pub(crate) checkpoint: Option<Answers>,
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

/// Bytes of log read and written at once.
const RUN_BYTES_MAX: u64 = 4 << 20;

/// Attempts to blank a copy.
const BLANK_ATTEMPTS: usize = 4;

/// Writes again what recovery found: the superblock, the checkpoint (with the order in which to write its
/// copies), and packs in their order, as far as they are in doubt. Returns what the medium does not take.
pub(crate) async fn rewrite<M: Media>(
    media: &M,
    superblock: &Superblock,
    checkpoint: (&Checkpoint, Vec<usize>),
    Doubted { checkpoint: is_in_doubt, packs, from, mended }: Doubted<'_>,
) -> Result<Rewritten, Error> {
    let copies = superblock.geometry.copies();
    let mut rewritten = Rewritten { bytes: (copies * PAGE_BYTES) as u64, ..Rewritten::default() };
    let order = order_of_superblocks(media, superblock).await;
    rewritten.superblock = with_room(write_superblock(media, superblock, order).await?)?;
    if is_in_doubt {
        let len = Checkpoint::encoded_len(checkpoint.0.rows.len());
        let answers = with_room(rewrite_checkpoint(media, superblock, checkpoint).await?)?;
        rewritten.checkpoint = Some(answers);
        rewritten.bytes += (copies * len) as u64;
    }
    rewritten.bytes += packs[from..].iter().map(|pack| u64::from(pack.len)).sum::<u64>();
    tracing::debug!(
        checkpoint = is_in_doubt,
        packs = packs.len() - from,
        bytes = rewritten.bytes,
        "writing again what nothing shows to be durable"
    );
    let not_taken = &mut rewritten.packs;
    let mut pending = vec![(from, packs.len())];
    while let Some((from, until)) = pending.pop() {
        let error = match rewrite_packs(media, &packs[from..until], mended).await? {
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
            && not_taken.len() < FAILED_PACKS_MAX as usize
        {
            let buf = Arc::new(read_again(media, std::slice::from_ref(pack), mended).await?);
            not_taken.push(NotTaken { at: from, buf, error });
        } else {
            return Err(error);
        }
    }
    Ok(rewritten)
}

/// Returns the order in which to write the copies of the superblock, so that one is whole on the medium at
/// any time, whatever of the others is in a cache only.
async fn order_of_superblocks<M: Media>(media: &M, superblock: &Superblock) -> Vec<usize> {
    let mut ranks = Vec::new();
    for place in superblock.geometry.superblock_places() {
        let page = read_pages(media, place, PAGE_BYTES).await;
        ranks.push(match page.ok().and_then(|page| Superblock::decode(&page).ok()) {
            // Only what is not whole now can be spared.
            None => 0,
            Some(found) if found == *superblock => 1,
            // An older one is whole.
            Some(_) => 2,
        });
    }
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    order.sort_by_key(|copy| ranks[*copy]);
    order
}

/// Writes packs again durably, consecutive ones at once. The inner result is that of the medium.
async fn rewrite_packs<M: Media>(
    media: &M,
    packs: &[PackPlace],
    mended: &[MendedPack],
) -> Result<Result<(), Error>, Error> {
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
        let buf = read_again(media, &rest[..count], mended).await?;
        if let Err(error) = write(media, first.position, Arc::new(buf)).await {
            return Ok(Err(error));
        }
        rest = &rest[count..];
    }
    Ok(sync(media).await)
}

/// Reads consecutive packs, and mends them. After a failed sync, reads may show something else than before.
async fn read_again<M: Media>(media: &M, packs: &[PackPlace], mended: &[MendedPack]) -> Result<IoBuf, Error> {
    let len = packs.iter().map(|pack| pack.len as usize).sum();
    let start = packs.first().map_or(0, |pack| pack.position);
    let remade = |pack: &PackPlace| mended.iter().find(|it| it.is_remade() && it.position == pack.position);
    // Those may not be readable.
    let whole = match packs.iter().any(|pack| remade(pack).is_some()) {
        false => Some(read_pages(media, start, len).await),
        true => None,
    };
    // Nor may the place of one that is in a memory, next to others that are not.
    let whole = whole.filter(|whole| whole.is_ok() || packs.len() < 2).transpose()?;
    let reads_each = whole.is_none();
    let mut buf = whole.unwrap_or_else(|| IoBuf::zeroed(len));
    for pack in packs {
        let at = (pack.position - start) as usize;
        if let Some(right) = remade(pack) {
            buf[at..at + pack.len as usize].copy_from_slice(&right.buf);
            continue;
        }
        if reads_each {
            let read = read_pages(media, pack.position, pack.len as usize).await?;
            buf[at..at + pack.len as usize].copy_from_slice(&read);
        }
        if crc32c::crc32c(&buf[at..at + pack.len as usize]) != pack.crc {
            let position = pack.position;
            return Err(Error::Io(format!(
                "byte {position:#x} of the backing was read as one thing, then as another: a write was lost; open the \
                 drive again"
            )));
        }
        if let Some(right) = mended.iter().find(|mended| mended.position == pack.position) {
            buf[at..at + pack.len as usize].copy_from_slice(&right.buf);
        }
    }
    Ok(buf)
}

/// Writes all copies of a checkpoint again, in this order. Returns the same as [`write_checkpoint`].
pub(crate) async fn rewrite_checkpoint<M: Media>(
    media: &M,
    superblock: &Superblock,
    (checkpoint, order): (&Checkpoint, Vec<usize>),
) -> Result<Answers, Error> {
    // One is whole at any time: after growth they have more rows than what is there.
    write_checkpoint(media, superblock.geometry, checkpoint, order).await
}

impl<M: Media> Shared<M> {
    /// Blanks copies of checkpoints that could not be read. One of them may be newer, of a checkpoint that
    /// was never completed. If it became readable before this opening has completed its own checkpoint, it
    /// would be believed, although this opening writes packs to the places of its packs. A place that takes
    /// no write either stays as it is.
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
