//! The copies of superblock and checkpoints.

use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Checkpoint, DecodeError, Geometry, PAGE_BYTES, Superblock};
use media::Media;

use super::report::{CheckReport, CopyFound, CopyState, Fault, Faults};
use crate::error::Error;
use crate::open::slots::{CopyRead, read_copy, read_patiently, read_whole};
use crate::open::superblocks::{is_first, read_superblock, update_expected};

/// Slots for checkpoints.
const SLOTS: usize = 2;

/// Examines all copies of superblock and checkpoints on a backing, even if no drive can be opened.
///
/// # Errors
///
/// None: a copy that cannot be read is damaged. Without any superblock no checkpoints are found.
pub async fn find_copies<M: Media>(media: &M) -> (Vec<CopyFound>, Vec<CopyFound>) {
    let found = read_superblock(media).await;
    let near = || (0..SUPERBLOCK_COPIES).map(Geometry::superblock_offset).collect();
    let places =
        found.as_ref().map_or_else(|_| near(), |(superblock, _)| superblock.geometry.superblock_places());
    let mut superblocks = Vec::new();
    for (copy, position_bytes) in places.into_iter().enumerate() {
        let state = superblock_copy(media, position_bytes).await;
        superblocks.push(CopyFound { slot: 0, copy, position_bytes, state });
    }
    let mut checkpoints = Vec::new();
    if let Ok((superblock, _)) = found {
        let copies = superblock.geometry.copies();
        for (slot, copy) in (0..SLOTS).flat_map(|slot| (0..copies).map(move |copy| (slot, copy))) {
            let position_bytes = superblock.geometry.checkpoint_offset(slot, copy);
            let state = checkpoint_copy(media, &superblock, slot, copy).await;
            checkpoints.push(CopyFound { slot, copy, position_bytes, state });
        }
    }
    (superblocks, checkpoints)
}

/// Reports all copies. One that is not what it must be is a fault. For checkpoints that is known only on a
/// drive that was closed properly: a power cut may leave half of one.
pub(super) async fn examine<M: Media>(media: &M, report: &mut CheckReport, faults: &mut Faults) {
    let (superblocks, checkpoints) = find_copies(media).await;
    let newest = newest(&checkpoints);
    let closed = newest.is_some_and(|newest| newest.clean && !newest.first);
    let update = self::newest(&superblocks).map_or(0, |newest| newest.number);
    let expected = update_expected(update, closed);
    for found in &superblocks {
        if let Some(why) = found.state.fault(expected) {
            faults.push(Fault::of_copy(
                found.position_bytes,
                format!("copy {} of the superblock {why}", found.copy),
            ));
        }
    }
    if let Some(Newest { number: newest, clean: true, first }) = newest {
        for found in &checkpoints {
            let current = newest % SLOTS as u64 == found.slot as u64;
            let number = if current { newest } else { newest - 1 };
            // A wipe that was cut short before it wrote a superblock has overwritten the slot before the
            // newest.
            let by_wipe = !current && matches!(found.state, CopyState::Obsolete);
            if (!first || current)
                && !by_wipe
                && let Some(why) = found.state.fault(number)
            {
                let what = format!("copy {} of checkpoint {number} {why}", found.copy);
                faults.push(Fault::of_copy(found.position_bytes, what));
            }
        }
    }
    (report.superblocks, report.checkpoints) = (superblocks, checkpoints);
}

/// The newest copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Newest {
    number: u64,
    clean: bool,
    first: bool,
}

fn newest(copies: &[CopyFound]) -> Option<Newest> {
    let of = |found: &CopyFound| match found.state {
        CopyState::Whole { number, clean, first } => Some(Newest { number, clean, first }),
        _ => None,
    };
    copies.iter().filter_map(of).max()
}

impl CopyState {
    /// Returns what is wrong with a copy that should be whole and have at least this number.
    fn fault(&self, expected: u64) -> Option<String> {
        match self {
            CopyState::Whole { number, .. } if *number >= expected => None,
            CopyState::Whole { number, .. } => Some(format!("is an older one, number {number}")),
            CopyState::Obsolete => Some("was never written".to_string()),
            CopyState::Blank => Some("is missing".to_string()),
            CopyState::Foreign => Some("was overwritten with something else".to_string()),
            CopyState::Damaged(why) => Some(format!("is damaged: {why}")),
        }
    }
}

fn is_blank(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

async fn superblock_copy<M: Media>(media: &M, position: u64) -> CopyState {
    let page = match read_patiently(media, position, PAGE_BYTES).await {
        Ok(page) => page,
        Err(error) => return CopyState::Damaged(error.to_string()),
    };
    match Superblock::decode(&page) {
        Ok(superblock) => CopyState::Whole { number: superblock.update, clean: false, first: false },
        Err(_) if is_blank(&page) => CopyState::Blank,
        Err(DecodeError::Magic(_)) => CopyState::Foreign,
        Err(error) => CopyState::Damaged(error.to_string()),
    }
}

async fn checkpoint_copy<M: Media>(
    media: &M,
    superblock: &Superblock,
    slot: usize,
    copy: usize,
) -> CopyState {
    let damaged = |error: Error| CopyState::Damaged(error.to_string());
    match read_copy(media, superblock, slot, copy).await {
        Ok(CopyRead { checkpoint: Some(found), .. }) => {
            let first = is_first(&found);
            return CopyState::Whole { number: found.number, clean: found.clean, first };
        }
        Ok(CopyRead { checkpoint: None, .. }) => {}
        Err(error) => return damaged(error),
    }
    let position = superblock.geometry.checkpoint_offset(slot, copy);
    let page = match read_patiently(media, position, PAGE_BYTES).await {
        Ok(page) if is_blank(&page) => return CopyState::Blank,
        Ok(page) => page,
        Err(error) => return damaged(error),
    };
    let rows = match Checkpoint::decode_summary(&page) {
        Err(DecodeError::Magic(_)) => return CopyState::Foreign,
        Err(error) => return CopyState::Damaged(error.to_string()),
        // Whole or not: a wipe may have been cut short in it.
        Ok(found) if found.uuid != superblock.log_id() => return CopyState::Obsolete,
        Ok(found) if found.segments > superblock.geometry.max_segments => {
            return CopyState::Damaged(format!("its table is of {} segments", found.segments));
        }
        Ok(found) => found.segments,
    };
    match read_whole(media, position, rows).await {
        Ok(Ok(_)) => CopyState::Damaged("it does not fit this drive".to_string()),
        Ok(Err(error)) => CopyState::Damaged(error.to_string()),
        Err(error) => damaged(error),
    }
}
