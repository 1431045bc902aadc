//! Reading of the numbers of the drive's log in a write to the backing, so that faults spare what no pack and
//! no checkpoint calls durable yet.

use layout::{Checkpoint, PAGE_BYTES, PackHeader};
use media::LogNumbers;

/// Reads the pages of a write: one or more packs, one after the other, or a checkpoint.
pub(crate) fn read_log_numbers(pages: &[&[u8]]) -> LogNumbers {
    let mut read = LogNumbers { numbers: vec![None; pages.len()], durable: 0 };
    if pages.first().is_some_and(|page| Checkpoint::decode_summary(page).is_ok()) {
        read.durable = Checkpoint::decode(&pages.concat()).map_or(0, |checkpoint| checkpoint.durable);
        return read;
    }
    let mut at = 0;
    while let Some(page) = pages.get(at) {
        let Ok(header) = PackHeader::decode(page) else {
            at += 1;
            continue;
        };
        let end = pages.len().min(at + (header.len as usize / PAGE_BYTES).max(1));
        read.numbers[at..end].fill(Some(header.sequence));
        read.durable = read.durable.max(header.durable);
        at = end;
    }
    read
}
