//! Payloads of map nodes and overlays.

use layout::node::{
    NodeCoding, NodeId, OverlayCoding, decode_node, decode_overlay, decode_pairs, encode_node,
    encode_overlay, encode_pairs,
};
use layout::{Entry, NODE_ENTRIES, ROOT};
use proptest::prelude::*;

type Entries = [Entry; NODE_ENTRIES];

fn mapped(entries: &Entries) -> impl Iterator<Item = (u16, Entry)> {
    entries.iter().enumerate().filter(|(_, e)| !e.is_unmapped()).map(|(slot, e)| (slot as u16, *e))
}

fn decode(coding: u8, payload: &[u8]) -> Option<Entries> {
    let mut entries = [Entry::UNMAPPED; NODE_ENTRIES];
    decode_node(coding, payload, &mut entries).ok().map(|()| entries)
}

/// Nodes with every share of mapped entries.
fn entries() -> impl Strategy<Value = Entries> {
    (0..=100_u32, prop::collection::vec((0..100_u32, crate::common::record_entry()), NODE_ENTRIES)).prop_map(
        |(share, all)| {
            let mut entries = [Entry::UNMAPPED; NODE_ENTRIES];
            for (entry, (lot, record)) in entries.iter_mut().zip(all) {
                if lot < share {
                    *entry = record;
                }
            }
            entries
        },
    )
}

