//! Places on the backing.

use layout::geometry::{MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, MIN_SEGMENTS};
use layout::{Entry, Geometry, PAGE_BYTES};
use proptest::prelude::*;

/// First byte and first byte behind, of everything that has a fixed place.
fn areas(geometry: &Geometry) -> Vec<(u64, u64)> {
    let page = PAGE_BYTES as u64;
    let mut areas = Vec::new();
    for copy in 0..2 {
        let at = Geometry::superblock_offset(copy);
        areas.push((at, at + page));
        for slot in 0..2 {
            let at = geometry.checkpoint_offset(slot, copy);
            areas.push((at, at + geometry.checkpoint_area_bytes()));
        }
    }
    let last = geometry.segment_offset(geometry.segments() - 1) + u64::from(geometry.segment_bytes);
    areas.push((geometry.segment_offset(0), last));
    areas
}

/// The same of the far copies.
fn far_areas(geometry: &Geometry) -> Vec<(u64, u64)> {
    let Some(far) = geometry.far else { return Vec::new() };
    let at = Geometry::far_superblock_offset(far);
    let slots = [0, 1].map(|slot| geometry.checkpoint_offset(slot, 2));
    let slots = slots.map(|at| (at, at + geometry.checkpoint_area_bytes()));
    [(far, at), (at, at + PAGE_BYTES as u64)].into_iter().chain(slots).collect()
}

proptest! {
    #[test]
    fn far_copies_lie_in_segments_that_are_set_aside(geometry in crate::common::geometry()) {
        let areas = far_areas(&geometry);
        for pair in areas.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
        }
        for (from, end) in areas {
            let segments = [from, end - 1].map(|at| geometry.locate(at).map(|(segment, _)| segment));
            prop_assert!(segments.iter().all(|segment| segment.is_some_and(|segment| geometry.is_far(segment))));
        }
        let taken = geometry.far_segments().len() as u32;
        prop_assert!(taken * 128 <= geometry.segments(), "{taken} of {}", geometry.segments());
        let places = geometry.superblock_places();
        prop_assert_eq!(places.len(), geometry.copies());
        if let Some(far) = geometry.far {
            // Whatever the backing is by then.
            let larger = geometry.physical_size_bytes * 7;
            for backing in [geometry.physical_size_bytes, larger] {
                prop_assert!(Geometry::far_candidates(backing).any(|place| place == far));
            }
            prop_assert_eq!(places[2], Geometry::far_superblock_offset(far));
        }
    }

    #[test]
    fn areas_do_not_overlap_and_fit(geometry in crate::common::geometry()) {
        let mut areas = areas(&geometry);
        areas.sort_unstable();
        for pair in areas.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
        }
        prop_assert!(areas.iter().all(|(from, _)| from % PAGE_BYTES as u64 == 0));
        prop_assert!(areas.last().is_some_and(|(_, end)| *end <= geometry.physical_size_bytes));
    }

    #[test]
    fn locate_undoes_segment_offset(
        geometry in crate::common::geometry(),
        segment in any::<prop::sample::Index>(),
        offset in any::<prop::sample::Index>(),
    ) {
        let segment = segment.index(geometry.segments() as usize) as u32;
        let offset = offset.index(geometry.segment_bytes as usize) as u32;
        let position = geometry.segment_offset(segment) + u64::from(offset);
        prop_assert_eq!(geometry.locate(position), Some((segment, offset)));
    }

    #[test]
    fn locate_knows_nothing_outside_the_segments(geometry in crate::common::geometry(), far: u64) {
        let first = geometry.segment_offset(0);
        let end = geometry.segment_offset(geometry.segments());
        for position in [0, first - 1, end, u64::MAX, far % first, far.max(end)] {
            prop_assert_eq!(geometry.locate(position), None);
        }
        prop_assert_eq!(geometry.locate(first), Some((0, 0)));
        prop_assert_eq!(geometry.locate(end - 1), Some((geometry.segments() - 1, geometry.segment_bytes - 1)));
    }

    /// Growing moves nothing, and there is room for four times the size a drive began with.
    #[test]
    fn drive_can_grow_fourfold(geometry in crate::common::geometry(), times in 1..=4_u64) {
        let grown = Geometry { physical_size_bytes: geometry.physical_size_bytes * times, ..geometry };
        prop_assert_eq!(grown.validate(), Ok(()));
        prop_assert!(grown.segments() >= geometry.segments());
        prop_assert_eq!(grown.segments_offset(), geometry.segments_offset());
        prop_assert_eq!(grown.segment_offset(7), geometry.segment_offset(7));
    }

    /// The engine indexes its segments by what this lets through.
    #[test]
    fn holds_means_within_one_segment(geometry in crate::common::geometry(), bits: u64,
        near in any::<prop::sample::Index>()) {
        let position = geometry.segment_offset(near.index(geometry.segments() as usize + 1) as u32);
        let close = Entry::record(position - position.min(bits % 70_000 / 16 * 16), (bits % 4095 + 1) as usize * 16);
        for entry in [Entry(bits), Entry(1 << 62 | bits >> 2), close] {
            let from = geometry.locate(entry.position_bytes()).map(|(segment, _)| segment);
            let to = geometry.locate(entry.position_bytes() + (entry.len_bytes() as u64).max(1) - 1);
            let within = from.is_some_and(|segment| !geometry.is_far(segment))
                && from == to.map(|(segment, _)| segment);
            prop_assert_eq!(geometry.holds(entry), entry.is_valid() && entry.is_record() && within, "{:?}", entry);
        }
    }

    #[test]
    fn valid_means_within_limits(size: u64, segment: u32, most: u32, narrow in 0..64_u32, power in 0..40_u32) {
        let segment_bytes = if power < 32 { 1 << power } else { segment };
        let max_segments = most >> (narrow / 2);
        let far = (narrow % 2 == 0).then(|| 1 << power);
        let parity = layout::ParityForm::ALL[(most % 4) as usize];
        let geometry = Geometry { physical_size_bytes: size >> narrow, segment_bytes, max_segments, far, parity };
        if geometry.validate().is_ok() {
            prop_assert!(geometry.segments() >= MIN_SEGMENTS && geometry.segments() <= geometry.max_segments);
            prop_assert!((MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&geometry.segment_bytes));
            // Every byte of every segment has a place in a map entry.
            let end = geometry.segment_offset(geometry.segments());
            let last = Entry::record(end - 16, 16);
            prop_assert!(last.is_valid());
            prop_assert_eq!(geometry.far.is_some(), !geometry.far_segments().is_empty());
            prop_assert!(geometry.far_segments().end <= geometry.segments());
            prop_assert_eq!(last.position_bytes(), end - 16);
        }
    }

    #[test]
    fn new_never_panics(size: u64, shift in 0..64_u32, segment: Option<u32>) {
        if let Ok(geometry) = Geometry::new(size >> shift, segment) {
            prop_assert_eq!(geometry.validate(), Ok(()));
        }
    }
}

