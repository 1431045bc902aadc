//! Sizes: refused, smallest and large ones.

use crate::common;

use std::sync::Arc;

use codec::testdata::{fio_like, random};
use common::{assert_sound, create_options, erased, new_drive, open, run, spawner};
use device::{Extent, ExtentKind};
use drive::{CreateOptions, Drive, Error, OpenOptions, Zeroes};
use media::MemoryMedia;

/// 256 TiB, less the range that the drive reserves for itself.
const CAPACITY_MAX: u64 = layout::geometry::OWN_FIRST_BLOCK * 4096;
const MIB: u64 = 1 << 20;

fn create(options: &CreateOptions) -> Result<Arc<MemoryMedia>, Error> {
    let media = Arc::new(MemoryMedia::new(options.physical_size_bytes.min(1 << 40)));
    run(Drive::create(&*media, options)).map(|()| media)
}

fn assert_refused(options: &CreateOptions) {
    let refused = create(options).err();
    assert!(matches!(refused, Some(Error::Invalid(_))), "{refused:?}");
}

#[test]
fn a_backing_too_small_is_refused() {
    assert_refused(&create_options(24 * MIB, 64 * MIB));
}

#[test]
fn the_smallest_backing_works() {
    let media = create(&create_options(25 * MIB, 64 * MIB)).expect("create");
    let drive = open(&media, 1);
    let data = random(1, 4 << 20);
    run(drive.write(0, &data, true)).expect("write");
    assert_sound(&drive);
}

#[test]
fn more_than_the_backing_has_is_refused() {
    let media = MemoryMedia::new(64 * MIB);
    let refused = run(Drive::create(&media, &create_options(65 * MIB, 64 * MIB)));
    assert!(matches!(refused, Err(Error::Invalid(_))));
    assert_eq!(media.resident_bytes(), 0, "nothing was written");
}

#[test]
fn no_capacity_is_refused() {
    assert_refused(&create_options(64 * MIB, 0));
}

#[test]
fn a_capacity_that_is_not_whole_blocks_is_refused() {
    assert_refused(&create_options(64 * MIB, 64 * MIB + 512));
}

#[test]
fn a_capacity_over_256_tib_is_refused() {
    assert_refused(&create_options(64 * MIB, CAPACITY_MAX + 4096));
}

#[test]
fn a_capacity_of_256_tib_works_to_its_last_block() {
    let media = create(&create_options(64 * MIB, CAPACITY_MAX)).expect("create");
    let drive = open(&media, 1);
    let data = random(1, 8192);
    run(drive.write(CAPACITY_MAX - 8192, &data, true)).expect("write");
    assert!(matches!(run(drive.write(CAPACITY_MAX - 4096, &data, true)), Err(Error::Invalid(_))));
    drop(drive);
    let mut back = vec![0; 8192];
    run(open(&media, 2).read(CAPACITY_MAX - 8192, &mut back)).expect("read");
    assert!(back == data);
}

#[test]
fn other_sectors_than_512_and_4096_are_refused() {
    for sector_bytes in [0, 1, 256, 1024, 8192] {
        assert_refused(&CreateOptions { sector_bytes, ..create_options(64 * MIB, 64 * MIB) });
    }
}

#[test]
fn impossible_segments_are_refused() {
    for segment_bytes in [0, 4096, 256 << 10, 3 << 20, 1 << 29] {
        assert_refused(&CreateOptions {
            segment_bytes: Some(segment_bytes),
            ..create_options(64 << 30, 64 * MIB)
        });
    }
}

#[test]
fn segments_of_all_sizes_work() {
    for shift in 19..24 {
        let segment_bytes = 1u32 << shift;
        let physical = 26 * u64::from(segment_bytes) + 8 * MIB;
        let options =
            CreateOptions { segment_bytes: Some(segment_bytes), ..create_options(physical, 512 * MIB) };
        let media = create(&options).expect("create");
        let drive = open(&media, 1);
        assert_eq!(drive.status().segment_bytes, segment_bytes);
        for i in 0..300u64 {
            run(drive.write(i * 37 % 128 * 65536, &fio_like(i, 65536, 50), false)).expect("write");
            while run(drive.maintain()).expect("maintain") {}
        }
        run(drive.close()).expect("close");
        assert_sound(&open(&media, 2));
    }
}

#[test]
fn sector_sizes_restrict_no_request() {
    for sector_bytes in [512, 4096] {
        let options = CreateOptions { sector_bytes, ..create_options(64 * MIB, 64 * MIB) };
        let drive = open(&create(&options).expect("create"), 1);
        run(drive.write(4096, &[1; 8192], false)).expect("write");
        run(drive.write(4099, b"a few bytes", false)).expect("write");
        run(drive.write_zeroes(4100, 3, Zeroes { unmap: true, fua: false })).expect("zeroes");
        run(drive.trim(8191, 2, true)).expect("trim");
        let mut expected = vec![1; 8192];
        expected[3..14].copy_from_slice(b"a\0\0\0w bytes");
        expected[4095..4097].fill(0);
        let mut back = vec![0; 8185];
        run(drive.read(4097, &mut back)).expect("read");
        assert!(back == expected[1..8186]);
        let runs = run(drive.extents(8191, 4100, 9)).expect("extents");
        assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), 4100);
        assert_sound(&drive);
    }
}

#[test]
fn requests_beyond_the_capacity_are_refused() {
    let (_, drive) = new_drive(64 * MIB, 64 * MIB);
    assert!(matches!(run(drive.write(64 * MIB, &[1; 512], false)), Err(Error::Invalid(_))));
    assert!(matches!(run(drive.read(64 * MIB - 512, &mut [0; 1024])), Err(Error::Invalid(_))));
    assert!(matches!(run(drive.trim(u64::MAX - 511, 512, false)), Err(Error::Invalid(_))));
    assert!(matches!(run(drive.extents(64 * MIB, 512, 1)), Err(Error::Invalid(_))));
}

