//! A reader that finds a frame finds all of it.

use layout::{BLOCK_BYTES, Entry};
use loom::sync::Arc;
use loom::thread;

use super::code::{Frames, Key, Lookup};

fn read(frames: &Frames, first: u64) -> u64 {
    let key = Key { entry: Entry::frame(1 << 20, 2000, 2), generation: 1, first };
    let mut out = [0; 16];
    loop {
        match frames.read(&key, BLOCK_BYTES - 8, &mut out) {
            Lookup::Hit => {
                assert_eq!(out, [first as u8; 16]);
                return 1;
            }
            Lookup::Again => {
                let mut room = frames.room(&key);
                room.fill(first as u8);
                frames.keep(key, room);
                return 0;
            }
            Lookup::First => {}
        }
    }
}

/// Two threads read the same frame, and one of them also reads another frame of the same shard.
pub(crate) fn frames_are_whole() {
    let frames = Arc::new(Frames::new(false));
    let other = {
        let frames = frames.clone();
        thread::spawn(move || read(&frames, 4) + read(&frames, 8))
    };
    let hits = read(&frames, 4) + read(&frames, 4);
    let hits = hits + other.join().expect("no thread panics");
    assert_eq!(frames.hits_count(), hits);
}
