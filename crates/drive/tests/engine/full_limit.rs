//! What a drive reports as used never exceeds its limit by more than is kept for small writes.

use crate::common;

use codec::Policy;
use codec::testdata::{random, text_like};
use common::{Erased, create_options, open, run};
use drive::{CreateOptions, Drive, Error, Status};
use media::MemoryMedia;
use std::sync::Arc;

const BLOCK: u64 = 4096;
const FRAME: u64 = 8 * BLOCK;
const PHYSICAL: u64 = 16 << 20;

fn limit_of(status: &Status) -> u64 {
    status.physical_size_bytes - status.physical_reserve_bytes - status.physical_fixed_bytes
}

#[track_caller]
fn assert_within(drive: &Drive<Erased>, when: &str) {
    let status = drive.status();
    let (used, limit) = (status.physical_used_bytes, limit_of(&status));
    assert!(used <= limit + limit / 256, "{when}: {:.4} of the limit", used as f64 / limit as f64);
    assert_eq!(drive.space(), (used, limit), "{when}");
    let room = status.physical_reclaimable_bytes + status.physical_free_bytes;
    assert_eq!(room, limit.saturating_sub(used), "{when}");
}

fn fill(drive: &Drive<Erased>, from: u64, data: impl Fn(u64) -> Vec<u8>) -> u64 {
    let mut at = from;
    for len in [8 * FRAME, FRAME, BLOCK] {
        loop {
            let bytes: Vec<u8> = (at / BLOCK..(at + len) / BLOCK).flat_map(&data).collect();
            match run(drive.write(at, &bytes, false)) {
                Ok(()) => at += len,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_within(drive, "filled");
    }
    at
}

/// Frames of text, every third block trimmed alone, overwritten in single blocks, and filled again.
#[test]
fn trimmed_frames_do_not_let_used_pass_the_limit() {
    let media = Arc::new(MemoryMedia::new(PHYSICAL));
    let options = CreateOptions {
        codec: Policy::Auto,
        segment_bytes: Some(512 << 10),
        ..create_options(PHYSICAL, 16 << 30)
    };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    let text = |block: u64| text_like(block, BLOCK as usize);
    let end = fill(&drive, 0, text);
    for block in (0..end / BLOCK).step_by(3) {
        run(drive.trim(block * BLOCK, BLOCK, false)).expect("trim");
        if block % 300 == 0 {
            assert_within(&drive, "while every third block is trimmed");
        }
    }
    run(drive.flush()).expect("flush");
    assert_within(&drive, "every third block trimmed");
    let more = fill(&drive, end, |block| random(block, BLOCK as usize));
    for block in (0..end / BLOCK).filter(|block| block % 3 != 0) {
        let result = run(drive.write(block * BLOCK, &text_like(block + 1_000_000, BLOCK as usize), false));
        assert!(matches!(result, Ok(()) | Err(Error::NoSpace)), "{result:?}");
        if block % 100 == 0 {
            assert_within(&drive, "while the rest is overwritten");
        }
    }
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    assert_within(&drive, "overwritten");
    for block in (end / BLOCK..more / BLOCK).step_by(2) {
        run(drive.trim(block * BLOCK, BLOCK, false)).expect("trim");
    }
    for block in (0..end / BLOCK).filter(|block| block % 3 == 1) {
        run(drive.trim(block * BLOCK, BLOCK, false)).expect("trim");
    }
    assert_within(&drive, "trimmed again");
}
