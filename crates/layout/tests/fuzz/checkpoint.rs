//! Any bytes as a checkpoint.

use layout::{Checkpoint, Geometry};

use super::seal;

/// Byte 0 of the input, where the magic number goes, says how much of it is made right.
pub(crate) fn run(data: &[u8]) {
    check(data);
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(4096), 0);
    bytes[..8].copy_from_slice(b"PUMICHKP");
    if data.first().is_some_and(|how| how & 1 == 0) {
        let pages = (bytes.len() - 4096) / 4096;
        // As many pages as there are, the last one not always full.
        let rows = (pages * 170).saturating_sub(usize::from(data[0]) % 170) as u32;
        bytes[56..60].copy_from_slice(&rows.to_le_bytes());
        for page in 0..pages {
            bytes[(1 + page) * 4096 + 4..][..4].copy_from_slice(&(page as u32).to_le_bytes());
        }
    }
    seal::checkpoint(&mut bytes);
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let Ok(checkpoint) = Checkpoint::decode(bytes) else { return };
    assert!(Checkpoint::encoded_len(checkpoint.rows.len()) <= bytes.len(), "no more rows than bytes");
    let mut again = vec![0; Checkpoint::encoded_len(checkpoint.rows.len())];
    checkpoint.encode(&mut again);
    assert_eq!(Checkpoint::decode(&again).as_ref(), Ok(&checkpoint));
    // A drive of as many segments as there are rows, if there can be one.
    let rows = checkpoint.rows.len() as u64;
    if let Ok(geometry) = Geometry::new((rows + 1) << 20, Some(1 << 20))
        && checkpoint.validate(&geometry).is_ok()
    {
        assert_eq!(u64::from(geometry.segments()), rows);
        assert!(checkpoint.root.is_unmapped() || geometry.holds(checkpoint.root));
        for head in checkpoint.heads.iter().filter(|head| head.current.is_some()) {
            assert!(geometry.segment_offset(head.current.segment) < geometry.physical_size_bytes);
        }
    }
}
