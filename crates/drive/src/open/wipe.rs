//! Factory reset.
//!
//! Instant, whatever the size: packs and checkpoints carry an id made of the drive's own and of the number of
//! its wipes, so one superblock makes everything before it meaningless. The first checkpoint of the new
//! incarnation is written to the slot that does *not* hold the newest one of the old; then the superblock
//! commits. A power cut leaves the drive as it was, or wiped. Then the newest checkpoint of the old
//! incarnation is blanked: if the new superblock is lost, of which the backing may have taken one copy only,
//! the old one leads to nothing any more.

use std::ops::ControlFlow;

use layout::geometry::validate_capacity;
use layout::{Features, PAGE_BYTES, SegmentUse, Superblock};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::open::copies::{sync, with_room, write_copies, write_superblock};
use crate::open::create::{blank_rows, empty_checkpoint};
use crate::open::recovery::is_outdated;
use crate::open::rewrite::rewrite_checkpoint;
use crate::open::slots::{
    Copies, NewestCheckpoint, must_allow_writing, must_hold, read_checkpoint, read_copies,
};
use crate::open::superblocks::{FoundSuperblock, find_superblock, read_superblock};
use crate::open::whole::write_checkpoint;
use crate::shared::Drive;
use crate::state::policy::policy_of;

/// Drive that a wipe is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WipeTarget {
    /// Whichever drive is there.
    Any,
    /// The drive with this id; another one is refused.
    Id([u8; 16]),
    /// None: there was no drive. One that has come since is refused.
    NoDrive,
}

/// Settings that may change with a wipe; `None` keeps them.
#[derive(Clone, Copy, Debug)]
pub struct WipeOptions {
    /// 512 or 4096.
    pub sector_bytes: Option<u32>,
    /// New capacity that hosts see, in bytes. May be smaller than before.
    pub logical_capacity_bytes: Option<u64>,
    /// The drive to be wiped.
    pub target: WipeTarget,
}

impl WipeOptions {
    /// Wipes whichever drive is there, and keeps its settings.
    pub fn any() -> WipeOptions {
        WipeOptions { sector_bytes: None, logical_capacity_bytes: None, target: WipeTarget::Any }
    }

    /// Checks the settings, before anything is written.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for impossible ones.
    pub fn validate(&self) -> Result<(), Error> {
        if let Some(bytes) = self.sector_bytes.filter(|bytes| *bytes != 512 && *bytes != 4096) {
            return Err(Error::Invalid(format!(
                "invalid sector size of {bytes} bytes: expected 512 or 4096"
            )));
        }
        let capacity = self.logical_capacity_bytes.map_or(Ok(()), validate_capacity);
        capacity.map_err(|error| Error::Invalid(error.to_string()))
    }

    fn must_mean(&self, superblock: &Superblock) -> Result<(), Error> {
        match self.target {
            WipeTarget::Any => Ok(()),
            WipeTarget::Id(id) if id == superblock.uuid => Ok(()),
            WipeTarget::Id(_) | WipeTarget::NoDrive => {
                Err(Error::Invalid("another drive is at this path now; nothing was erased".to_owned()))
            }
        }
    }
}

/// Result of a wipe that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiped {
    /// Writes that the backing did not take, one line each.
    pub not_taken: Vec<String>,
    /// If the one copy of the superblock that was written is lost, the previous contents of the drive may
    /// return.
    pub may_come_back: bool,
}

/// Bytes discarded at once.
const DISCARD_BYTES: u64 = 256 << 20;

impl<M: Media> Drive<M> {
    /// Returns an error if `options` are for another drive than the one on `media`. For callers that claim
    /// the backing before they wipe it.
    ///
    /// # Errors
    ///
    /// As [`Drive::wipe`].
    pub async fn must_be_wiped(media: &M, options: &WipeOptions) -> Result<(), Error> {
        options.must_mean(&read_superblock(media).await?.0)
    }

