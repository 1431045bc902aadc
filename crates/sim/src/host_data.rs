//! Recognition of host data in the drive's log. What is damaged in nothing else may cost what was stored, and
//! not the drive. The same holds for a flipped bit in a header that an opening mends, and that nothing else
//! needs.

use std::ops::Range;
use std::sync::Arc;

use layout::geometry::OWN_FIRST_BLOCK;
use layout::pack::{PACK_HEADER_BYTES, PackAddress, decode_damaged_pack};
use layout::record::RECORD_HEADER_BYTES;
use layout::{PAGE_BYTES, PackHeader, RecordKind};

/// Most pages of a pack. Larger ones are not recognized.
const PACK_PAGES_MAX: u64 = (512 << 10) / PAGE_BYTES as u64;

/// Content of a page of a backing.
type Page = Arc<[u8; PAGE_BYTES]>;

/// Returns whether these bytes of a page are in the payload of one data record of a host, or in the padding
/// behind it; or, if one bit of them flips, in the header of a pack, or of a record of a host. False where
/// that is not known: the pack's headers are not right, or there is none.
pub(crate) fn is_host_data(
    page: &dyn Fn(u64) -> Option<Page>,
    at: u64,
    bytes: Range<usize>,
    is_one_bit: bool,
) -> bool {
    let Some((first, header, pack)) = pack_around(page, at) else { return false };
    let before = (at - first) as usize * PAGE_BYTES;
    let bytes = before + bytes.start..before + bytes.end;
    let place = PackAddress {
        uuid: &header.uuid,
        segment: header.segment,
        generation: header.generation,
        offset: header.offset,
    };
    let (mut is_data, mut are_all_right) = (false, true);
    let holds = |part: &Range<usize>| part.start <= bytes.start && bytes.end <= part.end;
    let decoded = decode_damaged_pack(&pack, place, |at, record, payload| {
        let (begins, ends) = (at as usize, at as usize + record.record_len());
        let data = begins + RECORD_HEADER_BYTES..ends;
        let is_of_host = record.kind == RecordKind::Data && record.block < OWN_FIRST_BLOCK;
        is_data |= is_of_host && holds(&data);
        // Found by the checksum of the record. Nobody looks for a range again.
        let is_mended = is_one_bit && payload.is_some() && (is_of_host || record.kind == RecordKind::Range);
        is_data |= is_mended && holds(&(begins..data.start));
        are_all_right &= payload.is_some();
    });
    // Found only if nothing else is damaged.
    is_data |= is_one_bit && are_all_right && bytes.end <= PACK_HEADER_BYTES;
    decoded.is_ok() && is_data
}

/// Returns what looks like the pack that a page belongs to: its first page, its header and all of it.
fn pack_around(page: &dyn Fn(u64) -> Option<Page>, at: u64) -> Option<(u64, PackHeader, Vec<u8>)> {
    for first in ((at + 1).saturating_sub(PACK_PAGES_MAX)..=at).rev() {
        // There is no hole in a pack.
        let Ok(header) = PackHeader::decode(&page(first)?[..]) else { continue };
        let end = first + u64::from(header.len) / PAGE_BYTES as u64;
        if end <= at {
            return None;
        }
        let mut pack = Vec::with_capacity(header.len as usize);
        for at in first..end {
            pack.extend_from_slice(&page(at)?[..]);
        }
        return Some((first, header, pack));
    }
    None
}

#[cfg(test)]
mod tests {
    use layout::RecordHeader;
    use layout::pack::{Head, NextSegment, drive_tag};
    use layout::record::{place_mask, record_crc};

    use super::*;

    /// Page at which the pack begins.
    const FIRST: u64 = 9;
    const PAYLOAD_BYTES: usize = 3000;
    const RECORD_BYTES: usize = RECORD_HEADER_BYTES + 3008;

