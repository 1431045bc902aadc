//! A sample fills up, whatever other threads offer and whenever it starts over.

use layout::BLOCK_BYTES;
use loom::sync::Arc;
use loom::thread;

use super::code::Sampler;

const SIZE: usize = 2;

fn offers(sampler: &Arc<Sampler>) -> thread::JoinHandle<()> {
    let sampler = sampler.clone();
    thread::spawn(move || sampler.offer(&[1; BLOCK_BYTES]))
}

/// Offers enough to fill the sample, if nothing was counted before.
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

/// Blocks offered while the sample starts over do not restore the earlier count.
pub(crate) fn it_starts_over() {
    let sampler = Arc::new(Sampler::new(SIZE, 1));
    sampler.offer(&[0; 64 * BLOCK_BYTES]);
    let other = offers(&sampler);
    sampler.start_over();
    other.join().expect("no thread panics");
    fills_up(&sampler);
}
