//! The memory that a run left.

use layout::memory::{LAPSED_AT, MemoryHeader, OPENINGS_AT, TAKEN_BY_AT, state_at};
use layout::{DecodeError, PAGE_BYTES, RunMemory};

use crate::common::{Pack, memory_with, sample_pack};

fn sample() -> (Pack, Vec<u8>) {
    let pack = sample_pack();
    let bytes = memory_with(&pack);
    (pack, bytes)
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

#[test]
fn packs_come_back_as_they_were() {
    let (pack, mut bytes) = sample();
    put(&mut bytes, TAKEN_BY_AT, 77);
    put(&mut bytes, OPENINGS_AT, 2);
    put(&mut bytes, LAPSED_AT, 1);
    let memory = RunMemory::decode(&bytes).expect("a memory");
    assert_eq!((memory.header.log_id, memory.header.entropy), (pack.at.uuid, 5));
    assert_eq!((memory.taken_by, memory.openings, memory.checkpoint), (77, 2, 3));
    assert!(memory.has_lapsed);
    let [sealed] = &memory.sealed[..] else { panic!("one pack") };
    assert_eq!((&sealed.header, sealed.bytes, sealed.is_unannounced), (&pack.header, &pack.bytes[..], false));
    let open = memory.open.as_ref().expect("an open pack");
    assert_eq!((open.segment.segment, open.offset), (pack.at.segment, pack.at.offset));
    assert_eq!((open.records, open.bytes), (pack.header.records, &pack.bytes[..pack.header.used as usize]));
    assert_eq!(memory.newest(), pack.header.sequence);
}

#[test]
fn what_is_not_whole_is_refused() {
    let (_, bytes) = sample();
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        RunMemory::decode(&bytes).err()
    };
    assert_eq!(refused(&|_| {}), None);
    assert!(matches!(refused(&|bytes| bytes.truncate(100)), Some(DecodeError::Truncated(_))));
    assert!(matches!(refused(&|bytes| bytes[0] ^= 1), Some(DecodeError::Magic(_))));
    assert!(matches!(refused(&|bytes| bytes[8] = 9), Some(DecodeError::Version { found: 9, .. })));
    for at in 16..72 {
        assert!(matches!(refused(&|bytes| bytes[at] ^= 1), Some(DecodeError::Checksum(_))), "byte {at}");
    }
    assert!(matches!(refused(&|bytes| bytes.extend([0; PAGE_BYTES])), Some(DecodeError::Field(..))));
    // The sealed pack: another number, an unknown state, another beginning.
    for change in [1_u64 << 2, 3, 3 << 62] {
        assert!(
            refused(&|bytes| {
                let at = state_at(1);
                let word = u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
                put(bytes, at, word ^ change);
            })
            .is_some()
        );
    }
    let units = RunMemory::decode(&bytes).expect("a memory").header.units as usize;
    let region = MemoryHeader::table_bytes(units) + PAGE_BYTES;
    assert!(matches!(refused(&|bytes| bytes[region] ^= 1), Some(DecodeError::Magic(_))));
    // The open one: its place, its length.
    let open = (0..units).find(|unit| bytes[state_at(*unit)] == 1).map(state_at).expect("an open pack");
    assert!(matches!(refused(&|bytes| bytes[open + 20] ^= 1), Some(DecodeError::Checksum(_))));
    assert!(matches!(refused(&|bytes| put(bytes, open + 8, 1 << 32 | 100)), Some(DecodeError::Field(..))));
    assert!(matches!(
        refused(&|bytes| put(bytes, open + 8, 1 << 32 | 1 << 31)),
        Some(DecodeError::Field(..))
    ));
    // Two of them.
    assert!(refused(&|bytes| bytes.copy_within(open..open + 64, state_at(0))).is_some());
}