#[test]
fn empty_requests_do_nothing() {
    let (_, drive) = new_drive(64 * MIB, 64 * MIB);
    run(drive.write(0, &[], true)).expect("write");
    run(drive.read(64 * MIB, &mut [])).expect("read");
    run(drive.trim(0, 0, false)).expect("trim");
    run(drive.write_zeroes(0, 0, Zeroes::default())).expect("zeroes");
    assert_eq!(run(drive.extents(0, 0, 5)).expect("extents"), []);
    assert_eq!(drive.status().logical_used_bytes, 0);
}

#[test]
fn large_writes_are_read_back() {
    for len in [2usize << 20, 32 << 20] {
        let (media, drive) = new_drive(128 * MIB, 128 * MIB);
        let data = random(1, len);
        run(drive.write(512, &data, true)).expect("write");
        for drive in [drive, open(&media, 2)] {
            let mut back = vec![0; len];
            run(drive.read(512, &mut back)).expect("read");
            assert!(back == data);
            assert_sound(&drive);
        }
    }
}

#[test]
fn a_write_larger_than_what_is_left_is_refused_whole() {
    let (_, drive) = new_drive(32 * MIB, 128 * MIB);
    let data = random(1, 32 << 20);
    assert_eq!(run(drive.write(0, &data, false)), Err(Error::NoSpace));
    assert_eq!(drive.status().logical_used_bytes, 0);
    run(drive.write(0, &data[..1 << 20], false)).expect("a smaller one");
}

#[test]
fn extents_tell_data_zeros_and_holes() {
    let (media, drive) = new_drive(64 * MIB, 64 * MIB);
    run(drive.write(8192, &random(1, 8192), false)).expect("write");
    run(drive.write_zeroes(16384, 4096, Zeroes::default())).expect("zeroes");
    run(drive.write(20480, &[7; 4096], false)).expect("a fill");
    run(drive.write(40960, &random(1, 4096), false)).expect("write");
    run(drive.trim(40960, 4096, false)).expect("trim");
    let expected = [
        Extent { len: 8192, kind: ExtentKind::Hole },
        Extent { len: 8192, kind: ExtentKind::Data },
        Extent { len: 4096, kind: ExtentKind::Zero },
        Extent { len: 4096, kind: ExtentKind::Data },
        Extent { len: 64 * MIB - 24576, kind: ExtentKind::Hole },
    ];
    run(drive.flush()).expect("flush");
    for drive in [drive, open(&media, 2)] {
        assert_eq!(run(drive.extents(0, 64 * MIB, 100)).expect("extents"), expected);
        assert_eq!(run(drive.extents(0, 64 * MIB, 2)).expect("extents"), expected[..2]);
        let from_inside = run(drive.extents(8704, 8704, 100)).expect("extents");
        let inside =
            [Extent { len: 7680, kind: ExtentKind::Data }, Extent { len: 1024, kind: ExtentKind::Zero }];
        assert_eq!(from_inside, inside);
    }
}

#[test]
fn trimming_a_tebibyte_is_quick_and_leaves_nothing() {
    let (media, drive) = new_drive(64 * MIB, 1 << 40);
    for i in 0..500u64 {
        run(drive.write(i * ((1 << 31) - 4096), &random(i, 4096), false)).expect("write");
    }
    run(drive.close()).expect("close");
    let drive = open(&media, 2);
    let started = std::time::Instant::now();
    run(drive.trim(0, 1 << 40, true)).expect("trim");
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    let hole = Extent { len: 1 << 40, kind: ExtentKind::Hole };
    assert_eq!(run(drive.extents(0, 1 << 40, 10)).expect("extents"), [hole]);
    assert_sound(&drive);
    // Blocks trimmed in leaves that were not in memory are accounted for by cleaning.
    for _ in 0..3 {
        while run(drive.clean()).expect("clean") {}
        run(drive.checkpoint()).expect("checkpoint");
    }
    assert_eq!(drive.status().logical_used_bytes, 0);
    run(drive.close()).expect("close");
    let drive = open(&media, 3);
    assert_eq!(drive.status().physical_used_bytes, 0);
    assert_eq!(run(drive.extents(0, 1 << 40, 10)).expect("extents"), [hole]);
}

#[test]
fn the_map_keeps_within_its_budget_and_is_right_after_reopening() {
    const BUDGET: u64 = 1 << 20;
    const MOST: u64 = BUDGET + BUDGET / 2;
    let media = create(&create_options(512 * MIB, 1 << 40)).expect("create");
    let open = |entropy| {
        let options = OpenOptions { map_budget_bytes: BUDGET, ..OpenOptions::new(entropy, spawner()) };
        run(Drive::open(erased(media.clone()), options)).expect("open")
    };
    let drive = open(1);
    let block_of = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 36;
    let most = (0..20_000)
        .map(|i| {
            run(drive.write(block_of(i) * 4096, &fio_like(i, 4096, 75), false)).expect("write");
            while run(drive.maintain()).expect("maintain") {}
            drive.status().map_memory_bytes
        })
        .max();
    assert!(most.is_some_and(|most| most <= MOST), "{most:?}");
    run(drive.flush()).expect("flush");
    drop(drive);
    let drive = open(2);
    for i in (0..20_000).step_by(37) {
        let mut back = vec![0; 4096];
        run(drive.read(block_of(i) * 4096, &mut back)).expect("read");
        assert!(back == fio_like(i, 4096, 75), "write {i}");
    }
    assert!(drive.status().map_memory_bytes <= BUDGET + BUDGET / 2);
}
