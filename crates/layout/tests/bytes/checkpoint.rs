//! Checkpoints: header page and table.

use crate::common::{encoded, seal};
use layout::{
    Checkpoint, DecodeError, Entry, Geometry, HeadPosition, NextSegment, PAGE_BYTES, SegmentRow, SegmentUse,
};
use proptest::prelude::*;

/// Offset of the first row of the table.
const ROWS_AT: usize = PAGE_BYTES + 16;

/// A checkpoint of a drive of 100 MiB, whose every part is in place.
fn sample() -> (Checkpoint, Geometry) {
    let geometry = Geometry::new(100 << 20, None).expect("100 MiB");
    let head = |segment: u32| HeadPosition {
        current: NextSegment { segment, generation: 40 + segment },
        offset: 8192,
        next: NextSegment { segment: segment + 1, generation: 41 + segment },
    };
    let row = SegmentRow {
        live_units: 65_536,
        generation: 9,
        last_sequence: 77,
        repackable_units: 65_536,
        usage: SegmentUse::Used,
        ..SegmentRow::BLANK
    };
    let checkpoint = Checkpoint {
        uuid: [7; 16],
        number: 12,
        sequence: 400,
        root: Entry::record(geometry.segment_offset(3), 4112),
        clean: false,
        may_hold_more: false,
        written_through: true,
        memory_boot: [3; 16],
        overlay_records: 2,
        live_blocks: 1000,
        mix: Default::default(),
        fill_blocks: 30,
        generations: 17,
        entropy: 0x1234_5678_9abc_def0,
        earlier_runs: std::array::from_fn(|i| 63 - i as u64),
        durable: 402,
        superblock_update: 9,
        heads: [head(0), head(2), HeadPosition::NONE],
        counters: layout::Counters { host_written_bytes: 1, host_trimmed_bytes: 15, ..Default::default() },
        scrub: layout::ScrubMark { next_block: 16, ..Default::default() },
        rows: vec![row; geometry.segments() as usize].into(),
    };
    (checkpoint, geometry)
}

/// The sample with a field overwritten and the checksums made right.
fn with(at: usize, value: &[u8]) -> Result<Checkpoint, DecodeError> {
    let mut bytes = encoded(&sample().0);
    bytes[at..at + value.len()].copy_from_slice(value);
    seal::checkpoint(&mut bytes);
    Checkpoint::decode(&bytes)
}

#[test]
fn a_note_that_it_is_durable_changes_the_first_sector_alone() {
    let (checkpoint, _) = sample();
    let before = encoded(&checkpoint);
    let mut bytes = before.clone();
    assert!(!Checkpoint::decode_summary(&bytes).expect("whole").is_durable);
    Checkpoint::note_durable(&mut bytes[..PAGE_BYTES]);
    assert!(Checkpoint::decode_summary(&bytes).expect("whole").is_durable);
    assert_eq!(Checkpoint::decode(&bytes), Ok(checkpoint));
    assert!(bytes[512..] == before[512..]);
}

