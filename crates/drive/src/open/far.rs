//! Opening by the far copies: the start of the backing is lost, and with it all other copies of the
//! superblock and the checkpoints.
//!
//! What is found far from the start is a drive that *was* here. Whether it still is, nothing at the start
//! says any more. It is taken for the drive only if all of these hold:
//!
//! - Where superblocks and owner pages were, and between them, there is nothing: zeros, pages that cannot be
//!   read, or damaged pages of a drive. Something else was put there on purpose, perhaps, and an opening
//!   would overwrite it.
//! - The far superblock says that it lies where it was found. So it is neither that of a drive in a part of
//!   this backing, nor in a file on it.
//! - There is one, and no place where there might be another cannot be read, or holds one of a later release.
//!   (The former can be looked at read-only.)
//! - No place of a checkpoint holds one of another drive.
//! - Segments in use begin with a pack of this drive or of this filling, or with nothing: another drive, or a
//!   file system, made here since and lost again, has left something else there. One pack of another drive is
//!   enough. Of anything else, one page in sixteen may just be damaged.
//!
//! That no newer checkpoint was lost is shown as it is whenever copies are missing:
//! [`find_successor`](super::slots::find_successor).

use std::ops::Range;

use futures::future::join_all;
use layout::pack::PACK_HEADER_BYTES;
use layout::superblock::MAGIC;
use layout::{Checkpoint, DecodeError, Geometry, OwnerPage, PAGE_BYTES, PackHeader, SegmentUse, Superblock};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::open::slots::{read_pages, read_patiently};

/// Bytes at the start that hold nothing but superblocks and owner pages.
const START_BYTES: u64 = 128 << 10;
/// Segments looked at together.
const SEGMENTS_AT_ONCE: usize = 64;
/// Places in the header of a pack.
const LOG_ID_AT: Range<usize> = 8..24;
const GENERATION_AT: Range<usize> = 28..32;
/// For one segment, and for so many that begin with a pack of the drive one more, anything else in its place
/// is damage.
const DAMAGED_PART: usize = 16;

/// Reads the far superblock of copies that begin at `far`. The inner error is what is wrong with it.
pub(crate) async fn read_far<M: Media>(
    media: &M,
    far: u64,
) -> Result<Result<Superblock, DecodeError>, Error> {
    let place = Geometry::far_superblock_offset(far);
    if place.saturating_add(PAGE_BYTES as u64) > media.size_bytes() {
        return Ok(Err(DecodeError::Truncated("superblock")));
    }
    let page = read_patiently(media, place, PAGE_BYTES).await?;
    Ok(Superblock::decode_far(&page, far))
}

/// Looks for a far superblock, with no other copy left. `None` if there is none. Also returns why a place
/// where there might be another cannot be read.
pub(crate) async fn find_far<M: Media>(media: &M) -> Result<Option<(Superblock, Option<Error>)>, Error> {
    let mut found: Vec<Superblock> = Vec::new();
    let (mut refused, mut unread) = (None, None);
    for far in Geometry::far_candidates(media.size_bytes()) {
        match read_far(media, far).await {
            Ok(Ok(superblock)) => found.push(superblock),
            Ok(Err(error @ (DecodeError::Version { .. } | DecodeError::Unsupported { .. }))) => {
                refused = Some(Error::Corrupt(error.to_string()));
            }
            // A place among many that hold data.
            Ok(Err(_)) => {}
            Err(error) => unread = Some(error),
        }
    }
    // It may be the newer one of two.
    if let Some(refused) = refused {
        return Err(refused);
    }
    let Some(superblock) = found.pop() else { return Ok(None) };
    let place_of = |superblock: &Superblock| superblock.geometry.far.unwrap_or(0);
    if let Some(other) = found.pop() {
        return Err(Error::Corrupt(format!(
            "the start, which would tell which drive this is, is lost, and superblocks of two drives are at bytes \
             {:#x} and {:#x}",
            Geometry::far_superblock_offset(place_of(&superblock)),
            Geometry::far_superblock_offset(place_of(&other))
        )));
    }
    match overwritten_at(media).await {
        None => Ok(Some((superblock, unread))),
        Some(at) => Err(Error::Corrupt(format!(
            "something else was written over the start of a drive (at byte {at}), whose far copies at byte {:#x} are \
             left: to return to that drive, overwrite the first {} KiB with zeros and open it again",
            place_of(&superblock),
            START_BYTES >> 10
        ))),
    }
}

