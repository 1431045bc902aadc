//! A drive at rest needs no ticks and no maintenance, and whatever may need them rouses it.

use crate::common;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use codec::testdata::text_like;
use common::{Erased, maintain, new_drive, run};
use drive::{Drive, Zeroes};

type Memory = Drive<Erased>;
type Named<'a> = (&'static str, &'a dyn Fn(&Memory));

const BLOCK: u64 = 4096;
/// More ticks than it takes to count as idle.
const IDLE_TICKS: u32 = 60;

fn poll(rest: Pin<&mut impl Future<Output = bool>>) -> Poll<bool> {
    rest.poll(&mut Context::from_waker(Waker::noop()))
}

/// A drive with some data on the medium, at which everything is done.
fn idle() -> Memory {
    let (_, drive) = new_drive(64 << 20, 64 << 20);
    run(drive.write(0, &text_like(1, 64 * BLOCK as usize), false)).expect("write");
    run(drive.flush()).expect("flush");
    settle_down(&drive);
    drive
}

fn settle_down(drive: &Memory) {
    for _ in 0..IDLE_TICKS {
        drive.tick();
        maintain(drive);
    }
}

/// Returns whether `act` rouses the drive.
fn rouses(drive: &Memory, act: impl FnOnce(&Memory)) -> bool {
    let mut rest = pin!(drive.rest());
    assert_eq!(poll(rest.as_mut()), Poll::Pending, "it rests");
    act(drive);
    let roused = poll(rest.as_mut());
    assert_ne!(roused, Poll::Ready(false));
    roused.is_ready()
}

#[test]
fn changes_rouse_a_drive_and_reports_and_reads_do_not() {
    let drive = idle();
    let data = text_like(2, BLOCK as usize);
    let quiet: [Named; 4] = [
        ("read", &|drive| run(drive.read(0, &mut [0; 8192])).expect("read")),
        ("status", &|drive| drop(drive.status())),
        ("pace", &|drive| _ = drive.pace()),
        ("another that rests", &|drive| assert_eq!(poll(pin!(drive.rest())), Poll::Pending)),
    ];
    for (name, act) in quiet {
        assert!(!rouses(&drive, act), "{name}");
    }
    let loud: [Named; 6] = [
        ("write", &|drive| run(drive.write(0, &data, false)).expect("write")),
        ("write with FUA", &|drive| run(drive.write(BLOCK, &data, true)).expect("write")),
        ("trim", &|drive| run(drive.trim(2 * BLOCK, BLOCK, false)).expect("trim")),
        ("zeroes", &|drive| run(drive.write_zeroes(3 * BLOCK, BLOCK, Zeroes::default())).expect("zeroes")),
        ("cache", &|drive| drive.set_map_budget_bytes(1 << 20)),
        ("capacity", &|drive| run(drive.set_logical_capacity(128 << 20)).expect("capacity")),
    ];
    for (name, act) in loud {
        assert!(rouses(&drive, act), "{name}");
        settle_down(&drive);
    }
    assert!(rouses(&drive, |drive| run(drive.close()).expect("close")));
}

#[test]
fn a_drive_with_something_to_do_does_not_rest() {
    let drive = idle();
    run(drive.write(0, &text_like(3, BLOCK as usize), false)).expect("write");
    let sequence = drive.status().sequence;
    let mut ticks = 0;
    while poll(pin!(drive.rest())) == Poll::Ready(false) {
        drive.tick();
        maintain(&drive);
        ticks += 1;
        assert!(ticks < 1000, "it never rests");
    }
    assert!(drive.status().sequence > sequence, "the pack was written");
    assert!(ticks > 50, "only an idle drive rests: {ticks}");
}

#[test]
fn a_host_that_ended_a_rest_is_not_idle_after_the_ticks_that_were_left_out() {
    let drive = idle();
    assert!(rouses(&drive, |drive| run(drive.write(0, &[7; 4096], false)).expect("write")));
    drive.miss_ticks(100_000);
    for _ in 0..40 {
        drive.tick();
        maintain(&drive);
        assert_eq!(poll(pin!(drive.rest())), Poll::Ready(false));
    }
    settle_down(&drive);
    // An hour without the host: it stays idle.
    assert_eq!(poll(pin!(drive.rest())), Poll::Pending);
    drive.miss_ticks(360_000);
    assert_eq!(poll(pin!(drive.rest())), Poll::Pending);
}
