//! A backing that is full: a sparse file on a full file system, or a thin volume. Hosts get errors for lack
//! of space, no acknowledged data is lost, the drive stays online, and continues once there is space.

use crate::common;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options, erased};
use drive::{Drive, Error};
use faulty::{Faulty, Tasks};

const BLOCK: u64 = 4096;
const PATIENCE: u64 = 40;

fn data(n: u64) -> Vec<u8> {
    random(n, BLOCK as usize)
}

fn new_drive() -> (Arc<Faulty>, Tasks, Drive<Erased>) {
    let media = Arc::new(Faulty::new(32 << 20));
    let tasks = Tasks::default();
    tasks.run(Drive::create(&*media, &create_options(32 << 20, 32 << 20))).expect("create");
    let drive = tasks.open(&media, |options| options.full_backing_patience_ticks = PATIENCE);
    (media, tasks, drive)
}

/// Lets time pass.
fn ticks(drive: &Drive<Erased>, tasks: &Tasks, count: u64) {
    for _ in 0..count {
        drive.tick();
        (0..4).for_each(|_| tasks.turn());
    }
}

fn must_hold(drive: &Drive<Erased>, tasks: &Tasks, blocks: std::ops::Range<u64>) {
    for n in blocks {
        let mut read = vec![0; BLOCK as usize];
        tasks.run(drive.read(n * BLOCK, &mut read)).expect("read");
        assert_eq!(read, data(n), "block {n}");
    }
}

