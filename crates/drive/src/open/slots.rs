//! Finding the newest checkpoint among its slots and copies.

use futures::future::join_all;
use layout::pack::{PACK_HEADER_BYTES, PackAddress, decode_pack};
use layout::{
    BLOCK_BYTES, Checkpoint, CheckpointSummary, DecodeError, Geometry, PAGE_BYTES, PackHeader, SegmentUse,
    Superblock,
};
use media::{IoBuf, Media, exact_size};
use space::PACK_HARD_BYTES;

use crate::error::Error;
use crate::state::table::{COPIES, Table};

/// Numbers of checkpoints are below this, so that they never overflow.
const NUMBER_LIMIT: u64 = 1 << 62;
/// Bytes of a checkpoint read at once.
const READ_BYTES: u64 = 256 * 1024;
/// Segments whose first pages are read at once.
const SEGMENTS_AT_ONCE: usize = 64;
/// A new drive hands out its lowest segments first: the search for traces of its first checkpoints covers
/// these.
const FIRST_SEGMENTS: u32 = 16;

/// The checkpoint to start from.
pub(crate) struct NewestCheckpoint {
    pub(crate) checkpoint: Checkpoint,
    /// In which order to write its copies, so that one is whole at any time: first those that were not found.
    pub(crate) order: Vec<usize>,
    /// Places of its copies that were not found.
    pub(crate) missing: Vec<u64>,
    /// The checkpoint before it was not found in the other slot: a newer one may have been there.
    pub(crate) alone: bool,
    /// Not all copies of the checkpoint before it were found. A newer one may have been written to one of the
    /// places, because the medium did not take the others.
    pub(crate) uneven: bool,
    /// Read error of what may be a newer checkpoint.
    pub(crate) unread: Option<Error>,
    /// Places of copies that could not be read and may be newer.
    pub(crate) unread_places: Vec<u64>,
    /// Nothing readable in the other slot shows what it holds.
    pub(crate) hidden: bool,
    /// Proof that the superblock is not the newest.
    pub(crate) outdated: Option<String>,
    /// A wipe began and may have been completed.
    pub(crate) wiped: bool,
    /// See [`Copies`].
    pub(crate) of_another: Option<u64>,
    /// One of its copies could not be read, or is bad although the drive was closed after it.
    pub(crate) corrected: bool,
    /// Contents of the places of checkpoints.
    pub(crate) table: Table,
    /// One of its copies notes that it is durable.
    pub(crate) is_durable: bool,
    /// A place holds the rows of all segments. False if a growth was cut short.
    pub(crate) has_all_rows: bool,
}

pub(crate) async fn read_pages<M: Media>(media: &M, offset: u64, len: usize) -> Result<IoBuf, Error> {
    if offset + len as u64 > media.size_bytes() {
        return Err(Error::Corrupt("the backing is too small to hold a drive".into()));
    }
    let (buf, result) = media.read(offset, IoBuf::pooled(len)).await;
    result.map(|()| buf).map_err(|e| Error::io("reading", offset, &e))
}

/// Reads a copy, and retries after I/O errors: if a write to the other copy failed, this one alone is up to
/// date.
pub(crate) async fn read_patiently<M: Media>(media: &M, offset: u64, len: usize) -> Result<IoBuf, Error> {
    const ATTEMPTS: usize = 4;
    let mut result = read_pages(media, offset, len).await;
    for _ in 1..ATTEMPTS {
        if !matches!(result, Err(Error::Io(_))) {
            break;
        }
        result = read_pages(media, offset, len).await;
    }
    result
}

/// Refuses to write to a drive with features that this release does not know and may only read.
pub(crate) fn must_allow_writing(superblock: &Superblock) -> Result<(), Error> {
    if superblock.features.allow_writing() {
        return Ok(());
    }
    Err(Error::Invalid(
        "the drive uses features that this program can only read: open it read-only, or use a newer program"
            .into(),
    ))
}

/// The backing must be as long as the drive on it.
pub(crate) fn must_hold<M: Media>(media: &M, superblock: &Superblock) -> Result<(), Error> {
    let (found, needed) = (media.size_bytes(), superblock.geometry.physical_size_bytes);
    if found < needed {
        return Err(Error::Corrupt(format!(
            "the backing has {}, the drive on it needs {}: it was cut short",
            exact_size(found),
            exact_size(needed)
        )));
    }
    Ok(())
}