proptest! {
    #[test]
    fn decodes_what_was_encoded(checkpoint in crate::common::checkpoint(), behind in 0..20_usize) {
        let mut bytes = encoded(&checkpoint);
        prop_assert!(bytes.len().is_multiple_of(PAGE_BYTES));
        bytes.resize(bytes.len() + behind, 0xee);
        let summary = Checkpoint::decode_summary(&bytes).expect("whole");
        prop_assert_eq!(summary.segments, checkpoint.rows.len() as u32);
        prop_assert_eq!((summary.uuid, summary.number), (checkpoint.uuid, checkpoint.number));
        prop_assert_eq!(summary.superblock_update, checkpoint.superblock_update);
        prop_assert_eq!(Checkpoint::decode(&bytes), Ok(checkpoint));
    }

    #[test]
    fn truncated_is_refused(checkpoint in crate::common::checkpoint(), len in any::<prop::sample::Index>()) {
        let bytes = encoded(&checkpoint);
        let len = len.index(bytes.len());
        prop_assert_eq!(Checkpoint::decode(&bytes[..len]), Err(DecodeError::Truncated("checkpoint")));
    }

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..10_000)) {
        prop_assert!(Checkpoint::decode(&bytes).is_err());
        prop_assert!(Checkpoint::decode_summary(&bytes).is_err());
    }

    /// Fields at random under right checksums: refused, or what it encodes to again.
    #[test]
    fn hostile_fields_are_refused_or_consistent(
        damage in prop::collection::vec((32..400_usize, any::<u8>()), 1..20),
        rows in prop::collection::vec((0..PAGE_BYTES, any::<u8>()), 0..20),
        count in prop::option::of(any::<u32>()),
    ) {
        let (sample, geometry) = sample();
        let mut bytes = encoded(&sample);
        for (at, byte) in damage.into_iter().chain(rows.into_iter().map(|(at, byte)| (PAGE_BYTES + at, byte))) {
            if !(56..60).contains(&at) {
                bytes[at] = byte;
            }
        }
        if let Some(count) = count {
            bytes[56..60].copy_from_slice(&(count >> (count % 32)).to_le_bytes());
        }
        seal::checkpoint(&mut bytes);
        if let Ok(checkpoint) = Checkpoint::decode(&bytes) {
            prop_assert_eq!(Checkpoint::decode(&encoded(&checkpoint)), Ok(checkpoint.clone()));
            if checkpoint.validate(&geometry).is_ok() {
                prop_assert_eq!(checkpoint.rows.len(), geometry.segments() as usize);
                prop_assert!(checkpoint.root.is_unmapped() || geometry.holds(checkpoint.root));
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let (checkpoint, _) = sample();
    let bytes = encoded(&checkpoint);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Checkpoint::decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn more_segments_than_bytes_are_refused() {
    for count in [171_u32, 1 << 26, 1 << 28, u32::MAX] {
        let truncated = Err(DecodeError::Truncated("checkpoint"));
        assert_eq!(with(56, &count.to_le_bytes()), truncated, "{count} segments");
    }
}

#[test]
fn root_that_is_no_record_is_refused() {
    for root in [Entry::fill(0), Entry::fill(7), Entry(1), Entry(1 << 62), Entry(u64::MAX)] {
        assert!(with(48, &root.0.to_le_bytes()).is_err(), "{root:?}");
    }
    assert_eq!(with(48, &[0; 8]).map(|c| c.root), Ok(Entry::UNMAPPED));
}

/// Numbers are counted on from here. The last place is that of the second row.
#[test]
fn sequence_beyond_62_bits_is_refused() {
    for at in [40, 104, ROWS_AT + 24 + 8] {
        assert!(with(at, &(1_u64 << 62).to_le_bytes()).is_err());
        assert!(with(at, &u64::MAX.to_le_bytes()).is_err());
    }
}

#[test]
fn unknown_segment_use_is_refused() {
    for unknown in 4..=255 {
        assert!(with(ROWS_AT + 24 + 20, &[unknown]).is_err(), "use {unknown}");
    }
}

#[test]
fn validate_takes_what_a_drive_writes() {
    let (checkpoint, geometry) = sample();
    assert_eq!(checkpoint.validate(&geometry), Ok(()));
    let full = HeadPosition { offset: geometry.segment_bytes, ..checkpoint.heads[0] };
    assert_eq!(Checkpoint { heads: [full; 3], ..checkpoint.clone() }.validate(&geometry), Ok(()));
    // A segment that went bad, with records still in it, and one without anything to repack.
    let mut rows = checkpoint.rows.clone();
    rows[3].usage = SegmentUse::Bad;
    rows[4].repackable_units = 0;
    assert_eq!(Checkpoint { rows, ..checkpoint }.validate(&geometry), Ok(()));
}

#[test]
fn validate_refuses_what_does_not_fit_the_drive() {
    let (checkpoint, geometry) = sample();
    let segments = geometry.segments();
    let refused = |what: &str, change: &dyn Fn(&mut Checkpoint)| {
        let mut changed = checkpoint.clone();
        change(&mut changed);
        assert!(changed.validate(&geometry).is_err(), "{what}");
    };
    refused("a row too many", &|c| c.rows.grow(c.rows.len() + 1));
    refused("a row too few", &|c| c.rows = c.rows.iter().copied().skip(1).collect());
    refused("more live than a segment holds", &|c| c.rows[1].live_units += 1);
    refused("more to repack than is live", &|c| {
        (c.rows[1].live_units, c.rows[1].repackable_units) = (100, 101);
    });
    refused("root before the segments", &|c| c.root = Entry::record(4096, 64));
    refused("root behind the segments", &|c| c.root = Entry::record(geometry.segment_offset(segments), 64));
    refused("root over a segment's end", &|c| c.root = Entry::record(geometry.segment_offset(2) - 32, 64));
    refused("head in no segment", &|c| c.heads[2].current = NextSegment { segment: segments, generation: 1 });
    refused("next of no segment", &|c| {
        c.heads[1].next = NextSegment { segment: u32::MAX - 1, generation: 1 }
    });
    refused("head behind its segment", &|c| c.heads[0].offset = geometry.segment_bytes + 4096);
    refused("head between pages", &|c| c.heads[0].offset += 16);
}
