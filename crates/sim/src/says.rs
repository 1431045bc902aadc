//! What a write to the backing says of the drive's log, so that faults spare what no pack and no checkpoint calls durable yet.

use layout::{Checkpoint, PAGE_BYTES, PackHeader};
use media::Said;

/// Reads the pages of a write: packs, one or several behind each other, or a checkpoint.
pub(crate) fn says(pages: &[&[u8]]) -> Said {
    let mut said = Said { numbers: vec![None; pages.len()], tells: 0 };
    if pages.first().is_some_and(|page| Checkpoint::decode_summary(page).is_ok()) {
        said.tells = Checkpoint::decode(&pages.concat()).map_or(0, |checkpoint| checkpoint.durable);
        return said;
    }
    let mut at = 0;
    while let Some(page) = pages.get(at) {
        let Ok(header) = PackHeader::decode(page) else {
            at += 1;
            continue;
        };
        let end = pages.len().min(at + (header.len as usize / PAGE_BYTES).max(1));
        said.numbers[at..end].fill(Some(header.sequence));
        said.tells = said.tells.max(header.durable);
        at = end;
    }
    said
}