/// Returns the valid checkpoint with the highest number.
pub(crate) async fn read_checkpoint<M: Media>(
    media: &M,
    superblock: &Superblock,
) -> Result<NewestCheckpoint, Error> {
    let Copies { found, mut unread, mut unread_places, shown, outdated, wipes_ahead, durable, of_another } =
        read_copies(media, superblock).await;
    let none = || {
        match wipes_ahead {
        0 => Error::Corrupt("no valid checkpoint".into()),
        _ => Error::Corrupt(
            "the drive was wiped, and the superblock that the wipe wrote is lost: nothing was on it but what was \
             written since; wipe it again"
                .into(),
        ),
    }
    };
    let Some(newest) = found.iter().map(|(_, c)| c.number).max() else {
        return Err(unread.into_iter().flatten().next().unwrap_or_else(none));
    };
    let all = superblock.geometry.copies();
    let before_count = found.iter().filter(|(_, c)| c.number + 1 == newest).count();
    let (alone, uneven) = (before_count == 0, before_count < all);
    let copy_of = |number: u64, copy: usize| found.iter().find(|(at, c)| c.number == number && *at == copy);
    let (mut whole, mut has_before) = ([false; COPIES], [false; COPIES]);
    for copy in 0..all {
        for (number, holds) in [(newest, &mut whole), (newest.wrapping_sub(1), &mut has_before)] {
            holds[copy] =
                copy_of(number, copy).is_some() && holds_all_rows(media, superblock, number, copy).await;
        }
    }
    let is_found = |copy: &usize| copy_of(newest, *copy).is_some();
    let (found_copies, lost): (Vec<usize>, Vec<usize>) = (0..all).partition(is_found);
    let places = superblock.geometry.checkpoint_places(newest);
    let missing: Vec<u64> = lost.iter().map(|copy| places[*copy]).collect();
    let order: Vec<usize> = lost.into_iter().chain(found_copies).collect();
    let rows = &found.iter().find(|(_, c)| c.number == newest).ok_or_else(none)?.1.rows;
    let rows_before = |copy| copy_of(newest.wrapping_sub(1), copy).map(|(_, c)| &c.rows);
    let before = std::array::from_fn(|copy| rows_before(copy).filter(|_| has_before[copy]));
    let foreign: Vec<usize> = found.iter().flat_map(|(_, c)| c.rows.foreign_pages()).copied().collect();
    let table = Table::of(newest, rows, whole, before, &foreign).with_copies(all);
    let checkpoint = found.into_iter().map(|(_, c)| c).find(|c| c.number == newest).ok_or_else(none)?;
    // After a crash a copy may be torn or older. That is no error of the backing.
    let corrected = !missing.is_empty() && (checkpoint.clean || unread[(newest % 2) as usize].is_some());
    let other = ((newest + 1) % 2) as usize;
    Ok(NewestCheckpoint {
        checkpoint,
        order,
        missing,
        alone,
        uneven,
        unread: unread[other].take(),
        unread_places: std::mem::take(&mut unread_places[other]),
        hidden: !shown[other],
        outdated,
        wiped: wipes_ahead > 0,
        of_another,
        corrected,
        table,
        is_durable: durable == newest,
        has_all_rows: whole.contains(&true),
    })
}

/// Returns whether a found checkpoint describes, in one of its places, all segments of the drive.
async fn holds_all_rows<M: Media>(media: &M, superblock: &Superblock, number: u64, copy: usize) -> bool {
    let offset = superblock.geometry.checkpoint_offset((number % 2) as usize, copy);
    let page = read_pages(media, offset, PAGE_BYTES).await;
    page.is_ok_and(|page| {
        Checkpoint::decode_summary(&page).is_ok_and(|found| found.segments == superblock.geometry.segments())
    })
}

/// Contents of the places of checkpoints.
#[derive(Default)]
pub(crate) struct Copies {
    /// Valid checkpoints, with the numbers of their copies.
    pub(crate) found: Vec<(usize, Checkpoint)>,
    /// For each slot, why a copy could not be read.
    pub(crate) unread: [Option<Error>; 2],
    /// Places of these copies.
    unread_places: [Vec<u64>; 2],
    /// For each slot, whether a copy shows that no later checkpoint was written there: it holds an older one,
    /// one of another incarnation or drive, or nothing.
    shown: [bool; 2],
    /// See [`NewestCheckpoint`].
    pub(crate) outdated: Option<String>,
    /// Latest incarnation in them, counted from that of the superblock: of wipes that began and may have been
    /// completed.
    pub(crate) wipes_ahead: u64,
    /// Place of a checkpoint of another drive. Creating a drive overwrites all of them: that one was made
    /// since.
    pub(crate) of_another: Option<u64>,
    /// Highest number among the valid ones that are noted to be durable.
    durable: u64,
}

