//! A pack that is damaged, cut short, or not what belongs there is refused, and not one record of it is told.

use crate::common::{At, Pack, sample_pack, seal};
use layout::PAGE_BYTES;
use layout::pack::{PackAddress, decode_damaged_pack, decode_pack, walk_records};
use proptest::prelude::*;

fn is_refused(bytes: &[u8], place: PackAddress<'_>) -> bool {
    let mut told = 0;
    let refused = decode_pack(bytes, place, |_, _| told += 1).is_err();
    assert!(!refused || told == 0, "a record of a refused pack was told");
    refused
}

/// Bytes of a pack that mean something: all but the padding behind its records' payloads and its own.
fn meaningful(pack: &Pack) -> Vec<usize> {
    let mut bytes: Vec<usize> = (0..112).collect();
    let mut at = 112;
    for spec in &pack.specs {
        let header = spec.header();
        bytes.extend(at..at + layout::record::RECORD_HEADER_BYTES + spec.payload.len());
        at += header.record_len();
    }
    bytes
}

/// The sample with a field overwritten and the checksums made right.
fn with(at: usize, value: u32) -> bool {
    let pack = sample_pack();
    let mut bytes = pack.bytes.clone();
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    seal::pack(&mut bytes);
    is_refused(&bytes, pack.at.place())
}

#[test]
fn every_flipped_bit_that_means_something_is_refused() {
    let pack = sample_pack();
    for at in meaningful(&pack) {
        for bit in 0..8 {
            let mut damaged = pack.bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(is_refused(&damaged, pack.at.place()), "bit {bit} of byte {at}");
        }
    }
}

/// Which records of a pack have right payloads; nothing if its headers are not right.
fn right_payloads(bytes: &[u8], place: PackAddress<'_>) -> Option<Vec<bool>> {
    let mut right = Vec::new();
    decode_damaged_pack(bytes, place, |_, _, payload| right.push(payload.is_some())).ok().map(|_| right)
}

#[test]
fn a_flipped_bit_in_a_payload_is_known_to_be_there_and_one_in_a_header_is_refused() {
    let pack = sample_pack();
    let all = pack.specs.len();
    assert_eq!(right_payloads(&pack.bytes, pack.at.place()), Some(vec![true; all]));
    let mut payloads = Vec::new();
    let mut at = 112;
    for (record, spec) in pack.specs.iter().enumerate() {
        let first = at + layout::record::RECORD_HEADER_BYTES;
        payloads.extend((first..first + spec.payload.len()).map(|byte| (byte, record)));
        at += spec.header().record_len();
    }
    for at in meaningful(&pack) {
        let mut damaged = pack.bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let hit = payloads.iter().find(|(byte, _)| *byte == at).map(|(_, record)| *record);
        let expected = hit.map(|hit| (0..all).map(|record| record != hit).collect());
        assert_eq!(right_payloads(&damaged, pack.at.place()), expected, "byte {at}");
    }
}

