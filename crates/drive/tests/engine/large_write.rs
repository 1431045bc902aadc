//! A large write lets other tasks run between its pieces.

use crate::common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};

use codec::testdata::{random, text_like};
use common::{new_drive, run};
use drive::ATOMIC_WRITE_BYTES;

const LARGE: usize = 32 << 20;
const PIECES: u64 = LARGE as u64 / ATOMIC_WRITE_BYTES;

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Writes `data` to a drive in memory, where no operation has to wait. Before each further poll, one block is
/// written elsewhere. Returns the number of these blocks.
fn writes_meanwhile(physical: u64, data: &[u8], before: usize) -> u64 {
    let (_media, drive) = new_drive(physical, 1 << 30);
    if before > 0 {
        run(drive.write(256 << 20, &random(9, before), false)).expect("write");
    }
    let wakes = Arc::new(Count::default());
    let waker = Waker::from(wakes.clone());
    let mut large = pin!(drive.write(0, data, false));
    let mut meanwhile = 0;
    loop {
        if large.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            break;
        }
        assert_eq!(wakes.0.load(SeqCst), meanwhile + 1, "it gives way, and asks to be polled again");
        let offset = (512 << 20) + meanwhile % 16 * 4096;
        run(drive.write(offset, &[meanwhile as u8 | 1, 2, 3, 4].repeat(1024), false)).expect("a small write");
        meanwhile += 1;
    }
    let mut back = vec![0; data.len()];
    run(drive.read(0, &mut back)).expect("read");
    assert!(back == data);
    meanwhile
}

#[test]
fn others_have_their_turn_between_the_pieces_of_a_large_write() {
    let meanwhile = writes_meanwhile(256 << 20, &text_like(1, LARGE), 0);
    assert!(meanwhile >= PIECES - 1, "{meanwhile} turns in {PIECES} pieces");
}

#[test]
fn also_where_space_is_so_short_that_it_is_compressed_beforehand() {
    // Uncompressed it would not fit.
    let meanwhile = writes_meanwhile(96 << 20, &text_like(1, LARGE), 50 << 20);
    assert!(meanwhile >= 2 * (PIECES - 1), "{meanwhile} turns in {PIECES} pieces that are looked at twice");
}