/// Reads all copies of checkpoints.
pub(crate) async fn read_copies<M: Media>(media: &M, superblock: &Superblock) -> Copies {
    let mut copies = Copies::default();
    let all = superblock.geometry.copies();
    for (slot, copy) in (0..all).flat_map(|copy| [(0, copy), (1, copy)]) {
        let CopyRead { checkpoint, summary, is_blank } = match read_copy(media, superblock, slot, copy).await
        {
            Ok(read) => read,
            Err(error) => {
                copies.unread[slot] = Some(error);
                copies.unread_places[slot].push(superblock.geometry.checkpoint_offset(slot, copy));
                continue;
            }
        };
        let is_ours = |summary: &CheckpointSummary| summary.uuid == superblock.log_id();
        copies.shown[slot] |= checkpoint.is_some() || is_blank || summary.is_some_and(|s| !is_ours(&s));
        if let Some(newer) = summary.filter(|s| is_ours(s) && s.superblock_update > superblock.update) {
            copies.outdated = Some(format!(
                "the superblock found is its version {}, but checkpoint {} was written with version {}",
                superblock.update, newer.number, newer.superblock_update
            ));
        }
        if summary.is_some_and(|s| !superblock.has_log(&s.uuid)) {
            copies.of_another = Some(superblock.geometry.checkpoint_offset(slot, copy));
        }
        let wipes = summary.filter(|s| !is_ours(s)).and_then(|s| superblock.wipes_until(&s.uuid));
        copies.wipes_ahead = copies.wipes_ahead.max(wipes.unwrap_or(0));
        if let Some(durable) = summary.filter(|s| s.is_durable && checkpoint.is_some()) {
            copies.durable = copies.durable.max(durable.number);
        }
        copies.found.extend(checkpoint.map(|checkpoint| (copy, checkpoint)));
    }
    copies
}

/// Contents of one place.
#[derive(Default)]
pub(crate) struct CopyRead {
    /// A valid checkpoint that belongs there.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// The header page, if it is whole.
    summary: Option<CheckpointSummary>,
    is_blank: bool,
}

