//! Any bytes as an index of parity.

use layout::{ParityForm, ParityIndex, ParityShape};

use super::seal;

/// Bytes 0 and 1 of the input, where the magic number goes, say how much of it is made right, and for a
/// segment of which size.
pub(crate) fn run(data: &[u8]) {
    let segment_bytes = 1 << (19 + data.get(1).map_or(0, |byte| byte % 4));
    check(data, segment_bytes);
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(4096), 0);
    if data.first().is_some_and(|how| how & 1 == 0) {
        bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
        bytes[40] = 1 + bytes[40] % 3;
        // As many pages as the list has room for.
        let most = (bytes.len() - 128) as u32 / 8;
        let end = u32::from_le_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]) % (most + 1);
        bytes[44..48].copy_from_slice(&end.to_le_bytes());
    }
    seal::parity_index(&mut bytes, segment_bytes);
    check(&bytes, segment_bytes);
}

fn check(bytes: &[u8], segment_bytes: u32) {
    let Ok((index, shape)) = ParityIndex::decode(bytes, segment_bytes) else { return };
    assert_ne!(shape.form(), ParityForm::None);
    assert_eq!(ParityShape::new(segment_bytes, shape.form()), Some(shape));
    assert!(index.end() <= shape.room_pages(), "pages of packs are in their room");
    assert_eq!(index.parity.len() as u32, shape.groups_used(index.end()));
    for page in [0, index.end() / 2, index.end().saturating_sub(1)].into_iter().filter(|p| *p < index.end()) {
        let group = shape.group_of(page);
        assert!(shape.members(group, index.end()).any(|member| member == page));
        assert!(shape.parity_offset(group) < segment_bytes);
    }
    let mut again = vec![0; shape.index_bytes()];
    index.encode(&shape, &mut again);
    assert_eq!(ParityIndex::decode(&again, segment_bytes), Ok((index, shape)));
}
