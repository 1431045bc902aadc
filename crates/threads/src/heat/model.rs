//! A hot group is entered once, whoever counts.

use loom::sync::Arc;
use loom::thread;

use super::code::Heat;

/// Two threads read parts of the same frame. Counts may get lost, so one of them reads on.
pub(crate) fn a_hot_group_is_entered_once() {
    let heat = Arc::new(Heat::new(512, 2));
    let other = {
        let heat = heat.clone();
        thread::spawn(move || {
            heat.read_at_random(8);
            heat.read_at_random(9);
        })
    };
    heat.read_at_random(15);
    other.join().expect("no thread panics");
    heat.read_at_random(8);
    heat.read_at_random(8);
    assert_eq!(heat.take_hot(), Some(8));
    assert_eq!(heat.take_hot(), None, "entered twice");
}
