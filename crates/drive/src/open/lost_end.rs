//! The end of the log after a loss of the start: was it lost, too?
//!
//! What is lost with the start is one stretch, from the first byte to an unknown one. On small drives the
//! first segments lie right behind, and the newest packs may be there, with all that vouch for them. Zeros
//! at the place where the log goes on are then no end of it.
//!
//! The stretch ends before anything that is left. So the log is known to end where it seems to if something
//! that must be in front of that place is there: the near copies of the checkpoint, packs of the log, a
//! segment in use, anything before the place in the same segment. Without any, the end is in doubt.

use layout::{PAGE_BYTES, SegmentUse, Superblock};
use media::{IoBuf, Media};

use crate::open::replay::{PackPlace, Tail};
use crate::open::slots::NewestCheckpoint;

/// Bytes read at once.
const READ_BYTES: u64 = 1 << 20;

/// Returns what is in doubt, of a drive that was found by its far copies.
pub(crate) async fn lost_end<M: Media>(
    media: &M,
    superblock: &Superblock,
    found: &NewestCheckpoint,
    tail: &Tail,
) -> Option<String> {
    let (checkpoint, geometry) = (&found.checkpoint, superblock.geometry);
    // Nothing was written after it.
    if checkpoint.clean {
        return None;
    }
    let first_segment = geometry.segments_offset();
    let mut places = geometry.checkpoint_places(checkpoint.number).into_iter();
    if places.any(|place| place < first_segment && !found.missing.contains(&place)) {
        return None;
    }
    // What is left in front of the first place is also in front of the others.
    let of_end = |(segment, offset): &(u32, u32)| (geometry.segment_offset(*segment), *offset);
    let (own_begins, offset) = tail.ends.iter().map(of_end).min()?;
    let place = own_begins + u64::from(offset);
    let room = u64::from(geometry.segment_bytes - offset);
    // What was made again from parity is not there.
    let is_there =
        |pack: &PackPlace| !tail.mended.iter().any(|it| it.is_remade() && it.position == pack.position);
    if tail.places.iter().any(|pack| pack.position < place && is_there(pack)) {
        return None;
    }
    // Also if what lies there is of an earlier filling.
    if holds_anything(media, own_begins, place + room.min(PAGE_BYTES as u64)).await {
        return None;
    }
    let mut last = None;
    for (segment, row) in checkpoint.rows.used() {
        let begins = geometry.segment_offset(segment);
        if row.usage != SegmentUse::Used || row.live_units == 0 || begins >= own_begins {
            continue;
        }
        if holds_anything(media, begins, begins + PAGE_BYTES as u64).await {
            return None;
        }
        last = last.max(Some(begins));
    }
    if let Some(begins) = last
        && holds_anything(media, begins, begins + u64::from(geometry.segment_bytes)).await
    {
        return None;
    }
    Some(format!(
        "the start of the backing is lost, and nothing is left before byte {place:#x}, where the log goes on: the \
         newest log may have been in what is lost"
    ))
}

/// Returns whether there is anything but zeros and unreadable pages.
async fn holds_anything<M: Media>(media: &M, from: u64, until: u64) -> bool {
    let mut at = from;
    while at < until {
        let len = READ_BYTES.min(until - at) as usize;
        let (buf, result) = media.read(at, IoBuf::pooled(len)).await;
        let found = match result {
            Ok(()) => buf.iter().any(|byte| *byte != 0),
            Err(_) if len > PAGE_BYTES => {
                let mut found = false;
                for page in (at..at + len as u64).step_by(PAGE_BYTES) {
                    let (buf, result) = media.read(page, IoBuf::pooled(PAGE_BYTES)).await;
                    found |= result.is_ok() && buf.iter().any(|byte| *byte != 0);
                }
                found
            }
            Err(_) => false,
        };
        if found {
            return true;
        }
        at += len as u64;
    }
    false
}
