//! The memory backing.

mod common;

use std::sync::Arc;

use common::{exercise, now, pattern, read};
use media::{AnyMedia, IoBuf, Media, MemoryMedia};

#[test]
fn keeps_what_is_written_and_refuses_what_lies_outside() {
    now(exercise(&MemoryMedia::new(8 << 20)));
    now(exercise(&AnyMedia::from(MemoryMedia::new((8 << 20) + 4096 * 3 + 17))));
}

#[test]
fn takes_memory_on_the_first_write_and_gives_it_back_on_discard() {
    let media = MemoryMedia::new(16 << 20);
    assert_eq!(now(read(&media, 1 << 20, 1 << 20)).iter().filter(|&&byte| byte != 0).count(), 0);
    assert_eq!(media.resident_bytes(), 0);
    now(media.write(0, Arc::new(pattern(0, 1, 4 << 20)))).expect("write");
    assert_eq!(media.resident_bytes(), 4 << 20);
    now(media.discard(4096, (2 << 20) - 4096)).expect("discard");
    assert!(media.resident_bytes() < 3 << 20);
    let after = now(read(&media, 0, 4 << 20));
    let whole = pattern(0, 1, 4 << 20);
    assert_eq!(after[..4096], whole[..4096]);
    assert!(after[4096..2 << 20].iter().all(|&byte| byte == 0));
    assert_eq!(after[2 << 20..], whole[2 << 20..]);
}

#[test]
fn threads_read_and_write_side_by_side() {
    let media = Arc::new(MemoryMedia::new(4 << 20));
    let threads: Vec<_> = (0..4u64)
        .map(|id| {
            let media = Arc::clone(&media);
            std::thread::spawn(move || {
                for version in 0..500 {
                    let offset = (version % 64 * 4 + id) * 4096;
                    now(media.write(offset, Arc::new(pattern(id, version, 4096)))).expect("write");
                    let (buf, result) = now(media.read(offset, IoBuf::pooled(4096)));
                    result.expect("read");
                    assert_eq!(buf[..], pattern(id, version, 4096)[..]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("thread");
    }
}
