//! Mending of flipped bits in the headers of a pack that is known to have been written.
//!
//! A flipped bit in a payload costs a record. One in a header would cost all that the pack tells, and with it
//! the log from there on. But headers are covered twice: by the checksum of the pack, and, in records, by
//! that of the record. So the bit is looked for, and what is found counts only if all checksums that cover
//! headers hold.
//!
//! - In a record: the first 16 bytes of each record whose checksum fails are tried with each of their bits
//!   flipped. A wrong length would hide all records behind it, so they are tried in order, each with its
//!   length mended.
//! - In the header of the pack: each of its bits is tried, if all records are right.

use crate::pack::{PACK_HEADER_BYTES, PackAddress, PackHeader, decode_damaged_pack, decode_pack, masks};
use crate::record::{RECORD_HEADER_BYTES, RecordHeader, decode_record};

/// Returns the bytes of the pack with number `sequence` at a place, if flipping a bit of its header, or one
/// in each of some headers of its records, makes its headers right. They are not right as they are. `bytes`
/// begins at the pack and may go on behind it.
///
/// A power cut leaves packs that are not whole, too. Who mends one must know that it was durable.
pub fn mend_pack(bytes: &[u8], place: PackAddress<'_>, sequence: u64) -> Option<Vec<u8>> {
    mend_records(bytes, place, sequence).or_else(|| mend_header(bytes, place, sequence))
}

/// Returns the header of a pack if it is of this place and has this number.
fn header_of(bytes: &[u8], place: PackAddress<'_>, sequence: u64) -> Option<PackHeader> {
    let is_here = |header: &PackHeader| {
        header.uuid == *place.uuid
            && header.segment == place.segment
            && header.generation == place.generation
            && header.offset == place.offset
            && header.sequence == sequence
            && header.len as usize <= bytes.len()
    };
    PackHeader::decode(bytes).ok().filter(is_here)
}

fn mend_records(bytes: &[u8], place: PackAddress<'_>, sequence: u64) -> Option<Vec<u8>> {
    let header = header_of(bytes, place, sequence)?;
    let mask = masks(place);
    let mut pack = bytes[..header.len as usize].to_vec();
    let used = &mut pack[..header.used as usize];
    let mut at = PACK_HEADER_BYTES;
    for _ in 0..header.records {
        let record = used.get_mut(at..).filter(|rest| rest.len() >= RECORD_HEADER_BYTES)?;
        let is_right = |record: &[u8]| decode_record(record, mask(at as u32)).is_ok();
        if !is_right(record) {
            // If no bit mends it, its payload is damaged.
            flip_until(record, RECORD_HEADER_BYTES, is_right);
        }
        at += RecordHeader::decode(record).ok()?.record_len();
    }
    decode_damaged_pack(&pack, place, |_, _, _| {}).is_ok().then_some(pack)
}

fn mend_header(bytes: &[u8], place: PackAddress<'_>, sequence: u64) -> Option<Vec<u8>> {
    let mut head: [u8; PACK_HEADER_BYTES] = *bytes.first_chunk()?;
    let mut pack = bytes.to_vec();
    let mended = flip_until(&mut head, PACK_HEADER_BYTES, |head| {
        // The length is in the header. It is looked at first, because the rest takes longer.
        pack[..PACK_HEADER_BYTES].copy_from_slice(head);
        header_of(&pack, place, sequence).is_some() && decode_pack(&pack, place, |_, _| {}).is_ok()
    });
    let len = mended.then(|| header_of(&pack, place, sequence))??.len;
    pack.truncate(len as usize);
    Some(pack)
}

/// Flips each bit of the first `len` bytes in turn, until that makes them right. Returns false, and leaves
/// them as they were, if none does.
fn flip_until(bytes: &mut [u8], len: usize, mut is_right: impl FnMut(&[u8]) -> bool) -> bool {
    for bit in 0..len * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if is_right(bytes) {
            return true;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    false
}