    /// Wipes the drive on `media`, which no server may have open: all data and statistics, except the bytes
    /// written to the backing over its life. A drive whose log or checkpoints are damaged can be wiped too.
    /// Its superblock must be whole. Returns what the backing did not take.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for impossible options, [`Error::NotADrive`], [`Error::Io`] if neither place of a
    /// checkpoint can be read; nothing was changed then.
    pub async fn wipe(media: &M, options: WipeOptions) -> Result<Wiped, Error> {
        let found = find_superblock(media).await?;
        options.must_mean(&found.superblock)?;
        must_hold(media, &found.superblock)?;
        must_allow_writing(&found.superblock)?;
        found.must_be_last()?;
        let FoundSuperblock { mut superblock, bad_copy, start_lost, .. } = found;
        let copies = read_copies(media, &superblock).await;
        if start_lost {
            must_be_wiped_without_start(&copies)?;
        }
        if let Some(unread @ Error::Io(_)) =
            bad_copy.filter(|_| copies.outdated.is_some() || copies.wipes_ahead > 0)
        {
            // It may belong to the incarnation that would begin now, whose leftovers must not return.
            return Err(unread);
        }
        // It stays, and it must be possible to open it.
        policy_of(superblock.codec_policy, superblock.codec_level)?;
        options.validate()?;
        superblock.sector_bytes = options.sector_bytes.unwrap_or(superblock.sector_bytes);
        superblock.logical_capacity_bytes =
            options.logical_capacity_bytes.unwrap_or(superblock.logical_capacity_bytes);
        // What is read now may be in a cache only (after a kill without a power cut), and the slot that is
        // written next is the one to fall back on if it is.
        sync(media).await?;
        let Spare { number, written_bytes, bad } =
            spare_number(media, &superblock, copies.wipes_ahead).await?;
        superblock.worn_bytes = superblock.worn_bytes.saturating_add(written_bytes);
        // Above any that was there: leftovers of an incarnation must not be taken for what this one writes.
        superblock.incarnation += copies.wipes_ahead + 1;
        superblock.update += 1;
        let mut rows = blank_rows(&superblock.geometry);
        for segment in bad {
            // What took no write takes none after a wipe.
            rows[segment as usize].usage = SegmentUse::Bad;
        }
        let checkpoint = empty_checkpoint(&superblock, number, rows);
        // Of each, one copy is enough.
        let geometry = superblock.geometry;
        let order: Vec<usize> = (0..geometry.copies()).collect();
        let of_checkpoint = write_checkpoint(media, geometry, &checkpoint, order.clone()).await?;
        let of_checkpoint = with_room(of_checkpoint)?;
        // From the first copy on it is wiped, even if there is no room for the second.
        let of_superblock = write_superblock(media, &superblock, order.clone()).await?;
        let page = IoBuf::zeroed(PAGE_BYTES);
        let old = geometry.checkpoint_places(number + 1);
        let of_old = write_copies(media, &old, order, page).await.unwrap_or_else(|error| vec![Some(error)]);
        let may_come_back = of_superblock.iter().any(Option::is_some)
            && of_checkpoint.iter().chain(&of_old).any(Option::is_some);
        let mut not_taken = Vec::new();
        for (what, errors) in [
            ("the superblock", of_superblock),
            ("the first checkpoint", of_checkpoint),
            ("what blanks the last checkpoint", of_old),
        ] {
            let errors = errors.into_iter().flatten();
            not_taken.extend(errors.map(|error| format!("a copy of {what} cannot be written: {error}")));
        }
        Ok(Wiped { not_taken, may_come_back })
    }

