//! Any bytes as a record, and its payload as what its kind says.

use layout::RecordKind;
use layout::record::{RECORD_HEADER_BYTES, decode_range, decode_record, encode_range};

use super::{node, seal};

/// The first four bytes, where the checksum goes, are the mask.
pub(crate) fn run(data: &[u8]) {
    let mask = data.first_chunk().map_or(0, |raw| u32::from_le_bytes(*raw));
    check(data, mask);
    let mut bytes = data.to_vec();
    if let Some(kind) = bytes.get_mut(12).filter(|_| mask & 1 == 0) {
        *kind = *kind % 4 + 1;
    }
    seal::record(&mut bytes, mask);
    check(&bytes, mask);
}

fn check(bytes: &[u8], mask: u32) {
    let Ok(record) = decode_record(bytes, mask) else { return };
    let header = record.header;
    assert!(RECORD_HEADER_BYTES + record.payload.len() <= bytes.len());
    let entry = header.entry_at(1 << 20);
    assert_eq!((entry.len_bytes(), entry.blocks()), (header.record_len(), header.blocks()));
    assert_eq!(entry.first_block(header.block), header.block);
    let mut again = [0; 16];
    header.encode(&mut again);
    assert_eq!(again, bytes[..16]);
    match header.kind {
        RecordKind::Data => {
            let applied = (header.block..).take(8).filter(|block| header.applies_to(*block)).count() as u64;
            let left_out = u64::from(header.left_out.count_ones());
            assert!(
                applied > 0 && applied + left_out == header.blocks(),
                "left out are blocks of its own, not all"
            );
        }
        RecordKind::Range => {
            if let Ok((blocks, entry)) = decode_range(record.payload) {
                assert_eq!(encode_range(blocks, entry), record.payload);
            }
        }
        RecordKind::Node => node::check_node(header.codec, record.payload),
        RecordKind::Overlay => node::check_overlay(header.codec, record.payload),
    }
}
