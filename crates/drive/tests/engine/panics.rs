//! A panic inside the lock leaves a partly changed state. The drive must refuse all changes from then on, and
//! must have everything durable when it is opened again.

use crate::common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use codec::testdata::random;
use common::{Erased, assert_sound, create_options, erased, open, run, spawner};
use drive::{Drive, Error, OpenOptions, State, Zeroes};
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 32 << 20;
/// Calls of the clock until it panics.
static LOOKS_LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

/// Clock of the drive: the only external function that is called inside the lock, when it is entered and
/// left.
fn clock() -> u64 {
    match LOOKS_LEFT.fetch_sub(1, SeqCst) {
        // Bypasses the panic hook, so nothing is printed.
        0 => resume_unwind(Box::new("a panic on purpose")),
        _ => 0,
    }
}

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 100 + version, BLOCK as usize)
}

fn write(drive: &Memory, block: u64, version: u64, fua: bool) -> Result<(), Error> {
    run(drive.write(block * BLOCK, &contents(block, version), fua))
}

/// A request to a drive.
type Request = fn(&Memory) -> Result<(), Error>;

const REQUESTS: [(&str, Request); 7] = [
    ("write", |drive| write(drive, 3, 2, false)),
    ("durable write", |drive| write(drive, 3, 2, true)),
    ("TRIM", |drive| run(drive.trim(3 * BLOCK, BLOCK, false))),
    ("zeroes", |drive| run(drive.write_zeroes(3 * BLOCK, BLOCK, Zeroes { unmap: false, fua: true }))),
    ("flush", |drive| run(drive.flush())),
    ("checkpoint", |drive| run(drive.checkpoint())),
    ("close", |drive| run(drive.close())),
];

fn used() -> (Arc<MemoryMedia>, Memory) {
    let media = Arc::new(MemoryMedia::new(PHYSICAL));
    run(Drive::create(&*media, &create_options(PHYSICAL, 64 << 20))).expect("create");
    let options = OpenOptions { clock: Some(clock), ..OpenOptions::new(1, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    for block in 0..8 {
        write(&drive, block, 1, false).expect("write");
    }
    run(drive.flush()).expect("flush");
    // Not durable.
    write(&drive, 4, 2, false).expect("write");
    (media, drive)
}

/// Checks the contents. Block 3 is changed by the request during which the panic occurs, and block 4 was not
/// durable.
fn assert_durable_is_there(media: &Arc<MemoryMedia>, when: &str) {
    let drive = open(media, 2);
    let mut back = vec![0; BLOCK as usize];
    for block in 0..8 {
        run(drive.read(block * BLOCK, &mut back)).expect("read");
        let is_new = back == contents(block, 2) || block == 3 && back.iter().all(|byte| *byte == 0);
        let may_be_new = block == 3 || block == 4;
        assert!(back == contents(block, 1) || may_be_new && is_new, "{when}: block {block}");
    }
    assert_sound(&drive);
    write(&drive, 3, 3, true).expect("write");
}

/// All in one test, because the clock is global.
#[test]
fn after_a_panic_every_request_fails_and_what_was_durable_is_there_again() {
    for (name, request) in REQUESTS {
        let (mut look, mut poisoned) = (0, 0);
        loop {
            let when = format!("{name}, panic at look {look}");
            let (media, drive) = used();
            LOOKS_LEFT.store(look, SeqCst);
            let result = catch_unwind(AssertUnwindSafe(|| request(&drive)));
            let left = LOOKS_LEFT.swap(i64::MAX, SeqCst);
            if left >= 0 {
                // The request finishes with fewer calls of the clock.
                result.expect("no panic").expect("a request");
                assert!(poisoned > 0 && 2 * poisoned >= look, "{when}: {poisoned} times poisoned");
                break;
            }
            result.expect_err("a panic");
            look += 1;
            match drive.status().state {
                State::Poisoned(why) => assert!(why.contains("panic"), "{when}: {why}"),
                // The lock was being left and not held any more: every other call.
                _ => {
                    assert!(look % 2 == 0, "{when}: not poisoned");
                    continue;
                }
            }
            poisoned += 1;
            for (other, request) in REQUESTS {
                let refused = request(&drive);
                assert!(matches!(refused, Err(Error::ReadOnly(_))), "{when}: {other} then: {refused:?}");
            }
            assert_eq!(run(drive.maintain()), Ok(false), "{when}");
            drop(drive);
            assert_durable_is_there(&media, &when);
        }
    }
}