#[test]
fn segments_of_no_bytes_are_refused() {
    assert!(Geometry::new(10 << 30, Some(0)).is_err());
    let geometry = Geometry {
        physical_size_bytes: 10 << 30,
        segment_bytes: 0,
        max_segments: 100,
        far: None,
        parity: layout::ParityForm::None,
    };
    assert!(geometry.validate().is_err());
}

/// The limits of every default segment size, on both sides.
#[test]
fn default_segment_sizes() {
    let of = |size: u64| Geometry::new(size, None).map(|g| g.segment_bytes >> 20);
    assert!(of((24 << 20) + (1 << 20) - 1).is_err());
    assert_eq!(of(25 << 20), Ok(1));
    assert_eq!(of((1 << 30) - 1), Ok(1));
    assert_eq!(of(1 << 30), Ok(4));
    assert_eq!(of((256 << 30) - 1), Ok(4));
    assert_eq!(of(256 << 30), Ok(16));
    assert_eq!(of((4096 << 30) - 1), Ok(16));
    assert_eq!(of(4096 << 30), Ok(64));
}

/// As far from the start as powers of two allow, at the cost of less than one percent.
#[test]
fn places_of_far_copies() {
    let of = |size: u64, segment| {
        let geometry = Geometry::new(size, segment).expect("a drive");
        geometry.far.map(|far| (far, geometry.far_segments()))
    };
    assert_eq!(of(128 << 20, None), None, "one of 127 segments");
    assert_eq!(of(130 << 20, None), Some((128 << 20, 127..128)));
    assert_eq!(of(1 << 30, None), Some((512 << 20, 127..128)));
    assert_eq!(of(10 << 30, None), Some((8 << 30, 2047..2048)));
    assert_eq!(of(1 << 40, None), Some((1 << 39, 32_766..32_768)));
    assert_eq!(of(10 << 30, Some(256 << 20)), None, "one of 39 segments");
    let small = |size| Geometry::without_far(size, None).and_then(Geometry::with_far).map(|found| found.far);
    assert_eq!(small(25 << 20), Ok(None), "24 segments are needed");
    assert_eq!(small(26 << 20), Ok(Some(16 << 20)));
    let candidates: Vec<u64> = Geometry::far_candidates(64 << 20).collect();
    assert_eq!(candidates, [32 << 20, 16 << 20, 8 << 20]);
    assert_eq!(Geometry::far_candidates(u64::MAX).count(), 40);
    assert_eq!(Geometry::far_candidates(0).count(), 0);
}

/// The example of `docs/reference/format.md`.
#[test]
fn ten_gib() {
    let geometry = Geometry::new(10 << 30, None).expect("ten GiB");
    assert_eq!((geometry.segment_bytes, geometry.max_segments, geometry.segments()), (4 << 20, 10_240, 2559));
    assert_eq!(geometry.checkpoint_area_bytes(), 253_952);
    let offsets: Vec<u64> =
        [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(slot, copy)| geometry.checkpoint_offset(slot, copy)).to_vec();
    assert_eq!(offsets, [131_072, 385_024, 638_976, 892_928]);
    assert_eq!(geometry.segments_offset(), 2_097_152);
    assert_eq!(geometry.segment_offset(2558), 10_731_126_784);
    assert_eq!(geometry.segment_offset(2559), 10_735_321_088);
    assert_eq!(geometry.locate(123_456_789), Some((28, 3_919_125)));
}