/// Writes until the drive notices that the backing is full. Returns the number of acknowledged blocks.
fn write_until_refused(drive: &Drive<Erased>, tasks: &Tasks) -> u64 {
    for n in 0..4096 {
        match tasks.run(drive.write(n * BLOCK, &data(n), false)) {
            Ok(()) => tasks.turn(),
            Err(Error::BackingFull) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing was refused");
}

#[test]
fn nothing_is_lost_and_the_drive_goes_on_once_there_is_room() {
    let (media, tasks, drive) = new_drive();
    tasks.run(drive.write(5000 * BLOCK, &data(5000), true)).expect("write");
    media.full.store(true, SeqCst);
    let written = write_until_refused(&drive, &tasks);
    let status = drive.status();
    assert!(status.backing_full && status.out_of_space && status.state == drive::State::Online, "{status:?}");
    must_hold(&drive, &tasks, 0..written);
    must_hold(&drive, &tasks, 5000..5001);
    assert_eq!(tasks.run(drive.trim(5000 * BLOCK, BLOCK, false)), Err(Error::BackingFull));
    // A flush waits for a limited time.
    assert_eq!(tasks.give_up(drive.flush(), 100), None);
    ticks(&drive, &tasks, PATIENCE);
    assert_eq!(tasks.run(drive.flush()), Err(Error::BackingFull));
    // Background work does not run in vain.
    let works = (0..100).take_while(|_| tasks.run(drive.maintain()) == Ok(true)).count();
    assert!(works < 100, "a new drive discards what is free, and no more");
    let attempts = media.attempts.lock().len();
    ticks(&drive, &tasks, 160);
    assert!(
        media.attempts.lock().len() - attempts <= 10 * (written as usize / 32 + 2),
        "of {written} blocks"
    );

    media.full.store(false, SeqCst);
    ticks(&drive, &tasks, PATIENCE);
    assert!(!drive.status().backing_full);
    assert_eq!(tasks.run(drive.flush()), Ok(()));
    tasks.run(drive.write(6000 * BLOCK, &data(6000), true)).expect("write");
    drop(drive);
    let drive = tasks.open(&media, |_| ());
    must_hold(&drive, &tasks, 0..written);
    must_hold(&drive, &tasks, 6000..6001);
    assert_eq!(tasks.run(drive.check(true)), Ok(Vec::new()));
}

#[test]
fn a_flush_that_waits_ends_when_there_is_room() {
    let (media, tasks, drive) = new_drive();
    media.full.store(true, SeqCst);
    write_until_refused(&drive, &tasks);
    let mut flush = std::pin::pin!(drive.flush());
    for _ in 0..10 {
        assert_eq!(faulty::poll(flush.as_mut()), None);
        ticks(&drive, &tasks, 1);
    }
    media.full.store(false, SeqCst);
    ticks(&drive, &tasks, 20);
    assert_eq!(tasks.run(flush), Ok(()));
}

#[test]
fn a_checkpoint_without_room_is_written_once_there_is() {
    let (media, tasks, drive) = new_drive();
    (0..64).for_each(|n| tasks.run(drive.write(n * BLOCK, &data(n), false)).expect("write"));
    tasks.run(drive.flush()).expect("flush");
    let before = drive.status().counters.checkpoints_count;
    media.full.store(true, SeqCst);
    assert_eq!(tasks.give_up(drive.checkpoint(), 1000), None);
    ticks(&drive, &tasks, PATIENCE);
    assert_eq!(tasks.run(drive.checkpoint()), Err(Error::BackingFull));
    media.full.store(false, SeqCst);
    ticks(&drive, &tasks, PATIENCE);
    tasks.run(drive.checkpoint()).expect("checkpoint");
    assert!(drive.status().counters.checkpoints_count > before);
    assert_eq!(drive.status().copies_not_taken_count, 0);
    drop(drive);
    must_hold(&tasks.open(&media, |_| ()), &tasks, 0..64);
}

/// There are no more ticks during the close, and none yet during the opening.
#[test]
fn closing_and_opening_without_room_fail_at_once_and_lose_nothing_durable() {
    let (media, tasks, drive) = new_drive();
    (0..64).for_each(|n| tasks.run(drive.write(n * BLOCK, &data(n), false)).expect("write"));
    tasks.run(drive.flush()).expect("flush");
    media.full.store(true, SeqCst);
    tasks.run(drive.write(100 * BLOCK, &data(100), false)).expect("write");
    assert_eq!(tasks.run(drive.close()), Err(Error::BackingFull));
    drop(drive);
    let options = drive::OpenOptions::new(9, tasks.spawner());
    assert_eq!(tasks.run(Drive::open(erased(media.clone()), options)).err(), Some(Error::BackingFull));
    let read_only = tasks.open(&media, |options| options.read_only = true);
    must_hold(&read_only, &tasks, 0..64);
    drop(read_only);
    media.full.store(false, SeqCst);
    must_hold(&tasks.open(&media, |_| ()), &tasks, 0..64);
}

/// Counts its wakes.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicU64);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A server stops its clock before it closes the drive. Requests that wait for space by then are woken, and
/// try once more.
#[test]
fn when_time_ends_nobody_waits_for_room_any_more() {
    let (media, tasks, drive) = new_drive();
    (0..64).for_each(|n| tasks.run(drive.write(n * BLOCK, &data(n), false)).expect("write"));
    tasks.run(drive.flush()).expect("flush");
    media.full.store(true, SeqCst);
    let woken = Arc::new(Woken::default());
    let waker = std::task::Waker::from(woken.clone());
    let mut context = std::task::Context::from_waker(&waker);
    let mut checkpoint = std::pin::pin!(drive.checkpoint());
    for _ in 0..10 {
        assert!(checkpoint.as_mut().poll(&mut context).is_pending());
        (0..4).for_each(|_| tasks.turn());
    }
    let before = woken.0.load(SeqCst);
    drive.stop_waiting_for_room();
    (0..4).for_each(|_| tasks.turn());
    assert!(woken.0.load(SeqCst) > before, "nobody is woken");
    let answer = checkpoint.as_mut().poll(&mut context);
    assert_eq!(answer, std::task::Poll::Ready(Err(Error::BackingFull)));
    // There is space by the time the drive is closed.
    media.full.store(false, SeqCst);
    assert_eq!(tasks.run(drive.close()), Ok(()));
    must_hold(&tasks.open(&media, |_| ()), &tasks, 0..64);
}

/// Without ticks, requests do not wait for space.
#[test]
fn without_a_clock_a_growth_is_refused_at_once_and_undone() {
    let (media, tasks, drive) = new_drive();
    drop(drive);
    let drive = tasks.open(&media, |_| ());
    (0..64).for_each(|n| tasks.run(drive.write(n * BLOCK, &data(n), false)).expect("write"));
    media.full.store(true, SeqCst);
    assert_eq!(tasks.run(drive.set_logical_capacity(64 << 20)), Err(Error::BackingFull));
    let status = drive.status();
    assert_eq!((status.state, status.logical_capacity_bytes), (drive::State::Online, 32 << 20));
    media.full.store(false, SeqCst);
    assert_eq!(tasks.run(drive.close()), Ok(()));
    let drive = tasks.open(&media, |_| ());
    assert_eq!(drive.status().logical_capacity_bytes, 32 << 20);
    must_hold(&drive, &tasks, 0..64);
}
