//! A pack put together as the engine does it gives back every record.

use layout::PackHeader;
use layout::pack::{decode_pack, walk_records};
use layout::record::RecordHeader;
use proptest::prelude::*;

fn gives_back_everything(pack: &crate::common::Pack, bytes: &[u8]) {
    let mut specs = pack.specs.iter();
    let mut expected_at = 112;
    let header = decode_pack(bytes, pack.at.place(), |at, record| {
        let spec = specs.next().expect("no more records than went in");
        assert_eq!(at, expected_at);
        assert_eq!(RecordHeader { crc: 0, ..record.header }, spec.header());
        assert_eq!(record.payload, spec.payload);
        expected_at += spec.header().record_len() as u32;
    });
    assert_eq!(header.as_ref(), Ok(&pack.header));
    assert_eq!(specs.next(), None, "all records came back");
    assert_eq!(expected_at, pack.header.used);
}

proptest! {
    #[test]
    fn decodes_what_was_encoded(pack in crate::common::pack()) {
        gives_back_everything(&pack, &pack.bytes);
        prop_assert_eq!(PackHeader::decode(&pack.bytes), Ok(pack.header));
    }

    #[test]
    fn what_follows_does_not_matter(pack in crate::common::pack(),
        behind in prop::collection::vec(any::<u8>(), 1..9000)) {
        gives_back_everything(&pack, &[&pack.bytes[..], &behind[..]].concat());
    }

    #[test]
    fn walking_finds_the_same_records(pack in crate::common::pack()) {
        let mut lengths = Vec::new();
        let used = &pack.bytes[..pack.header.used as usize];
        walk_records(used, pack.header.records, |_, raw| {
            lengths.push(raw.len());
            Ok(())
        })
        .expect("just encoded");
        let expected: Vec<usize> = pack.specs.iter().map(|spec| spec.header().record_len()).collect();
        prop_assert_eq!(lengths, expected);
    }
}

#[test]
fn empty_pack() {
    let sample = crate::common::sample_pack();
    let pack =
        crate::common::pack_of(sample.at, layout::Head::Map, [1, 0, 0], sample.header.next, Vec::new());
    assert_eq!((pack.header.used, pack.header.len), (112, 4096));
    gives_back_everything(&pack, &pack.bytes);
}

/// All of its records may have the rest of their write in the next pack, or some, or none.
#[test]
fn continued_pack() {
    for continued in 0..=6 {
        let pack = crate::common::sample_pack().continued(continued);
        assert_eq!(pack.bytes[96..104], [continued as u8, 0, 0, 0, 0, 0, 0, 0]);
        gives_back_everything(&pack, &pack.bytes);
    }
}

#[test]
fn every_kind() {
    let pack = crate::common::sample_pack();
    gives_back_everything(&pack, &pack.bytes);
}