/// Returns where the start holds something that is not of a drive.
async fn overwritten_at<M: Media>(media: &M) -> Option<u64> {
    let superblocks = [0, 1].map(Geometry::superblock_offset);
    for at in (0..START_BYTES).step_by(PAGE_BYTES) {
        let Ok(page) = read_pages(media, at, PAGE_BYTES).await else { continue };
        let is_ours =
            superblocks.contains(&at) && page.starts_with(&MAGIC) || OwnerPage::decode(&page).is_ok();
        if let Some(first) = page.iter().position(|byte| *byte != 0).filter(|_| !is_ours) {
            return Some(at + first as u64);
        }
    }
    None
}

/// Returns the places of far superblocks on the first `bytes` of a backing on which a drive is made.
pub(crate) async fn left_behind<M: Media>(media: &M, bytes: u64) -> Vec<u64> {
    let mut places = Vec::new();
    for far in Geometry::far_candidates(bytes) {
        let place = Geometry::far_superblock_offset(far);
        let (page, result) = media.read(place, IoBuf::pooled(PAGE_BYTES)).await;
        // One that cannot be read now may be read later.
        if result.is_err() || page.starts_with(&MAGIC) {
            places.push(place);
        }
    }
    places
}

/// What a segment in use begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// A pack of this drive.
    Ours,
    /// Zeros, or a page that cannot be read: lost.
    Nothing,
    /// A pack of another drive.
    OtherDrive,
    /// Other data, or damage.
    Other,
}

impl Beginning {
    /// Judges the first page of a segment. One flipped bit is no other drive: it leaves the id or the
    /// generation, both of which are random, as they were.
    fn of(page: &[u8], (log_id, segment, generation): (&[u8; 16], u32, u32)) -> Beginning {
        if page[LOG_ID_AT] == log_id[..] || page[GENERATION_AT] == generation.to_le_bytes() {
            return Beginning::Ours;
        }
        if page.iter().all(|byte| *byte == 0) {
            return Beginning::Nothing;
        }
        match PackHeader::decode(&page[..PACK_HEADER_BYTES]) {
            Ok(header) if (header.segment, header.offset) == (segment, 0) => Beginning::OtherDrive,
            _ => Beginning::Other,
        }
    }
}

/// Refuses a drive found by its far copies if something else was written to its segments since.
pub(crate) async fn must_be_here<M: Media>(
    media: &M,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> Result<(), Error> {
    let log_id = superblock.log_id();
    let in_use =
        checkpoint.rows.used().filter(|(_, row)| row.usage == SegmentUse::Used && row.live_units > 0);
    let in_use: Vec<(u32, u32)> = in_use.map(|(segment, row)| (segment, row.generation)).collect();
    let (mut ours, mut others) = (0, Vec::new());
    let refused = |segment: u32| {
        Err(Error::Corrupt(format!(
            "the start is lost, and something else was written to segment {segment} of the drive whose far copies are \
             left: another drive may have been made here since"
        )))
    };
    for some in in_use.chunks(SEGMENTS_AT_ONCE) {
        let look = async |&(segment, generation): &(u32, u32)| {
            let at = superblock.geometry.segment_offset(segment);
            match read_pages(media, at, PAGE_BYTES).await {
                Ok(page) => Beginning::of(&page, (&log_id, segment, generation)),
                Err(_) => Beginning::Nothing,
            }
        };
        for (found, (segment, _)) in join_all(some.iter().map(look)).await.into_iter().zip(some) {
            match found {
                Beginning::Ours => ours += 1,
                Beginning::Nothing => {}
                Beginning::OtherDrive => return refused(*segment),
                Beginning::Other => others.push(*segment),
            }
        }
    }
    let most = if ours == 0 { 0 } else { 1 + ours / DAMAGED_PART };
    match others.first() {
        Some(segment) if others.len() > most => refused(*segment),
        _ => Ok(()),
    }
}

/// Note of an opening by the far copies.
pub(crate) fn note_of(superblock: &Superblock, is_restored: bool) -> String {
    let far = superblock.geometry.far.unwrap_or(0);
    let then = match is_restored {
        true => "they were written again",
        false => "opening the drive for writing writes them again",
    };
    format!(
        "the start of the backing was lost: no copy of the superblock was left there, and the far ones at byte \
         {far:#x} were used; {then}"
    )
}
