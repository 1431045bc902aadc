//! Any page as a superblock.

use layout::{Geometry, Superblock};

use super::seal;

/// Byte 0 of the input, where the magic number goes, says how much of it is made right.
pub(crate) fn run(data: &[u8]) {
    check(data);
    let mut page = data.to_vec();
    page.resize(page.len().max(4096), 0);
    page[..8].copy_from_slice(&layout::superblock::MAGIC);
    if data.first().is_some_and(|how| how & 1 == 0) {
        page[8..12].copy_from_slice(&layout::FORMAT_VERSION.to_le_bytes());
        page[72..80].fill(0);
        page[128] &= 0x0f;
        page[129..132].fill(0);
    }
    seal::superblock(&mut page);
    check(&page);
}

fn check(page: &[u8]) {
    let Ok(superblock) = Superblock::decode(page) else { return };
    assert_eq!(Superblock::decode(&superblock.encode()).as_ref(), Ok(&superblock));
    assert_eq!(page[72..80], [0; 8], "no incompatible feature is known");
    assert_eq!(superblock.features.allow_writing(), page[112] <= 3 && page[113..120] == [0; 7]);
    assert_eq!(superblock.encode()[112..132], page[112..132], "all bits are kept");
    let geometry = superblock.geometry;
    for segment in [0, geometry.segments() / 2, geometry.segments() - 1] {
        let from = geometry.segment_offset(segment);
        let end = from + u64::from(geometry.segment_bytes);
        assert!(end <= geometry.physical_size_bytes);
        assert_eq!(geometry.locate(from), Some((segment, 0)));
        assert_eq!(geometry.locate(end - 1), Some((segment, geometry.segment_bytes - 1)));
    }
    if geometry.far.is_some() {
        let far = geometry.far_segments();
        let within = geometry.segment_offset(far.start)..geometry.segment_offset(far.end);
        let copies = [geometry.superblock_places()[2], geometry.checkpoint_offset(0, 2)];
        assert!(far.end <= geometry.segments() && copies.iter().all(|copy| within.contains(copy)));
        assert!(geometry.checkpoint_offset(1, 2) + geometry.checkpoint_area_bytes() <= within.end);
    }
    let end = geometry.checkpoint_offset(1, 1) + geometry.checkpoint_area_bytes();
    assert!(
        Geometry::superblock_offset(1) < geometry.checkpoint_offset(0, 0)
            && end <= geometry.segment_offset(0)
    );
}
