//! A hot group is entered once, whoever counts, and none is lost.

use loom::sync::Arc;
use loom::thread;

use super::code::Heat;

const BLOCKS: u64 = 512;

/// A table that is made: the model checker does not know the standard library's cell, and takes what it
/// publishes for a race.
fn made() -> Arc<Heat> {
    let heat = Heat::new(2);
    heat.read_at_random(8 * 40, BLOCKS);
    Arc::new(heat)
}

/// Two threads read parts of the same frame. Counts may get lost, so one of them reads on.
pub(crate) fn a_hot_group_is_entered_once() {
    let heat = made();
    let other = {
        let heat = heat.clone();
        thread::spawn(move || {
            heat.read_at_random(8, BLOCKS);
            heat.read_at_random(9, BLOCKS);
        })
    };
    heat.read_at_random(15, BLOCKS);
    other.join().expect("no thread panics");
    heat.read_at_random(8, BLOCKS);
    heat.read_at_random(8, BLOCKS);
    assert!(heat.has_hot());
    let hot = heat.take_hot().expect("it is hot");
    assert_eq!(hot.first(), 8);
    assert!(heat.take_hot().is_none(), "entered twice");
}

/// One thread streams what another takes: it is cut or left, and is counted anew afterwards in any case.
pub(crate) fn what_is_streamed_meanwhile_comes_again() {
    let heat = made();
    heat.read_at_random(8, BLOCKS);
    heat.read_at_random(8, BLOCKS);
    let other = {
        let heat = heat.clone();
        thread::spawn(move || heat.read_whole(8))
    };
    drop(heat.take_hot());
    other.join().expect("no thread panics");
    heat.read_at_random(8, BLOCKS);
    assert!(heat.take_hot().is_none(), "once is not often");
    heat.read_at_random(8, BLOCKS);
    assert!(heat.take_hot().is_some(), "it was lost");
}
