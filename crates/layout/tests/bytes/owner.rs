//! The owner pages.

use crate::common::seal;
use layout::owner::{HOST_BYTES_MAX, OWNER_BYTES, OWNER_COPIES, Process, Role};
use layout::superblock::SUPERBLOCK_COPIES;
use layout::{DecodeError, Geometry, OwnerPage, PAGE_BYTES};
use proptest::prelude::*;

fn sample() -> OwnerPage {
    OwnerPage {
        role: Role::Answer,
        in_force: true,
        uuid: *b"0123456789abcdef",
        run: *b"run of the owner",
        answered: *b"of the contender",
        sequence: 7,
        written_unix_seconds: 1_800_000_000,
        process: Process {
            machine_id: *b"machine id bytes",
            boot_id: *b"boot id of it 16",
            pid_namespace: 4_026_531_836,
            pid: 4711,
            started_ticks: 123_456,
            backing: [0x801, 131_073],
            host: "store-7".into(),
        },
    }
}

/// The sample with a field overwritten and the checksum made right.
fn with(at: usize, value: &[u8]) -> Result<OwnerPage, DecodeError> {
    let mut page = sample().encode();
    page[at..at + value.len()].copy_from_slice(value);
    seal::superblock(&mut page);
    OwnerPage::decode(&page)
}

proptest! {
    #[test]
    fn decodes_what_was_encoded(page in crate::common::owner_page()) {
        prop_assert_eq!(OwnerPage::decode(&page.encode()), Ok(page));
    }

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(OwnerPage::decode(&bytes).is_err());
    }
}

#[test]
fn every_bit_is_covered() {
    let page = sample().encode();
    for bit in 0..PAGE_BYTES * 8 {
        let mut damaged = page;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(OwnerPage::decode(&damaged).is_err(), "bit {bit}");
    }
}

/// A power cut leaves each 512 bytes old or new: with all fields in the first ones, the page is old or new.
#[test]
fn all_fields_are_in_the_first_512_bytes() {
    let host = "h".repeat(HOST_BYTES_MAX);
    let largest = OwnerPage { process: Process { host, ..sample().process }, ..sample() };
    assert!(largest.encode()[512..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_not_defined_is_refused() {
    for role in [0, 4, 255] {
        assert!(matches!(with(8, &[role]), Err(DecodeError::Field(..))), "role {role}");
    }
    assert!(matches!(with(9, &[2]), Err(DecodeError::Field(..))));
    assert!(matches!(with(64, &u64::MAX.to_le_bytes()), Err(DecodeError::Field(..))));
    assert!(matches!(with(132, &65_u32.to_le_bytes()), Err(DecodeError::Field(..))));
    // Zeros of today may mean something tomorrow.
    assert_eq!(with(300, &[1]), Ok(sample()));
}

#[test]
fn a_host_name_cannot_command_a_terminal() {
    let host = with(152, b"\x1b[2J\xffx").expect("a page").process.host;
    assert_eq!(host, "?[2J?x7");
    let long = Process { host: "\u{fc}".repeat(40), ..sample().process };
    let page = OwnerPage { process: long, ..sample() };
    assert_eq!(OwnerPage::decode(&page.encode()).expect("a page").process.host, "?".repeat(HOST_BYTES_MAX));
}

#[test]
fn they_lie_between_the_copies_of_the_superblock_and_the_checkpoints() {
    let geometry = Geometry::new(25 << 20, None).expect("the smallest drive");
    for copy in 0..OWNER_COPIES {
        let (from, end) = (Geometry::owner_offset(copy), Geometry::owner_offset(copy) + OWNER_BYTES as u64);
        assert_eq!(Geometry::owner_page_offset(copy, Role::Mark), from);
        assert_eq!(Geometry::owner_page_offset(copy, Role::Answer), end - PAGE_BYTES as u64);
        assert!(from >= Geometry::superblock_offset(copy) + PAGE_BYTES as u64);
        let next = match copy + 1 < SUPERBLOCK_COPIES {
            true => Geometry::superblock_offset(copy + 1),
            false => geometry.checkpoint_offset(0, 0),
        };
        assert!(end <= next);
    }
}