    /// Discards the space of all segments of a drive that was just wiped. `progress` gets the number of bytes
    /// done, and of all, before each piece of at most 256 MiB, and may end the work. Returns false if it did,
    /// or if the backing cannot discard. May be abandoned at any time, and is optional.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] unless the drive is empty and closed; errors of the medium.
    pub async fn discard_all(
        media: &M,
        mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let (superblock, _) = read_superblock(media).await?;
        let checkpoint = read_checkpoint(media, &superblock).await?.checkpoint;
        if !checkpoint.root.is_unmapped() || checkpoint.sequence > 0 || !checkpoint.clean {
            return Err(Error::Invalid("the drive is in use: wipe it first".into()));
        }
        if superblock.features.compatible & Features::KEEP_ALLOCATED != 0 {
            return Ok(false);
        }
        let geometry = superblock.geometry;
        let (start, end) = (geometry.segments_offset(), geometry.physical_size_bytes);
        let far = geometry.far_segments();
        let far = geometry.segment_offset(far.start)..geometry.segment_offset(far.end);
        let mut at = start;
        while at < end {
            if at >= far.start && at < far.end {
                at = far.end;
                continue;
            }
            if progress(at - start, end - start).is_break() {
                return Ok(false);
            }
            let until = if at < far.start { far.start } else { end };
            let len = DISCARD_BYTES.min(until - at);
            match media.discard(at, len).await {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(false),
                Err(error) => return Err(Error::io("discarding", at, &error)),
            }
            at += len;
        }
        let _ = progress(end - start, end - start);
        Ok(true)
    }
}

/// Refuses to wipe a drive without its start if that can be restored, or belonged to another drive. One that
/// began to be wiped does not open any more: only a wipe helps.
fn must_be_wiped_without_start(copies: &Copies) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::Invalid(format!("the start of the drive is lost{why}")));
    match copies.of_another {
        Some(_) => refused(", and another drive was made here since: create a new one"),
        None if copies.wipes_ahead == 0 => {
            refused(": open it for writing, which restores the start, then wipe it")
        }
        None => Ok(()),
    }
}

/// Place of the first checkpoint of the next incarnation, and what it takes over.
struct Spare {
    /// Its number: it goes to the slot without the newest checkpoint.
    number: u64,
    /// Bytes written to the backing according to the newest one.
    written_bytes: u64,
    /// Segments that take no writes.
    bad: Vec<u32>,
}

/// Finds a place for a checkpoint. One that cannot be read at the moment is not overwritten if it may be the
/// newest. One that may be in a cache only is written again first.
async fn spare_number<M: Media>(
    media: &M,
    superblock: &Superblock,
    wipes_ahead: u64,
) -> Result<Spare, Error> {
    let empty = |number| Spare { number, written_bytes: 0, bad: Vec::new() };
    match read_checkpoint(media, superblock).await {
        Ok(NewestCheckpoint { checkpoint, is_durable, alone, unread, order, .. }) => {
            if !is_durable {
                rewrite_checkpoint(media, superblock, (&checkpoint, order)).await?;
            }
            let number = checkpoint.number;
            let is_older = alone && unread.is_some() && is_outdated(media, superblock, &checkpoint).await;
            let bad = checkpoint.rows.used().filter(|(_, row)| row.usage == SegmentUse::Bad);
            Ok(Spare {
                number: if is_older { number + 2 } else { number + 1 },
                written_bytes: checkpoint.counters.physical_written_bytes,
                bad: bad.map(|(segment, _)| segment).collect(),
            })
        }
        // There is none, or it is in a slot that cannot be read.
        Err(error) => match read_copies(media, superblock).await {
            Copies { found, .. } if !found.is_empty() => Err(error),
            Copies { unread: [Some(_), Some(_)], .. } => Err(error),
            // The superblock of a completed wipe is lost.
            _ if wipes_ahead > 0 => {
                let incarnation = superblock.incarnation + wipes_ahead;
                let later = Superblock { incarnation, ..superblock.clone() };
                Box::pin(spare_number(media, &later, 0)).await
            }
            Copies { unread: [_, Some(_)], .. } => Ok(empty(2)),
            _ => Ok(empty(1)),
        },
    }
}
