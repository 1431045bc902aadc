//! A sample fills up, whoever else offers and whenever it starts over.

use layout::BLOCK_BYTES;
use loom::sync::Arc;
use loom::thread;

use super::code::Sampler;

const SIZE: usize = 2;

fn offers(sampler: &Arc<Sampler>) -> thread::JoinHandle<()> {
    let sampler = sampler.clone();
    thread::spawn(move || sampler.offer(&[1; BLOCK_BYTES]))
}

/// As much as makes a whole sample, if nothing was seen before.
fn fills_up(sampler: &Sampler) {
    (0..2 * SIZE).for_each(|_| sampler.offer(&[2; BLOCK_BYTES]));
    assert_eq!(sampler.blocks().len(), SIZE, "blocks were skipped though there is room");
}

pub(crate) fn a_sample_fills_up() {
    let sampler = Arc::new(Sampler::new(SIZE, 1));
    let others = [offers(&sampler), offers(&sampler)];
    sampler.offer(&[3; BLOCK_BYTES]);
    others.into_iter().for_each(|other| other.join().expect("no thread panics"));
    fills_up(&sampler);
}

/// What is offered while the sample starts over does not bring back how much was seen before.
pub(crate) fn it_starts_over() {
    let sampler = Arc::new(Sampler::new(SIZE, 1));
    sampler.offer(&[0; 64 * BLOCK_BYTES]);
    let other = offers(&sampler);
    sampler.start_over();
    other.join().expect("no thread panics");
    fills_up(&sampler);
}
