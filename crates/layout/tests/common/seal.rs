//! Makes the checksums of damaged structures right again, so that the checks behind them are reached. Written
//! from the tables of the format, not from the encoders: a second opinion on what covers what.

#![allow(dead_code, reason = "every user takes a part of it")]

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn put(b: &mut [u8], at: usize, value: u32) {
    b[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A page whose checksum, at `crc_at`, covers it with itself as zero.
fn page(b: &mut [u8], crc_at: usize) {
    put(b, crc_at, 0);
    let crc = crc32c::crc32c(b);
    put(b, crc_at, crc);
}

/// The superblock's page.
pub(crate) fn superblock(bytes: &mut [u8]) {
    if let Some(b) = bytes.get_mut(..4096) {
        page(b, 12);
    }
}

/// The catalog of dictionaries.
pub(crate) fn catalog(block: &mut [u8]) {
    page(block, 8);
}

/// The memory of a run: as many units as there is room for, if they have a page.
pub(crate) fn memory(bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(b"PUMEMORY");
    put(bytes, 8, 1);
    let pages = (bytes.len() / 4096) as u32;
    if pages >= 3 && bytes.len().is_multiple_of(4096) {
        put(bytes, 56, pages - 2);
        put(bytes, 60, 4096);
    }
    let crc = crc32c::crc32c(&bytes[16..72]);
    put(bytes, 12, crc);
}

/// An index of parity in a segment of this size, if its list is all there.
pub(crate) fn parity_index(bytes: &mut [u8], segment_bytes: u32) {
    bytes[..8].copy_from_slice(b"PUPARITY");
    let (pages, form, end) = (segment_bytes / 4096, bytes[40], u32_at(bytes, 44));
    let groups = match form {
        1 => pages / 32 - 1,
        2 => pages / 64 - 1,
        3 => pages / 16 - 1,
        _ => return,
    };
    let sums = u64::from(end) + u64::from(end.min(groups));
    let Some(list) = bytes.get(128..).and_then(|list| list.get(..(sums * 4) as usize)) else { return };
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[16..128]), list);
    put(bytes, 12, crc);
}

/// A checkpoint: the pages of its table, if they are all there, then its header page.
pub(crate) fn checkpoint(bytes: &mut [u8]) {
    let Some((header, table)) = bytes.split_at_mut_checked(4096) else { return };
    let pages = (u32_at(header, 56) as usize).div_ceil(170);
    if let Some(table) = table.get_mut(..pages.saturating_mul(4096)) {
        let mut list = Vec::new();
        for b in table.chunks_exact_mut(4096) {
            page(b, 0);
            list.extend_from_slice(&b[..4]);
        }
        put(header, 12, crc32c::crc32c(&list));
    }
    page(header, 8);
}

/// A record that begins at byte 0. Answers where the next one begins, if this one is whole.
pub(crate) fn record(bytes: &mut [u8], mask: u32) -> Option<usize> {
    let len = usize::from(u16::from_le_bytes([*bytes.get(10)?, *bytes.get(11)?]));
    let end = 16 + len;
    let frame = *bytes.get(12)? == 1 && *bytes.get(13)? >> 4 & 7 != 0;
    let crc = crc32c::crc32c(bytes.get(4..end)?) ^ mask;
    put(bytes, 0, crc);
    Some(end.next_multiple_of(if frame { 32 } else { 16 }))
}

/// A pack, as far as its records can be walked. Each record gets the mask of the place that the pack's header
/// names.
pub(crate) fn pack(bytes: &mut [u8]) {
    if bytes.len() < 112 {
        return;
    }
    let tag = crc32c::crc32c(&bytes[8..24]);
    let (segment, generation, offset) = (u32_at(bytes, 24), u32_at(bytes, 28), u32_at(bytes, 32));
    let used = (u32_at(bytes, 40) as usize).min(bytes.len());
    let mut crc = 0;
    let mut at = 112;
    for _ in 0..u32_at(bytes, 44) {
        let Some(rest) = bytes.get_mut(at..used).filter(|rest| rest.len() >= 16) else { break };
        let mask = layout::record::place_mask(tag, segment, generation, offset.wrapping_add(at as u32));
        let Some(len) = record(rest, mask) else { break };
        crc = crc32c::crc32c_append(crc, &rest[..16]);
        at += len;
    }
    let crc = crc32c::crc32c_append(crc, &bytes[..108]);
    put(bytes, 108, crc);
}
