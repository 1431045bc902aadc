//! The superblock's page.

use crate::common::seal;
use layout::superblock::KNOWN_CODECS;
use layout::{DecodeError, Features, Geometry, PAGE_BYTES, Superblock};
use proptest::prelude::*;

fn sample() -> Superblock {
    Superblock {
        uuid: *b"0123456789abcdef",
        update: 3,
        geometry: Geometry::without_far(10 << 30, None).expect("ten GiB"),
        logical_capacity_bytes: 30 << 30,
        sector_bytes: 512,
        codec_policy: 2,
        codec_level: -5,
        created_unix_seconds: 1_700_000_000,
        endurance_bytes: 600_000_000_000_000,
        incarnation: 2,
        worn_bytes: 1 << 40,
        features: Features { compatible: Features::KEEP_ALLOCATED, ..Features::default() },
        codecs: KNOWN_CODECS,
    }
}

/// The sample with a field overwritten and the checksum made right.
fn with(at: usize, value: &[u8]) -> Result<Superblock, DecodeError> {
    let mut page = sample().encode();
    page[at..at + value.len()].copy_from_slice(value);
    seal::superblock(&mut page);
    Superblock::decode(&page)
}

proptest! {
    #[test]
    fn decodes_what_was_encoded(superblock in crate::common::superblock()) {
        prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(Superblock::decode(&bytes).is_err());
    }

    /// Fields at random under a right checksum: refused, or a drive whose sizes can be worked with.
    #[test]
    fn hostile_fields_are_refused_or_consistent(fields: [u8; 48], features: [u64; 2], narrow in 0..8_usize) {
        let mut page = sample().encode();
        // Some fields stay as they were: else the segment size is hardly ever a power of two.
        let kept = [0, 16, 24, 32, 40, 20, 28, 44][narrow];
        page[40 + kept..88].copy_from_slice(&fields[kept..]);
        page[72..80].fill(0);
        page[112..120].copy_from_slice(&features[0].to_le_bytes());
        page[120..128].copy_from_slice(&features[1].to_le_bytes());
        seal::superblock(&mut page);
        if let Ok(superblock) = Superblock::decode(&page) {
            let geometry = superblock.geometry;
            let last = geometry.segments() - 1;
            let end = geometry.segment_offset(last) + u64::from(geometry.segment_bytes);
            prop_assert!(end <= geometry.physical_size_bytes);
            prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let page = sample().encode();
    for bit in 0..PAGE_BYTES * 8 {
        let mut damaged = page;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn truncated_is_refused() {
    let page = sample().encode();
    for len in [0, 7, 8, 88, 4095] {
        assert_eq!(Superblock::decode(&page[..len]), Err(DecodeError::Truncated("superblock")));
    }
}

#[test]
fn bytes_behind_the_page_do_not_matter() {
    let mut bytes = sample().encode().to_vec();
    bytes.resize(9000, 0xff);
    assert_eq!(Superblock::decode(&bytes), Ok(sample()));
}

#[test]
fn newer_version_is_refused() {
    let error = with(8, &7_u32.to_le_bytes()).expect_err("version 7");
    assert_eq!(error, DecodeError::Version { what: "superblock", found: 7, known: 3 });
    assert_eq!(
        error.to_string(),
        "superblock: format version 7, expected 3: use the release that wrote it, or a newer one"
    );
}

/// Versions 1 and 2 were never released.
#[test]
fn older_version_is_refused() {
    for version in [0, 1, 2_u32] {
        let error = with(8, &version.to_le_bytes()).expect_err("an old version");
        assert_eq!(error, DecodeError::Version { what: "superblock", found: version, known: 3 });
        assert_eq!(
            error.to_string(),
            format!(
                "superblock: format version {version}, expected 3: it was never released; copy the data out with \
                 the program that wrote it, then create the drive anew"
            )
        );
    }
}

#[test]
fn counts_that_no_drive_comes_to_are_refused() {
    for at in [32, 96] {
        assert!(with(at, &(1_u64 << 60).to_le_bytes()).is_ok(), "byte {at}");
        for count in [(1 << 60) + 1, u64::MAX] {
            assert_eq!(
                with(at, &count.to_le_bytes()),
                Err(DecodeError::Field("superblock", "a count that no drive comes to"))
            );
        }
    }
}

#[test]
fn endurance_incarnation_and_wear_may_be_zero() {
    let found = with(88, &[0; 24]).expect("a drive that was never wiped");
    assert_eq!(found, Superblock { endurance_bytes: 0, incarnation: 0, worn_bytes: 0, ..sample() });
    assert_eq!(found.log_id(), found.uuid);
    assert_eq!(with(88, &7_u64.to_le_bytes()), Ok(Superblock { endurance_bytes: 7, ..sample() }));
}

#[test]
fn unknown_incompatible_features_are_refused() {
    for bits in (0..64).map(|bit| 1_u64 << bit).chain([u64::MAX]) {
        let error = with(72, &bits.to_le_bytes()).expect_err("an unknown feature");
        assert_eq!(error, DecodeError::Unsupported { what: "superblock", uses: "feature bits", bits });
    }
    assert_eq!(
        with(72, &6_u64.to_le_bytes()).expect_err("an unknown feature").to_string(),
        "superblock: unsupported feature bits 0x6: use the release that wrote it, or a newer one"
    );
}

/// Only the bits that are not known are named.
#[test]
fn unknown_codecs_are_refused() {
    for bit in 5..32 {
        let error = with(128, &(1_u32 << bit | 0b101).to_le_bytes()).expect_err("an unknown codec");
        let bits = 1 << bit;
        assert_eq!(error, DecodeError::Unsupported { what: "superblock", uses: "codec bits", bits });
    }
    for codecs in 0..=0b1_1111_u32 {
        assert_eq!(with(128, &codecs.to_le_bytes()), Ok(Superblock { codecs, ..sample() }));
    }
}

#[test]
fn unknown_read_only_compatible_features_forbid_writing() {
    assert!(sample().features.allow_writing());
    for bit in 2..64 {
        let bits = 1_u64 << bit;
        let found = with(112, &bits.to_le_bytes()).expect("a drive that can be read");
        let features = Features { read_only_compatible: bits, ..sample().features };
        assert_eq!(found, Superblock { features, ..sample() });
        assert!(!found.features.allow_writing());
        assert_eq!(found.encode()[112..120], bits.to_le_bytes());
    }
}

/// As when the capacity is changed by a release that does not know a feature: the drive goes on having it.
#[test]
fn unknown_compatible_features_are_ignored_and_kept() {
    for bit in 0..64 {
        let bits = 1_u64 << bit | Features::KEEP_ALLOCATED;
        let found = with(120, &bits.to_le_bytes()).expect("a drive that can be used");
        assert_eq!(found.features, Features { compatible: bits, ..Features::default() });
        assert!(found.features.allow_writing());
        let changed = Superblock { update: 4, logical_capacity_bytes: 40 << 30, ..found };
        assert_eq!(Superblock::decode(&changed.encode()).map(|found| found.features.compatible), Ok(bits));
    }
}

/// Which kind of feature a bit is depends on its place alone.
#[test]
fn features_are_where_the_format_has_them() {
    let features = Features {
        incompatible: 0x0706_0504_0302_0100,
        read_only_compatible: 0x1716_1514_1312_1110,
        compatible: 0x2726_2524_2322_2120,
    };
    let page = Superblock { features, codecs: 0x3332_3130, ..sample() }.encode();
    assert_eq!(page[72..80], [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(page[112..120], [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17]);
    assert_eq!(page[120..132], [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x30, 0x31, 0x32, 0x33]);
    assert_eq!(page[132..], [0; PAGE_BYTES - 132]);
}

#[test]
fn far_copies_have_a_feature_bit_and_a_place() {
    let geometry = Geometry::new(10 << 30, None).expect("ten GiB");
    let far = Superblock {
        geometry,
        features: Features { read_only_compatible: Features::FAR_COPIES, ..sample().features },
        ..sample()
    };
    let page = far.encode();
    assert_eq!(page[112..120], 1_u64.to_le_bytes());
    assert_eq!(page[136..144], (8_u64 << 30).to_le_bytes());
    assert_eq!(page[144..], [0; PAGE_BYTES - 144]);
    assert_eq!(Superblock::decode(&page), Ok(far.clone()));
    assert!(far.features.allow_writing());
    // The bit follows the sizes, whoever changes the features.
    let changed = Superblock { features: Features::default(), ..far.clone() };
    assert_eq!(changed.encode()[112], 1);
    // Without the bit, the field means nothing.
    assert_eq!(with(136, &(8_u64 << 30).to_le_bytes()), Ok(sample()));
}

/// Whoever writes far copies writes within the segments that are set aside for them.
#[test]
fn impossible_places_of_far_copies_are_refused() {
    let at = |place: u64| {
        let mut page = sample().encode();
        page[112] = 1;
        page[136..144].copy_from_slice(&place.to_le_bytes());
        seal::superblock(&mut page);
        Superblock::decode(&page)
    };
    for place in [8_u64 << 20, 16 << 20, 1 << 30, 8 << 30] {
        assert_eq!(at(place).map(|found| found.geometry.far), Ok(Some(place)));
    }
    let powers = (0..64).map(|power| 1 << power).filter(|place| !(8 << 20..=8 << 30).contains(place));
    for place in powers.chain([0, 3 << 20, 12 << 20, (8 << 30) + 1, (8 << 30) - 1, 10 << 30, u64::MAX]) {
        assert!(at(place).is_err(), "{place:#x}");
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for size in [0, 1, 1 << 20, (1 << 53) + 1, u64::MAX] {
        assert!(with(40, &size.to_le_bytes()).is_err(), "physical size {size}");
    }
    for capacity in [0, 1, 4095, 4097, (1 << 48) + 4096, u64::MAX, u64::MAX - 4095] {
        assert!(with(48, &capacity.to_le_bytes()).is_err(), "capacity {capacity}");
    }
    for segment in [0_u32, 1, 4096, 1 << 18, 3 << 20, 1 << 29, u32::MAX] {
        assert!(with(56, &segment.to_le_bytes()).is_err(), "segment of {segment}");
    }
    for most in [0_u32, 1, 2558, (1 << 26) + 1, u32::MAX] {
        assert!(with(60, &most.to_le_bytes()).is_err(), "at most {most} segments");
    }
    for sector in [0_u32, 1, 511, 1024, 8192, u32::MAX] {
        assert!(with(64, &sector.to_le_bytes()).is_err(), "sector of {sector}");
    }
}

#[test]
fn each_incarnation_has_a_log_id_of_its_own() {
    let of = |incarnation| Superblock { incarnation, ..sample() }.log_id();
    let ids: std::collections::HashSet<[u8; 16]> = (0..1000).map(of).collect();
    assert_eq!(ids.len(), 1000);
    // As docs/reference/format.md has it: m(1) = 0x5692161d100b05e5.
    let expected: Vec<u8> =
        (0..16).map(|i| sample().uuid[i] ^ (0x5692_161d_100b_05e5_u128 >> (8 * i)) as u8).collect();
    assert_eq!(of(1)[..], expected[..]);
}