/// Reads the checkpoint at `offset`, whose header page speaks of so many segments. It is read in pieces, and
/// only as far as they are whole: what a header says takes no memory that the backing does not justify.
pub(crate) async fn read_whole<M: Media>(
    media: &M,
    offset: u64,
    segments: u32,
) -> Result<Result<Checkpoint, DecodeError>, Error> {
    let end = offset + Checkpoint::encoded_len(segments as usize) as u64;
    let piece = |at: u64| READ_BYTES.min(end - at) as usize;
    let first = read_patiently(media, offset, piece(offset)).await?;
    let (mut checkpoint, mut table) = match Checkpoint::decode_header(&first) {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let mut at = offset + first.len() as u64;
    let mut taken = table.take(&first[PAGE_BYTES..]);
    while taken.is_ok() && at < end {
        let bytes = read_patiently(media, at, piece(at)).await?;
        taken = table.take(&bytes);
        at += bytes.len() as u64;
    }
    Ok(taken.and_then(|()| table.finish()).map(|rows| {
        checkpoint.rows = rows;
        checkpoint
    }))
}

/// Reads the checkpoint in one place.
pub(crate) async fn read_copy<M: Media>(
    media: &M,
    superblock: &Superblock,
    slot: usize,
    copy: usize,
) -> Result<CopyRead, Error> {
    let geometry = superblock.geometry;
    let offset = geometry.checkpoint_offset(slot, copy);
    let page = read_patiently(media, offset, PAGE_BYTES).await?;
    let summary = Checkpoint::decode_summary(&page).ok();
    let is_blank = page.iter().all(|byte| *byte == 0);
    // More would be read than there is room for. Fewer date from when the drive was smaller.
    let Some(CheckpointSummary { segments, .. }) =
        summary.filter(|found| found.segments <= geometry.segments())
    else {
        return Ok(CopyRead { checkpoint: None, summary, is_blank });
    };
    let read = read_whole(media, offset, segments).await?;
    let (live_blocks_max, fill_blocks_max) =
        Checkpoint::counted_max(superblock.logical_capacity_bytes / BLOCK_BYTES as u64);
    let valid = |found: &Checkpoint| {
        found.uuid == superblock.log_id()
            && found.number % 2 == slot as u64
            && (1..NUMBER_LIMIT).contains(&found.number)
            && found.live_blocks <= live_blocks_max
            && found.fill_blocks <= fill_blocks_max
            && found.validate(&geometry).is_ok()
    };
    let grown = |mut found: Checkpoint| {
        found.rows.grow(geometry.segments() as usize);
        found
    };
    let checkpoint = read.ok().map(grown).filter(valid);
    Ok(CopyRead { checkpoint, summary, is_blank })
}

/// Looks for a pack that knows a newer checkpoint than the newest found. Returns the proof.
///
/// Checkpoints alternate between the slots. So the one before the newest is in the other slot, unless a power
/// cut tore the next one there, which is harmless, or both copies of the next one went bad after it was
/// durable. Then the log after the older checkpoint may end without a gap, because only a run's first
/// checkpoint names the first segments of that run: everything that it wrote would silently be gone. So in
/// this rare case the first page of every segment is examined. Any segment opened once a newer checkpoint was
/// durable begins with a pack that knows it. If none was opened, the heads continued behind the places to
/// which the older checkpoint's log leads (whose packs know it too), or nothing was written after the newer
/// one.
///
/// The same applies if the slot holds the one before in one copy only: the medium may have taken one copy of
/// the next one, which went bad, and not the other.
///
/// If such a first pack is damaged behind its header, the packs behind it in its segment know the checkpoint
/// too.
///
/// Not detectable: the newest checkpoint is bad in both copies, or in the one that the medium took, and so is
/// the header of every first pack of a segment opened since; or neither write reached the medium although the
/// backing reported success. A header of the next number with a damaged table behind it proves nothing: a
/// power cut leaves that too.
pub(crate) async fn find_successor<M: Media>(
    media: &M,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> Result<Option<String>, Error> {
    let count = superblock.geometry.segments();
    // On a new drive the other slot is blank, which is no reason to examine all of it.
    let until = if checkpoint.number == 1 { count.min(FIRST_SEGMENTS) } else { count };
    let log_id = superblock.log_id();
    let place = (&log_id, superblock.geometry);
    let newer = |header: &PackHeader| header.checkpoint > checkpoint.number;
    let found = first_packs(media, place, 0..until, newer, Search::OneWhole).await?;
    Ok(found.first().map(|header| {
        let usage = checkpoint.rows.get(header.segment as usize).map_or(SegmentUse::Free, |row| row.usage);
        format!(
            "segment {} ({usage:?}) knows checkpoint {}, the newest found is {}",
            header.segment, header.checkpoint, checkpoint.number
        )
    }))
}

/// Which packs [`first_packs`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// A whole one, or a whole one behind it in its segment.
    OneWhole,
    /// All, including torn ones and those damaged behind their first page.
    All,
}

/// Returns the headers of the `wanted` packs with which these segments begin. A first page that cannot be
/// read counts as empty: it may be any page of free space.
pub(crate) async fn first_packs<M: Media>(
    media: &M,
    (uuid, geometry): (&[u8; 16], Geometry),
    segments: impl Iterator<Item = u32>,
    wanted: impl Fn(&PackHeader) -> bool,
    search: Search,
) -> Result<Vec<PackHeader>, Error> {
    let mut found = Vec::new();
    let mut segments = segments.peekable();
    while segments.peek().is_some() {
        let look = async |segment: u32| {
            let start = geometry.segment_offset(segment);
            let page = read_pages(media, start, PAGE_BYTES).await.ok()?;
            let header = PackHeader::decode(&page[..PACK_HEADER_BYTES]).ok()?;
            let here = header.uuid == *uuid && header.segment == segment && header.offset == 0;
            if !here || header.len as usize > PACK_HARD_BYTES || !wanted(&header) {
                return None;
            }
            if search == Search::All {
                return Some(header);
            }
            let segment = Segment { media, uuid, geometry, number: segment, generation: header.generation };
            for offset in (0..geometry.segment_bytes).step_by(PAGE_BYTES) {
                let found = segment.whole_pack_at(offset).await.filter(&wanted);
                if found.is_some() {
                    return found;
                }
            }
            None
        };
        found.extend(
            join_all(segments.by_ref().take(SEGMENTS_AT_ONCE).map(&look)).await.into_iter().flatten(),
        );
        if search == Search::OneWhole && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// A filling of a segment.
struct Segment<'a, M> {
    media: &'a M,
    uuid: &'a [u8; 16],
    geometry: Geometry,
    number: u32,
    generation: u32,
}

impl<M: Media> Segment<'_, M> {
    /// Returns the header of the pack that begins at `offset`, if it is whole.
    async fn whole_pack_at(&self, offset: u32) -> Option<PackHeader> {
        let start = self.geometry.segment_offset(self.number) + u64::from(offset);
        let page = read_pages(self.media, start, PAGE_BYTES).await.ok()?;
        let header = PackHeader::decode(&page[..PACK_HEADER_BYTES]).ok()?;
        let room = self.geometry.segment_bytes - offset;
        if header.uuid != *self.uuid || header.len > room || header.len as usize > PACK_HARD_BYTES {
            return None;
        }
        let bytes = read_pages(self.media, start, header.len as usize).await.ok()?;
        let place =
            PackAddress { uuid: self.uuid, segment: self.number, generation: self.generation, offset };
        decode_pack(&bytes, place, |_, _| {}).ok()
    }
}
