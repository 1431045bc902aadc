//! Records in a segment that is being cleaned, found without the map.

use std::ops::Range;

use layout::node::ROOT_LEVEL;
use layout::pack::PackHeader;
use layout::record::{RECORD_HEADER_BYTES, Record, decode_record, place_mask};
use layout::{BLOCK_BYTES, Entry, PAGE_BYTES, RecordHeader, RecordKind};
use space::PACK_HARD_BYTES;

/// A record found in a segment that is being cleaned. It was verified: a record with a wrong checksum has no
/// effect here.
pub(crate) struct FoundRecord {
    /// Its checksum is without the mask of its place, so that it can be moved as it is.
    pub(crate) header: RecordHeader,
    pub(crate) entry: Entry,
    /// Place of its payload in the window.
    pub(crate) payload: Range<usize>,
}

/// Returns whether a record with a correct checksum is one that a correct drive writes and that may be moved
/// or followed.
fn is_sane(record: &Record<'_>) -> bool {
    match record.header.kind {
        RecordKind::Data => record.header.blocks() > 1 || record.payload.len() <= BLOCK_BYTES,
        RecordKind::Node => record.header.extra <= u16::from(ROOT_LEVEL),
        RecordKind::Range | RecordKind::Overlay => false,
    }
}

/// Returns the records of a pack in memory that belongs to a place of a segment.
pub(crate) fn find_verified(
    pack: &[u8],
    tag: u32,
    filling: (u32, u32),
    position: u64,
    offset: u32,
) -> Vec<FoundRecord> {
    let mut found = Vec::new();
    if let Ok(header) = PackHeader::decode(pack) {
        find_all(pack, tag, &header.uuid, filling, position, offset, &mut found);
    }
    found
}

/// Finds the valid records of all packs in a window of a segment (given by number and generation). The window
/// begins at a position of the backing and an offset in the segment. Returns how much of the window is done.
pub(crate) fn find_all(
    window: &[u8],
    tag: u32,
    uuid: &[u8; 16],
    (segment, generation): (u32, u32),
    position: u64,
    offset: u32,
    found: &mut Vec<FoundRecord>,
) -> usize {
    find_records(window, uuid, |raw, pack, from| {
        if pack.segment != segment || pack.generation != generation {
            return;
        }
        let mask = place_mask(tag, segment, generation, offset + from as u32);
        let Ok(record) = decode_record(raw, mask) else { return };
        let payload = from + RECORD_HEADER_BYTES;
        if is_sane(&record) {
            let entry = record.header.entry_at(position + from as u64);
            let header = RecordHeader { crc: record.header.crc ^ mask, ..record.header };
            found.push(FoundRecord { header, entry, payload: payload..payload + record.payload.len() });
        }
    })
}

/// Finds the records of all packs in a window of a segment, unverified. Calls `each` with a record's bytes,
/// the header of its pack and its offset in the window. Skips, page by page, what is not a pack: a damaged
/// pack must not hide those behind it. Returns how much of the window is done.
fn find_records(window: &[u8], uuid: &[u8; 16], mut each: impl FnMut(&[u8], &PackHeader, usize)) -> usize {
    let mut at = 0;
    while at < window.len() {
        let Some(pack) = PackHeader::decode(&window[at..]).ok().filter(|p| p.uuid == *uuid) else {
            at += PAGE_BYTES;
            continue;
        };
        let len = pack.len as usize;
        if at + len > window.len() {
            if at > 0 && len <= PACK_HARD_BYTES {
                return at;
            }
            at += PAGE_BYTES;
            continue;
        }
        let walked =
            layout::pack::walk_records(&window[at..at + pack.used as usize], pack.records, |within, raw| {
                each(raw, &pack, at + within as usize);
                Ok(())
            });
        at += if walked.is_ok() { len } else { PAGE_BYTES };
    }
    window.len()
}
