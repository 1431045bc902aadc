//! Finding the newest superblock among its copies.

use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Checkpoint, DecodeError, Geometry, PAGE_BYTES, Superblock};
use media::Media;

use crate::error::Error;
use crate::open::far::{find_far, read_far};
use crate::open::slots::read_patiently;

/// The superblock of a drive.
pub(crate) struct FoundSuperblock {
    /// The valid copy with the highest update number.
    pub(crate) superblock: Superblock,
    /// What is wrong with another.
    pub(crate) bad_copy: Option<Error>,
    /// No copy at the start was found: the far one is all there is.
    pub(crate) start_lost: bool,
    /// Why a place where the superblock of a newer drive may be cannot be read, if the start is lost.
    pub(crate) far_unread: Option<Error>,
}

impl FoundSuperblock {
    /// Refuses to write to a drive that may not be the last one made here.
    pub(crate) fn must_be_last(&self) -> Result<(), Error> {
        let Some(unread) = &self.far_unread else { return Ok(()) };
        let unread = match unread {
            Error::Io(why) => why.clone(),
            other => other.to_string(),
        };
        Err(Error::Io(format!(
            "{unread}; the start is lost, and the superblock of a newer drive may be there: open the drive read-only, \
             or copy the backing to another one, as far as it can be read"
        )))
    }
}

/// Returns the superblock, and what is wrong with a copy of it.
pub(crate) async fn read_superblock<M: Media>(media: &M) -> Result<(Superblock, Option<Error>), Error> {
    find_superblock(media).await.map(|found| (found.superblock, found.bad_copy))
}

/// Reads all copies of the superblock. The far one is looked for if the others are lost.
pub(crate) async fn find_superblock<M: Media>(media: &M) -> Result<FoundSuperblock, Error> {
    if media.size_bytes() < Geometry::superblock_offset(SUPERBLOCK_COPIES - 1) + PAGE_BYTES as u64 {
        return Err(Error::NotADrive);
    }
    let mut best: Option<Superblock> = None;
    let (mut why, mut blank) = (None, None);
    for copy in 0..SUPERBLOCK_COPIES {
        let page = match read_patiently(media, Geometry::superblock_offset(copy), PAGE_BYTES).await {
            Ok(page) => page,
            // It may be temporary, unlike corruption.
            Err(error) => {
                why = Some(error);
                continue;
            }
        };
        match Superblock::decode(&page) {
            Ok(found) if best.as_ref().is_none_or(|b| b.update < found.update) => best = Some(found),
            Ok(_) => {}
            Err(DecodeError::Magic(_)) => blank = Some(Error::NotADrive),
            Err(error @ (DecodeError::Checksum(_) | DecodeError::Truncated(_))) => {
                why.get_or_insert(Error::Corrupt(error.to_string()));
            }
            // Whole, but not for this program. It must not continue from an older copy.
            Err(error) => return Err(Error::Corrupt(error.to_string())),
        }
    }
    let bad = why.or(blank);
    match best {
        Some(near) => with_far_copy(media, near, bad).await,
        // Both copies are wrong.
        None => match find_far(media).await? {
            Some((superblock, far_unread)) => Ok(FoundSuperblock {
                superblock,
                bad_copy: Some(bad.unwrap_or(Error::NotADrive)),
                start_lost: true,
                far_unread,
            }),
            None => Err(bad.unwrap_or(Error::NotADrive)),
        },
    }
}

/// Takes the far copy into account. Beside a copy at the start it counts only if it is of the same drive.
async fn with_far_copy<M: Media>(
    media: &M,
    near: Superblock,
    mut bad_copy: Option<Error>,
) -> Result<FoundSuperblock, Error> {
    let mut superblock = near;
    if let Some(far) = superblock.geometry.far {
        match read_far(media, far).await {
            Ok(Ok(found)) if found.uuid == superblock.uuid => {
                if found.update > superblock.update {
                    superblock = found;
                }
            }
            Ok(Err(error @ (DecodeError::Version { .. } | DecodeError::Unsupported { .. }))) => {
                return Err(Error::Corrupt(error.to_string()));
            }
            Ok(_) => {
                _ = bad_copy.get_or_insert_with(|| Error::Corrupt("the far superblock is not there".into()))
            }
            Err(error) => bad_copy = Some(error),
        }
    }
    Ok(FoundSuperblock { superblock, bad_copy, start_lost: false, far_unread: None })
}

/// A copy of the superblock that is not the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherSuperblock {
    /// Its place.
    pub(crate) offset: u64,
    /// Its update number; `None` if it cannot be read, or is none.
    update: Option<u64>,
}

impl OtherSuperblock {
    /// Returns whether the copy is lost. One that may date from before a power cut is not.
    pub(crate) fn is_lost(&self, superblock: &Superblock, checkpoint: &Checkpoint) -> bool {
        let closed = checkpoint.clean && !is_first(checkpoint);
        self.update.is_none_or(|update| update < update_expected(superblock.update, closed))
    }
}

/// Returns whether a checkpoint was made when the drive was created or wiped: there is none before it.
pub(crate) fn is_first(checkpoint: &Checkpoint) -> bool {
    checkpoint.sequence == 0 && checkpoint.root.is_unmapped()
}

/// Returns the lowest update number that a copy of the superblock must have. Only on a drive that was closed
/// properly must it be the newest: a power cut between the copies leaves an older one, as does a wipe that
/// was cut short.
pub(crate) fn update_expected(newest: u64, closed: bool) -> u64 {
    if closed { newest } else { 0 }
}

/// Returns the copies of the superblock that are not this one.
pub(crate) async fn other_superblocks<M: Media>(media: &M, superblock: &Superblock) -> Vec<OtherSuperblock> {
    let mut others = Vec::new();
    for offset in superblock.geometry.superblock_places() {
        let page = read_patiently(media, offset, PAGE_BYTES).await;
        let found = page.ok().and_then(|page| Superblock::decode(&page).ok());
        if found.as_ref() != Some(superblock) {
            others.push(OtherSuperblock { offset, update: found.map(|found| found.update) });
        }
    }
    others
}