#[test]
fn padding_means_nothing() {
    let pack = sample_pack();
    let meaningful = meaningful(&pack);
    for at in (0..pack.bytes.len()).filter(|at| !meaningful.contains(at)) {
        let mut changed = pack.bytes.clone();
        changed[at] ^= 0xff;
        assert!(!is_refused(&changed, pack.at.place()), "byte {at}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let pack = sample_pack();
    for len in 0..pack.bytes.len() {
        assert!(is_refused(&pack.bytes[..len], pack.at.place()), "{len} bytes");
    }
}

#[test]
fn torn_sector_is_refused() {
    // Each sector as if it had never been written: old bytes, here another pack's.
    let pack = sample_pack();
    let specs: Vec<_> = pack.specs.iter().cycle().take(60).cloned().collect();
    let new =
        crate::common::pack_of(pack.at, pack.header.head, [1001, 990, 12], pack.header.next, specs.clone());
    let older = At { generation: pack.at.generation - 1, ..pack.at };
    let old = crate::common::pack_of(older, pack.header.head, [500, 490, 9], pack.header.next, specs);
    for sector in 0..new.header.used.div_ceil(512) as usize {
        let mut torn = new.bytes.clone();
        torn[sector * 512..][..512].copy_from_slice(&old.bytes[sector * 512..][..512]);
        assert!(is_refused(&torn, new.at.place()), "sector {sector}");
    }
}

proptest! {
    #[test]
    fn flipped_bit_is_refused(pack in crate::common::pack(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let meaningful = meaningful(&pack);
        let at = meaningful[at.index(meaningful.len())];
        let mut damaged = pack.bytes.clone();
        damaged[at] ^= 1 << bit;
        prop_assert!(is_refused(&damaged, pack.at.place()));
    }

    #[test]
    fn another_place_is_refused(pack in crate::common::pack(), other in crate::common::at(), which in 0..4_usize) {
        let (at, mut wrong) = (pack.at, pack.at);
        match which {
            0 => wrong.uuid = other.uuid,
            1 => wrong.segment = other.segment,
            2 => wrong.generation = other.generation,
            _ => wrong.offset = other.offset,
        }
        prop_assume!(wrong != at);
        prop_assert!(is_refused(&pack.bytes, wrong.place()));
    }

    /// A forger who names the other place in the header and sums it again still fails: the records know their
    /// place.
    #[test]
    fn records_of_another_place_are_refused(pack in crate::common::pack(), other in crate::common::at()) {
        prop_assume!(!pack.specs.is_empty() && other != pack.at);
        let moved = crate::common::pack_of(other, pack.header.head, [1, 1, 1], pack.header.next, pack.specs.clone());
        let mut forged = moved.bytes.clone();
        let used = pack.header.used as usize;
        forged[112..used].copy_from_slice(&pack.bytes[112..used]);
        let mut crc = 0;
        walk_records(&forged[..used], pack.header.records, |_, raw| {
            crc = crc32c::crc32c_append(crc, &raw[..16]);
            Ok(())
        })
        .expect("the records of a good pack");
        moved.header.encode(crc, &mut forged);
        prop_assert!(is_refused(&forged, other.place()));
    }

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..6000),
        at in crate::common::at()) {
        prop_assert!(is_refused(&bytes, at.place()));
    }

    /// Damage under right checksums: whatever is accepted lies within the pack.
    #[test]
    fn hostile_fields_are_refused_or_consistent(
        pack in crate::common::pack(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        fields in prop::collection::vec((6..27_usize, prop::sample::select(HOSTILE.to_vec())), 0..2),
    ) {
        let mut bytes = pack.bytes.clone();
        for (at, byte) in damage {
            bytes[at.index(pack.header.used as usize)] = byte;
        }
        for (field, value) in fields {
            bytes[field * 4..][..4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[..4].copy_from_slice(b"PACK");
        seal::pack(&mut bytes);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let uuid = bytes[8..24].try_into().expect("sixteen bytes");
        let at = At { uuid, segment: word(24), generation: word(28), offset: word(32) };
        let mut end = 112;
        let decoded = decode_pack(&bytes, at.place(), |at, record| {
            assert_eq!(at as usize, end);
            end += record.header.record_len();
        });
        if let Ok(header) = decoded {
            prop_assert_eq!(end, header.used as usize);
            prop_assert!(header.len as usize <= bytes.len());
        }
    }
}

/// Values that arithmetic stumbles over.
const HOSTILE: [u32; 12] =
    [0, 1, 111, 112, 4095, 4096, 8192, 0x7fff_ffff, 0x8000_0000, 0xffff_f000, 0xffff_fff0, u32::MAX];

#[test]
fn impossible_number_of_records_is_refused() {
    for records in [0, 1, 5, 7, 1 << 16, 1 << 31, u32::MAX] {
        assert!(with(44, records), "{records} records");
    }
}

#[test]
fn impossible_use_is_refused() {
    let used = sample_pack().header.used;
    for wrong in [0, 1, 111, 112, used - 16, used - 1, used + 1, used + 16, 4096, 4097, 1 << 31, u32::MAX] {
        assert!(with(40, wrong), "{wrong} bytes used");
    }
}

/// A pack ends on the first page boundary behind its records: more would hide what follows it.
#[test]
fn impossible_length_is_refused() {
    let pack = sample_pack();
    for len in [0, 1, 112, 4095, 4097, 8192, 1 << 20, 1 << 31, 0xffff_f000, u32::MAX] {
        let mut bytes = pack.bytes.clone();
        bytes.resize(3 * PAGE_BYTES, 0);
        bytes[36..40].copy_from_slice(&len.to_le_bytes());
        seal::pack(&mut bytes);
        assert!(is_refused(&bytes, pack.at.place()), "{len} bytes");
    }
}

/// Offsets near the end of 32 bits: the place of a record behind them must not wrap.
#[test]
fn impossible_offset_is_refused() {
    let pack = sample_pack();
    for offset in [1, 16, 4095, 256 << 20, 0x7fff_f000, 0x8000_0000, 0xffff_f000, 0xffff_ffa0, u32::MAX] {
        let mut bytes = pack.bytes.clone();
        bytes[32..36].copy_from_slice(&offset.to_le_bytes());
        seal::pack(&mut bytes);
        assert!(is_refused(&bytes, PackAddress { offset, ..pack.at.place() }), "offset {offset}");
    }
}

#[test]
fn sequence_beyond_62_bits_is_refused() {
    assert!(with(52, 1 << 30));
    assert!(with(52, u32::MAX));
    assert!(with(60, 1 << 30));
}

/// The sample has six records.
#[test]
fn continued_counts_records_of_the_pack() {
    for continued in 0..=6 {
        assert!(!with(96, continued), "{continued} records continued");
    }
    for continued in [7, 8, 1 << 16, 1 << 31, u32::MAX] {
        assert!(with(96, continued), "{continued} records continued");
    }
}

/// Only writes of the host are split over two packs.
#[test]
fn continued_is_refused_outside_the_host_head() {
    for (head, refused) in [(0, false), (1, true), (2, true)] {
        let pack = sample_pack().continued(1);
        let mut bytes = pack.bytes;
        bytes[5] = head;
        seal::pack(&mut bytes);
        assert_eq!(is_refused(&bytes, pack.at.place()), refused, "head {head}");
    }
}

#[test]
fn unknown_head_and_version_are_refused() {
    let pack = sample_pack();
    for (at, value) in [(4, 0), (4, 1), (4, 3), (5, 3), (5, 255)] {
        let mut bytes = pack.bytes.clone();
        bytes[at] = value;
        seal::pack(&mut bytes);
        assert!(is_refused(&bytes, pack.at.place()));
    }
}
