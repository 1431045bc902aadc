//! The copies of superblock and checkpoints.

use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Checkpoint, DecodeError, Geometry, PAGE_BYTES, Superblock};
use media::Media;

use super::report::{CheckReport, CopyFound, CopyState, Fault, Faults};
use crate::error::Error;
use crate::slots::{read_copy, read_pages, read_superblock};

/// Slots for checkpoints, and copies of each.
const SLOTS: usize = 2;
const COPIES: usize = 2;

/// Looks at all copies of superblock and checkpoints on a backing, also where no drive can be opened.
///
/// # Errors
/// None: what cannot be read is a copy that is damaged. Without any superblock no checkpoints are found.
pub async fn find_copies<M: Media>(media: &M) -> (Vec<CopyFound>, Vec<CopyFound>) {
    let mut superblocks = Vec::new();
    for copy in 0..SUPERBLOCK_COPIES {
        let position_bytes = Geometry::superblock_offset(copy);
        let state = superblock_copy(media, position_bytes).await;
        superblocks.push(CopyFound { slot: 0, copy, position_bytes, state });
    }
    let mut checkpoints = Vec::new();
    if let Ok((superblock, _)) = read_superblock(media).await {
        for (slot, copy) in (0..SLOTS).flat_map(|slot| (0..COPIES).map(move |copy| (slot, copy))) {
            let position_bytes = superblock.geometry.checkpoint_offset(slot, copy);
            let state = checkpoint_copy(media, &superblock, slot, copy).await;
            checkpoints.push(CopyFound { slot, copy, position_bytes, state });
        }
    }
    (superblocks, checkpoints)
}

/// Reports all copies. One that is not what it must be is a fault. Of checkpoints that can be told on a drive that was
/// closed properly only: a power cut may leave half of one.
pub(super) async fn examine<M: Media>(media: &M, report: &mut CheckReport, faults: &mut Faults) {
    let (superblocks, checkpoints) = find_copies(media).await;
    let newest = newest(&checkpoints);
    let closed = newest.is_some_and(|(_, clean)| clean);
    let update = self::newest(&superblocks).map_or(0, |(number, _)| number);
    for found in &superblocks {
        let expected = if closed { update } else { 0 };
        if let Some(why) = found.state.fault(expected) {
            faults.push(Fault::of_copy(
                found.position_bytes,
                format!("copy {} of the superblock {why}", found.copy),
            ));
        }
    }
    if let Some((newest, true)) = newest {
        for found in &checkpoints {
            let number = if newest % SLOTS as u64 == found.slot as u64 { newest } else { newest - 1 };
            // A new drive has no checkpoint before its first.
            if number > 0
                && let Some(why) = found.state.fault(number)
            {
                let what = format!("copy {} of checkpoint {number} {why}", found.copy);
                faults.push(Fault::of_copy(found.position_bytes, what));
            }
        }
    }
    (report.superblocks, report.checkpoints) = (superblocks, checkpoints);
}

/// Number of the newest copy, and whether it is a clean checkpoint.
fn newest(copies: &[CopyFound]) -> Option<(u64, bool)> {
    let of = |found: &CopyFound| match found.state {
        CopyState::Whole { number, clean } => Some((number, clean)),
        _ => None,
    };
    copies.iter().filter_map(of).max()
}

impl CopyState {
    /// What is wrong with a copy that should be whole and have at least this number.
    fn fault(&self, expected: u64) -> Option<String> {
        match self {
            CopyState::Whole { number, .. } if *number >= expected => None,
            CopyState::Whole { number, .. } => Some(format!("is an older one, number {number}")),
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
    let page = match read_pages(media, position, PAGE_BYTES).await {
        Ok(page) => page,
        Err(error) => return CopyState::Damaged(error.to_string()),
    };
    match Superblock::decode(&page) {
        Ok(superblock) => CopyState::Whole { number: superblock.update, clean: false },
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
        Ok(Some(found)) => return CopyState::Whole { number: found.number, clean: found.clean },
        Ok(None) => {}
        Err(error) => return damaged(error),
    }
    let page = match read_pages(media, superblock.geometry.checkpoint_offset(slot, copy), PAGE_BYTES).await {
        Ok(page) if is_blank(&page) => return CopyState::Blank,
        Ok(page) => page,
        Err(error) => return damaged(error),
    };
    match Checkpoint::decode_segments(&page) {
        Err(DecodeError::Magic(_)) => CopyState::Foreign,
        Err(error) => CopyState::Damaged(error.to_string()),
        Ok(_) => CopyState::Damaged("its table is torn, or it does not fit this drive".to_string()),
    }
}