    /// A pack of two pages: data of a host, data of the drive itself, and a node.
    fn pages() -> Vec<Page> {
        let mut records = Vec::new();
        let mut crc = 0;
        for (kind, block) in
            [(RecordKind::Data, 5), (RecordKind::Data, OWN_FIRST_BLOCK), (RecordKind::Node, 0)]
        {
            let payload_len = if kind == RecordKind::Node { 64 } else { PAYLOAD_BYTES as u16 };
            let header = RecordHeader { crc: 0, block, left_out: 0, payload_len, kind, codec: 0, extra: 0 };
            let mut record = vec![0; header.record_len()];
            header.encode(&mut record);
            let mask = place_mask(drive_tag(&[3; 16]), 0, 1, (PACK_HEADER_BYTES + records.len()) as u32);
            RecordHeader { crc: record_crc(&record, &header) ^ mask, ..header }.encode(&mut record);
            crc = crc32c::crc32c_append(crc, &record[..RECORD_HEADER_BYTES]);
            records.extend(record);
        }
        let used = (PACK_HEADER_BYTES + records.len()) as u32;
        let header = PackHeader {
            head: Head::Host,
            uuid: [3; 16],
            segment: 0,
            generation: 1,
            offset: 0,
            len: 2 * PAGE_BYTES as u32,
            used,
            records: 3,
            sequence: 1,
            durable: 0,
            checkpoint: 0,
            next: [NextSegment::NONE; 3],
            continued: 0,
            parity: layout::ParityForm::None,
        };
        let mut pack = vec![0; 2 * PAGE_BYTES];
        header.encode(crc, &mut pack);
        pack[PACK_HEADER_BYTES..used as usize].copy_from_slice(&records);
        pack.chunks_exact(PAGE_BYTES)
            .map(|page| Arc::new(<[u8; PAGE_BYTES]>::try_from(page).expect("a page")))
            .collect()
    }

    fn is_data(pages: &[Page], bytes: Range<usize>) -> bool {
        costs_data(pages, bytes, false)
    }

    fn costs_data(pages: &[Page], bytes: Range<usize>, is_one_bit: bool) -> bool {
        let page = |at: u64| pages.get(at.checked_sub(FIRST)? as usize).cloned();
        let at = bytes.start / PAGE_BYTES;
        let before = at * PAGE_BYTES;
        is_host_data(&page, FIRST + at as u64, bytes.start - before..bytes.end - before, is_one_bit)
    }

    #[test]
    fn one_bit_of_a_header_costs_no_more_unless_somebody_needs_its_record() {
        let pages = pages();
        let bit = |at: usize| costs_data(&pages, at..at + 1, true);
        assert!(bit(50) && bit(111), "the pack's header");
        assert!(bit(PACK_HEADER_BYTES) && bit(PACK_HEADER_BYTES + RECORD_HEADER_BYTES + 5));
        let own = PACK_HEADER_BYTES + RECORD_BYTES;
        assert!(!bit(own) && !bit(own + RECORD_BYTES), "the drive's own block, a node");
    }

    #[test]
    fn only_payloads_of_hosts_are_data() {
        let pages = pages();
        let data = PACK_HEADER_BYTES + RECORD_HEADER_BYTES..PACK_HEADER_BYTES + RECORD_BYTES;
        assert!(is_data(&pages, data.clone()));
        assert!(is_data(&pages, data.start..data.start + 1) && is_data(&pages, data.end - 1..data.end));
        assert!(!is_data(&pages, data.start - 1..data.start + 1), "a record's header");
        assert!(!is_data(&pages, data.end - 1..data.end + 1), "the next record's header");
        assert!(!is_data(&pages, 50..51), "the pack's header");
        let own = data.end + RECORD_HEADER_BYTES;
        assert!(!is_data(&pages, own..own + 1), "the drive's own block");
        assert!(!is_data(&pages, PAGE_BYTES + 100..PAGE_BYTES + 101), "the same, in the next page");
        let node = data.end + RECORD_BYTES + RECORD_HEADER_BYTES;
        assert!(!is_data(&pages, node..node + 8), "a node");
    }

    #[test]
    fn damage_to_data_does_not_hide_what_else_is_data_and_damage_to_headers_does() {
        let mut pages = pages();
        let place = PACK_HEADER_BYTES + RECORD_HEADER_BYTES + 10;
        Arc::make_mut(&mut pages[0])[place] ^= 1;
        assert!(is_data(&pages, place + 5..place + 6));
        Arc::make_mut(&mut pages[0])[PACK_HEADER_BYTES + 5] ^= 1;
        assert!(!is_data(&pages, place + 5..place + 6));
    }
}
