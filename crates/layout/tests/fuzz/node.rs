//! Any bytes as a map node's or an overlay's payload.

use layout::node::{decode_node, decode_overlay, encode_node, encode_overlay};
use layout::{Entry, NODE_ENTRIES};

/// Byte 0 is the coding.
pub(crate) fn run(data: &[u8]) {
    let Some((coding, payload)) = data.split_first() else { return };
    for coding in [*coding, *coding % 3] {
        check_overlay(coding, payload);
        check_node(coding, payload);
    }
}

pub(crate) fn check_overlay(coding: u8, payload: &[u8]) {
    let Ok(pairs) = decode_overlay(coding, payload) else { return };
    assert!(pairs.len() <= NODE_ENTRIES && pairs.is_sorted_by(|a, b| a.0 < b.0));
    let mut again = Vec::new();
    let coding = encode_overlay(|| pairs.iter().copied(), &mut again);
    assert!(again.len() <= payload.len());
    assert_eq!(decode_overlay(coding as u8, &again), Ok(pairs));
}

pub(crate) fn check_node(coding: u8, payload: &[u8]) {
    let mut entries = [Entry::UNMAPPED; NODE_ENTRIES];
    if decode_node(coding, payload, &mut entries).is_err() {
        return;
    }
    let mapped = || entries.iter().enumerate().filter(|(_, e)| !e.is_unmapped()).map(|(i, e)| (i as u16, *e));
    let mut again = Vec::new();
    let coding = encode_node(mapped, &mut again);
    let mut decoded = [Entry::UNMAPPED; NODE_ENTRIES];
    assert_eq!(decode_node(coding as u8, &again, &mut decoded), Ok(()));
    assert_eq!(decoded, entries);
}
