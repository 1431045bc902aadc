//! Live blocks and units by kind of record.

use layout::entry::CLASSES;
use layout::{Entry, Mix};

/// A record of every class.
fn entries() -> Vec<Entry> {
    let frames = [2, 4, 8].map(|blocks| Entry::frame(1 << 20, 64, blocks));
    let compressed = [&[Entry::record(1 << 20, 48)][..], &frames].concat();
    let settled = compressed.iter().map(|entry| entry.settled());
    [Entry::record(1 << 20, 4112)].into_iter().chain(compressed.iter().copied()).chain(settled).collect()
}

/// A frame of eight blocks counts whole until the last of them dies.
#[test]
fn frame_counts_whole_until_its_last_block_dies() {
    let entry = Entry::frame(1 << 20, 320, 8);
    let mut mix = Mix::default();
    mix.add_blocks(entry, 8);
    mix.add_record(entry);
    for alive in (0..8).rev() {
        assert_eq!(mix.units[entry.class()], 20);
        mix.remove_block(entry);
        assert_eq!(mix.blocks[entry.class()], alive);
    }
    mix.remove_record(entry);
    assert_eq!(mix, Mix::default());
}

#[test]
fn every_class_counts_apart() {
    let entries = entries();
    assert_eq!(
        entries.iter().map(|entry| entry.class()).collect::<Vec<_>>(),
        (0..CLASSES).collect::<Vec<_>>()
    );
    let mut mix = Mix::default();
    for entry in &entries {
        mix.add_blocks(*entry, entry.blocks());
        mix.add_record(*entry);
    }
    assert_eq!(mix.blocks, [1, 1, 2, 4, 8, 1, 2, 4, 8]);
    assert_eq!(mix.units, [257, 3, 4, 4, 4, 3, 4, 4, 4]);
}

/// The counts of a checkpoint are taken as they are: none makes the reader panic or wrap.
#[test]
fn counts_of_a_hostile_checkpoint_do_not_overflow() {
    for entry in entries() {
        let mut most = Mix { blocks: [u64::MAX; CLASSES], units: [u64::MAX - 1; CLASSES] };
        most.add_blocks(entry, 8);
        most.add_record(entry);
        assert_eq!(most, Mix { blocks: [u64::MAX; CLASSES], units: most.units });
        assert_eq!(most.units[entry.class()], u64::MAX);
        let mut none = Mix::default();
        none.remove_block(entry);
        none.remove_record(entry);
        assert_eq!(none, Mix::default());
    }
}