fn pairs() -> impl Strategy<Value = Vec<(u16, Entry)>> {
    prop::collection::btree_map(0..512_u16, crate::common::entry(), 0..=512)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #[test]
    fn node_decodes_what_was_encoded(entries in entries()) {
        let mut payload = b"what was there".to_vec();
        let coding = encode_node(|| mapped(&entries), &mut payload);
        let payload = &payload[14..];
        prop_assert!(payload.len() <= NODE_ENTRIES * 8);
        prop_assert_eq!(decode(coding as u8, payload), Some(entries));
    }

    /// Nodes that hold runs of the same fill, as after write-zeroes, in whatever coding is chosen.
    #[test]
    fn node_of_runs_decodes_as_encoded(
        runs in prop::collection::vec((0..60_usize, 1..60_usize, 0..3_u32), 0..40),
        others in prop::collection::vec((0..NODE_ENTRIES, crate::common::entry()), 0..10),
    ) {
        let mut entries = [Entry::UNMAPPED; NODE_ENTRIES];
        let mut at = 0;
        for (gap, len, word) in runs {
            let from = (at + gap).min(NODE_ENTRIES);
            at = (from + len).min(NODE_ENTRIES);
            entries[from..at].fill(Entry::fill(word));
        }
        for (slot, entry) in others {
            entries[slot] = entry;
        }
        let mut payload = Vec::new();
        let coding = encode_node(|| mapped(&entries), &mut payload);
        prop_assert!(payload.len() <= NODE_ENTRIES * 8);
        prop_assert_eq!(decode(coding as u8, &payload), Some(entries));
    }

    #[test]
    fn pairs_decode_as_encoded(pairs in pairs()) {
        let mut payload = Vec::new();
        encode_pairs(pairs.iter().copied(), &mut payload);
        prop_assert_eq!(payload.len(), pairs.len() * 10);
        prop_assert_eq!(decode_pairs(&payload, "overlay"), Ok(pairs));
    }

    #[test]
    fn overlays_decode_as_encoded(pairs in pairs(),
        runs in prop::collection::vec((0..512_usize, 1..200_usize, 0..3_u64), 0..4)) {
        let mut slots: Vec<Option<Entry>> = vec![None; NODE_ENTRIES];
        pairs.into_iter().for_each(|(slot, entry)| slots[usize::from(slot)] = Some(entry));
        for (from, len, kind) in runs {
            let entry = [Entry::UNMAPPED, Entry::fill(0), Entry::fill(9)][kind as usize];
            slots[from..(from + len).min(NODE_ENTRIES)].fill(Some(entry));
        }
        let changes: Vec<(u16, Entry)> = (0..).zip(slots).filter_map(|(slot, e)| Some((slot, e?))).collect();
        let mut payload = Vec::new();
        let coding = encode_overlay(|| changes.iter().copied(), &mut payload);
        prop_assert!(payload.len() <= changes.len() * 10);
        prop_assert_eq!(decode_overlay(coding as u8, &payload), Ok(changes));
    }

    #[test]
    fn any_bytes_are_refused_or_valid(
        coding in 0..4_u8,
        payload in prop::collection::vec(any::<u8>(), 0..6000),
        whole: bool,
    ) {
        let mut payload = payload;
        if whole {
            let len = [4096, payload.len() / 10 * 10, payload.len() / 12 * 12][usize::from(coding % 3)];
            payload.resize(len, 0);
        }
        if let Some(entries) = decode(coding, &payload) {
            prop_assert!(entries.iter().all(|e| e.is_valid()));
        }
        if let Ok(pairs) = decode_overlay(coding, &payload) {
            prop_assert!(pairs.len() <= NODE_ENTRIES && pairs.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(pairs.iter().all(|(slot, e)| usize::from(*slot) < NODE_ENTRIES && e.is_valid()));
        }
    }

    #[test]
    fn pairs_out_of_order_are_refused(pairs in pairs(), at in any::<prop::sample::Index>()) {
        prop_assume!(pairs.len() >= 2);
        let at = at.index(pairs.len() - 1);
        let mut payload = Vec::new();
        let mut swapped = pairs.clone();
        swapped.swap(at, at + 1);
        encode_pairs(swapped.into_iter(), &mut payload);
        prop_assert!(decode_pairs(&payload, "overlay").is_err());
        payload.clear();
        let mut twice = pairs;
        twice[at + 1].0 = twice[at].0;
        encode_pairs(twice.into_iter(), &mut payload);
        prop_assert!(decode_pairs(&payload, "overlay").is_err());
    }

    #[test]
    fn ids_lead_up_to_the_root_and_back(block in 0..1_u64 << 36) {
        let mut id = NodeId::leaf_of(block);
        let mut way = Vec::new();
        while let Some((parent, slot)) = id.parent() {
            prop_assert_eq!(parent.child(slot), id);
            prop_assert_eq!(NodeId::leaf_of(block).ancestor(parent.level), parent);
            way.push(slot);
            id = parent;
        }
        prop_assert_eq!(id, ROOT);
        let leaf = way.iter().rev().fold(ROOT, |node, &slot| node.child(slot));
        prop_assert_eq!(leaf, NodeId::leaf_of(block));
    }
}

/// The smaller coding is taken, as records round it to 16 bytes.
#[test]
fn coding_follows_the_number_of_mapped_entries() {
    for count in 0..=NODE_ENTRIES {
        let mut payload = Vec::new();
        let coding =
            encode_node(|| (0..count as u16).map(|slot| (slot, Entry::fill(slot.into()))), &mut payload);
        let expected = if count < 409 { NodeCoding::Sparse } else { NodeCoding::Dense };
        assert_eq!(coding, expected);
        let record = |payload: usize| (16 + payload).next_multiple_of(16);
        assert_eq!(record(payload.len()), record(count * 10).min(record(4096)), "{count} mapped");
    }
}

#[test]
fn dense_of_another_length_is_refused() {
    for len in [0, 8, 4088, 4095, 4097, 4104, 8192] {
        assert_eq!(decode(0, &vec![0; len]), None, "{len} bytes");
    }
}

#[test]
fn node_of_one_fill_takes_one_run() {
    let mut payload = Vec::new();
    let coding = encode_node(|| (0..512).map(|slot| (slot, Entry::fill(9))), &mut payload);
    assert_eq!((coding, payload.len()), (NodeCoding::Runs, 12));
    assert_eq!(decode(2, &payload), Some([Entry::fill(9); NODE_ENTRIES]));
}

#[test]
fn impossible_runs_are_refused() {
    let run = |first: u16, count: u16| {
        let mut raw = [first.to_le_bytes(), count.to_le_bytes()].concat();
        raw.extend_from_slice(&Entry::fill(1).0.to_le_bytes());
        raw
    };
    assert!(decode(2, &[run(0, 10), run(10, 502)].concat()).is_some());
    let wrong = [
        ("empty", run(3, 0)),
        ("over the end", run(500, 13)),
        ("behind the end", run(512, 1)),
        ("wraps", run(u16::MAX, u16::MAX)),
        ("out of order", [run(10, 2), run(5, 2)].concat()),
        ("overlapping", [run(10, 2), run(11, 2)].concat()),
        ("cut off", run(0, 10)[..11].to_vec()),
    ];
    for (what, payload) in wrong {
        assert_eq!(decode(2, &payload), None, "{what}");
        assert!(decode_overlay(2, &payload).is_err(), "{what}");
    }
}

#[test]
fn overlay_of_one_fill_takes_one_run() {
    let mut payload = Vec::new();
    let coding = encode_overlay(|| (0..512).map(|slot| (slot, Entry::fill(9))), &mut payload);
    assert_eq!((coding, payload.len()), (OverlayCoding::Runs, 12));
}

#[test]
fn overlay_of_unknown_coding_is_refused() {
    for coding in (1..=255).filter(|coding| *coding != 2) {
        assert!(decode_overlay(coding, &[]).is_err());
    }
}

#[test]
fn pairs_cut_off_are_refused() {
    let mut payload = Vec::new();
    encode_pairs((0..512).map(|slot| (slot, Entry::fill(3))), &mut payload);
    for len in (0..payload.len()).filter(|len| len % 10 != 0) {
        assert!(decode_pairs(&payload[..len], "overlay").is_err());
    }
    payload.extend_from_slice(&[0; 10]);
    assert!(decode_pairs(&payload, "overlay").is_err(), "more pairs than slots");
}

#[test]
fn slot_beyond_the_node_is_refused() {
    for slot in [512, 513, u16::MAX] {
        let mut payload = Vec::new();
        encode_pairs([(slot, Entry::fill(3))].into_iter(), &mut payload);
        assert!(decode_pairs(&payload, "overlay").is_err());
        assert_eq!(decode(1, &payload), None);
    }
}

#[test]
fn malformed_entry_is_refused() {
    for bad in [Entry(1), Entry(1 << 62), Entry(2 << 62 | 1 << 40), Entry(3 << 62 | 1)] {
        let mut payload = Vec::new();
        encode_pairs([(9, bad)].into_iter(), &mut payload);
        assert!(decode_pairs(&payload, "overlay").is_err());
        let mut dense = vec![0; 4096];
        dense[72..80].copy_from_slice(&bad.0.to_le_bytes());
        assert_eq!(decode(0, &dense), None);
    }
}

#[test]
fn unknown_coding_is_refused() {
    for coding in 3..=255 {
        assert_eq!(decode(coding, &[]), None);
        assert_eq!(decode(coding, &[0; 4096]), None);
    }
}
