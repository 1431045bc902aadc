//! Records in a segment that is being cleaned, found without the map.

use std::ops::Range;

use layout::node::ROOT_LEVEL;
use layout::pack::{PACK_HEADER_BYTES, PackHeader, walk_records};
use layout::record::{RECORD_HEADER_BYTES, Record, decode_record, place_mask};
use layout::{BLOCK_BYTES, Entry, PAGE_BYTES, RecordHeader, RecordKind, UNIT_BYTES};
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

/// Longest record.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 10;

/// A filling of a segment, as packs and checksums of records name it.
#[derive(Clone, Copy)]
pub(crate) struct Filling<'a> {
    /// See [`drive_tag`](layout::pack::drive_tag).
    pub(crate) tag: u32,
    pub(crate) uuid: &'a [u8; 16],
    pub(crate) segment: u32,
    pub(crate) generation: u32,
}

impl Filling<'_> {
    /// Returns the record at `from` in a window that begins at a position of the backing and an offset in the
    /// segment, if it is whole.
    fn record_at(self, window: &[u8], from: usize, position: u64, offset: u32) -> Option<FoundRecord> {
        let mask = place_mask(self.tag, self.segment, self.generation, offset + from as u32);
        let record = decode_record(&window[from..], mask).ok().filter(is_sane)?;
        let payload = from + RECORD_HEADER_BYTES;
        let entry = record.header.entry_at(position + from as u64);
        let header = RecordHeader { crc: record.header.crc ^ mask, ..record.header };
        Some(FoundRecord { header, entry, payload: payload..payload + record.payload.len() })
    }

    /// Finds the records that begin in a part of a window, wherever they may.
    fn look_for_records(
        self,
        window: &[u8],
        part: Range<usize>,
        position: u64,
        offset: u32,
        found: &mut Vec<FoundRecord>,
    ) {
        let mut at = part.start;
        while at < part.end {
            let record = self.record_at(window, at, position, offset);
            at += record.as_ref().map_or(UNIT_BYTES, |record| record.header.record_len());
            found.extend(record);
        }
    }
}

/// Returns the records of a pack in memory that belongs to a place of a segment.
pub(crate) fn find_verified(
    pack: &[u8],
    tag: u32,
    (segment, generation): (u32, u32),
    position: u64,
    offset: u32,
) -> Vec<FoundRecord> {
    let mut found = Vec::new();
    if let Ok(header) = PackHeader::decode(pack) {
        let filling = Filling { tag, uuid: &header.uuid, segment, generation };
        find_all(pack, filling, position, offset, false, &mut found);
    }
    found
}

/// Finds the valid records of all packs in a window of a segment. The window begins at a position of the
/// backing and an offset in the segment. A damaged pack does not hide those behind it, nor a damaged record
/// those behind it in its pack. If pages of the segment are lost (`is_torn`), records are also looked for
/// where no pack says that there are any. Returns how much of the window is done.
pub(crate) fn find_all(
    window: &[u8],
    filling: Filling<'_>,
    position: u64,
    offset: u32,
    is_torn: bool,
    found: &mut Vec<FoundRecord>,
) -> usize {
    let mut gaps = Gaps::default();
    let mut at = 0;
    let mut done = window.len();
    while at < window.len() {
        let Some(pack) = PackHeader::decode(&window[at..]).ok().filter(|p| p.uuid == *filling.uuid) else {
            gaps.add(at..at + PAGE_BYTES, false);
            at += PAGE_BYTES;
            continue;
        };
        let len = pack.len as usize;
        if at + len > window.len() {
            if at > 0 && len <= PACK_HARD_BYTES {
                done = at;
                break;
            }
            gaps.add(at..at + PAGE_BYTES, false);
            at += PAGE_BYTES;
            continue;
        }
        let is_of_filling = (pack.segment, pack.generation) == (filling.segment, filling.generation);
        let mut verified = at + PACK_HEADER_BYTES;
        let walked = walk_records(&window[at..at + pack.used as usize], pack.records, |within, raw| {
            let from = at + within as usize;
            if let Some(record) = filling.record_at(window, from, position, offset).filter(|_| is_of_filling)
            {
                found.push(record);
                verified = from + raw.len();
            }
            Ok(())
        });
        if walked.is_ok() {
            // What names another filling may be one of this whose header is damaged.
            if !is_of_filling {
                gaps.add(at..at + len, false);
            }
            at += len;
        } else {
            at = verified.next_multiple_of(PAGE_BYTES);
            gaps.add(verified..at, is_of_filling);
        }
    }
    for (gap, is_of_pack) in gaps.0 {
        if is_of_pack || is_torn {
            filling.look_for_records(window, gap, position, offset, found);
        }
    }
    done
}

/// Parts of a window that no whole pack explains, in rising order: pages that are no pack, and the rest of
/// packs behind the last record that is whole. With each: whether it is or begins with the rest of a pack of
/// this filling.
#[derive(Default)]
struct Gaps(Vec<(Range<usize>, bool)>);

impl Gaps {
    fn add(&mut self, gap: Range<usize>, is_of_pack: bool) {
        match self.0.last_mut() {
            Some((last, of_pack)) if last.end == gap.start => {
                last.end = gap.end;
                *of_pack |= is_of_pack;
            }
            _ => self.0.push((gap, is_of_pack)),
        }
    }
}
