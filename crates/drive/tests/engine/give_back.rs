//! The backing gets back what the drive does not need: 30 s after the last TRIM, and after each close, it
//! holds what is used, and little more.

use crate::common;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{Drive, Error};
use faulty::{Faulty, Tasks};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const PHYSICAL: u64 = 192 * MIB;
/// What is written and deleted.
const BIG: u64 = 80 * MIB;
/// Bytes of a write.
const PIECE: u64 = 256 << 10;
const TICKS_A_SECOND: u64 = 100;
/// More than what is used, that the backing may hold.
const MORE: u64 = 20 * MIB;

struct Host {
    media: Arc<Faulty>,
    tasks: Tasks,
    drive: Option<Drive<Erased>>,
}

impl Host {
    fn new() -> Host {
        let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
        tasks.run(Drive::create(&*media, &create_options(PHYSICAL, 2 * PHYSICAL))).expect("create");
        let mut host = Host { media, tasks, drive: None };
        host.open();
        host
    }

    fn open(&mut self) {
        self.drive = Some(self.tasks.open(&self.media, |options| options.full_backing_patience_ticks = 40));
    }

    fn drive(&self) -> &Drive<Erased> {
        self.drive.as_ref().expect("it is open")
    }

    fn kill(&mut self) {
        self.drive = None;
        self.tasks = Tasks::default();
        self.open();
    }

    fn close(&mut self) {
        self.tasks.run(self.drive().close()).expect("close");
        while self.tasks.run(self.drive().discard_closed()) {}
    }

    /// A server's background for some time.
    fn pass(&self, ticks: u64) {
        for _ in 0..ticks {
            self.drive().tick();
            for _ in 0..8 {
                if !self.tasks.run(self.drive().maintain()).expect("maintain") {
                    break;
                }
                self.tasks.turn();
            }
            self.tasks.turn();
        }
    }

    fn write(&self, at: u64, len: u64) {
        for offset in (at..at + len).step_by(PIECE as usize) {
            let data = random(offset, PIECE.min(at + len - offset) as usize);
            self.tasks.run(self.drive().write(offset, &data, false)).expect("write");
        }
        self.tasks.run(self.drive().flush()).expect("flush");
    }

    fn trim(&self, at: u64, len: u64) {
        self.tasks.run(self.drive().trim(at, len, false)).expect("trim");
    }

    fn must_hold(&self, at: u64, len: u64) {
        let mut read = vec![0; len as usize];
        self.tasks.run(self.drive().read(at, &mut read)).expect("read");
        assert!(read == random(at, len as usize));
    }

    #[track_caller]
    fn must_have_given_back(&self, what: &str) {
        let (held, status) = (self.media.held_bytes(), self.drive().status());
        let (used, fixed) = (status.physical_used_bytes, status.physical_fixed_bytes);
        assert!(
            held <= used + fixed + MORE,
            "{what}: {held} bytes held, {used} used, {} segments free",
            status.segments_free_count
        );
    }

    /// Nothing is done for ever.
    #[track_caller]
    fn must_come_to_rest(&self) {
        let writes = self.media.writes.load(SeqCst);
        let discards = self.media.discards.load(SeqCst);
        self.pass(60 * TICKS_A_SECOND);
        assert_eq!(self.media.writes.load(SeqCst), writes, "it writes for ever");
        assert_eq!(self.media.discards.load(SeqCst), discards, "it discards for ever");
    }
}

/// What happens between the writes and the TRIM, or after it.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Close,
    Kill,
}

impl Between {
    fn happen(self, host: &mut Host) {
        match self {
            Between::Nothing => {}
            Between::Close => {
                host.close();
                host.open();
            }
            Between::Kill => host.kill(),
        }
    }
}

#[test]
fn what_was_deleted_comes_back_after_pauses_restarts_and_kills() {
    for seconds in [0, 1, 2, 10] {
        for before in [Between::Nothing, Between::Close, Between::Kill] {
            for after in [Between::Nothing, Between::Kill] {
                let what = format!("pause of {seconds} s, {before:?}, TRIM, {after:?}");
                let mut host = Host::new();
                host.write(0, PIECE);
                host.write(MIB, BIG);
                host.pass(seconds * TICKS_A_SECOND);
                before.happen(&mut host);
                host.pass(seconds * TICKS_A_SECOND);
                host.trim(MIB, BIG);
                host.tasks.run(host.drive().flush()).expect("flush");
                after.happen(&mut host);
                let checkpoints = host.drive().status().counters.checkpoints_count;
                host.pass(30 * TICKS_A_SECOND);
                host.must_have_given_back(&what);
                let checkpoints = host.drive().status().counters.checkpoints_count - checkpoints;
                assert!(checkpoints <= 4, "{what}: {checkpoints} checkpoints");
                host.must_come_to_rest();
                host.must_hold(0, PIECE);
            }
        }
    }
}

#[test]
fn a_close_gives_back_at_once() {
    for before in [Between::Nothing, Between::Close, Between::Kill] {
        let mut host = Host::new();
        host.write(MIB, BIG);
        before.happen(&mut host);
        host.trim(MIB, BIG);
        host.close();
        host.must_have_given_back(&format!("{before:?}, TRIM, close"));
        host.open();
        assert!(host.drive().status().recovered.clean);
    }
}

/// A discard is not remembered over a restart, so it is done again.
#[test]
fn a_restart_right_after_a_close_that_had_no_time_gives_back() {
    let mut host = Host::new();
    host.write(MIB, BIG);
    host.trim(MIB, BIG);
    host.tasks.run(host.drive().close()).expect("close");
    assert!(host.media.held_bytes() > BIG, "a close alone discards nothing");
    host.open();
    host.pass(30 * TICKS_A_SECOND);
    host.must_have_given_back("opened");
    host.must_come_to_rest();
}

#[test]
fn the_newest_checkpoint_may_be_lost_after_a_close() {
    let mut host = Host::new();
    host.write(0, 4 * MIB);
    host.write(4 * MIB, BIG);
    host.trim(4 * MIB, BIG);
    host.close();
    let number = host.drive().status().checkpoint_number;
    let geometry = layout::Geometry::new(PHYSICAL, None).expect("geometry");
    for offset in geometry.checkpoint_offsets(number) {
        let blank = Arc::new(media::IoBuf::zeroed(BLOCK as usize));
        host.tasks.run(media::Media::write(&*host.media, offset, blank)).expect("write");
    }
    host.open();
    for at in (0..4 * MIB).step_by(PIECE as usize) {
        host.must_hold(at, PIECE);
    }
    assert_eq!(host.tasks.run(host.drive().check(true)), Ok(Vec::new()));
}

#[test]
fn a_full_backing_gets_it_back_once_there_is_room() {
    let mut host = Host::new();
    host.write(MIB, BIG);
    host.media.full.store(true, SeqCst);
    let mut at = MIB + BIG;
    loop {
        match host.tasks.run(host.drive().write(at, &random(at, PIECE as usize), false)) {
            Ok(()) => at += PIECE,
            Err(Error::BackingFull) => break,
            Err(error) => panic!("{error}"),
        }
        host.tasks.turn();
        assert!(at < PHYSICAL, "nothing was refused");
    }
    host.pass(10 * TICKS_A_SECOND);
    host.media.full.store(false, SeqCst);
    host.pass(TICKS_A_SECOND);
    host.trim(MIB, at);
    host.pass(30 * TICKS_A_SECOND);
    host.must_have_given_back("room was made");
    host.close();
    host.must_have_given_back("closed");
}

/// A file system that copies on write may have no room for the discard itself.
#[test]
fn a_discard_without_room_is_tried_again() {
    let host = Host::new();
    host.write(MIB, BIG);
    host.media.full_discards.store(true, SeqCst);
    host.trim(MIB, BIG);
    host.pass(30 * TICKS_A_SECOND);
    assert!(host.media.held_bytes() > BIG);
    let discards = host.media.discards.load(SeqCst);
    assert!((2..=10).contains(&discards), "{discards} attempts in 30 s");
    host.media.full_discards.store(false, SeqCst);
    host.pass(10 * TICKS_A_SECOND);
    host.must_have_given_back("room was made");
    host.must_come_to_rest();
}

/// A host that writes a little all the time: the drive is never idle.
#[test]
fn a_drive_that_is_never_idle_gives_much_back() {
    let host = Host::new();
    host.write(MIB, BIG);
    host.trim(MIB, BIG);
    for n in 0..3 * TICKS_A_SECOND {
        host.tasks.run(host.drive().write(n % 16 * BLOCK, &random(n, BLOCK as usize), false)).expect("write");
        host.pass(10);
    }
    host.must_have_given_back("busy");
    let status = host.drive().status();
    assert!(status.counters.checkpoints_count < 20, "{}", status.counters.checkpoints_count);
}

/// A little of each segment lives: moving it costs less than what comes back.
#[test]
fn thin_segments_are_cleaned_on_a_quiet_drive() {
    let mut host = Host::new();
    host.write(0, BIG);
    host.close();
    host.open();
    // One block of 64 KiB stays.
    for at in (0..BIG).step_by(64 << 10) {
        host.trim(at + BLOCK, (64 << 10) - BLOCK);
    }
    host.tasks.run(host.drive().flush()).expect("flush");
    let before = host.drive().status().counters.physical_written_bytes;
    host.pass(30 * TICKS_A_SECOND);
    host.must_have_given_back("thin");
    let written = host.drive().status().counters.physical_written_bytes - before;
    assert!(written < 16 * MIB, "{written} bytes written to give {} back", BIG - BIG / 16);
    host.must_come_to_rest();
    // Segments of which more than three quarters live are left alone.
    let host = Host::new();
    host.write(0, BIG);
    for at in (0..BIG).step_by(32 << 10) {
        host.trim(at, BLOCK);
    }
    host.tasks.run(host.drive().flush()).expect("flush");
    host.pass(TICKS_A_SECOND);
    let before = host.drive().status().counters.physical_written_bytes;
    host.pass(30 * TICKS_A_SECOND);
    let written = host.drive().status().counters.physical_written_bytes - before;
    assert!(written < MIB, "{written} bytes written for nothing");
}

/// What is dead in segments that are half alive comes back, too, for at most three bytes written for each.
#[test]
fn what_died_in_pieces_comes_back() {
    for (piece, dead) in [(256 << 10, 128 << 10), (MIB, 480 << 10), (4 * MIB, 3 * MIB), (16 << 10, 2 * BLOCK)]
    {
        let mut host = Host::new();
        host.write(0, BIG);
        for at in (0..BIG).step_by(piece as usize) {
            host.trim(at, dead / BLOCK * BLOCK);
        }
        host.tasks.run(host.drive().flush()).expect("flush");
        host.pass(30 * TICKS_A_SECOND);
        let what = format!("{dead} of each {piece} bytes");
        host.must_have_given_back(&what);
        let status = host.drive().status();
        let given = BIG.saturating_sub(host.media.held_bytes());
        assert!(
            status.counters.cleaning_written_bytes <= 3 * given + MIB,
            "{what}: {} bytes moved to give {given} back",
            status.counters.cleaning_written_bytes
        );
        host.must_come_to_rest();
        host.close();
        host.must_have_given_back(&what);
    }
}

/// A log line now and then, as below a file system that commits its journal every few seconds, keeps nothing.
#[test]
fn a_host_that_writes_a_little_now_and_then_keeps_nothing() {
    let host = Host::new();
    host.write(0, BIG);
    for at in (0..BIG).step_by(2 << 20) {
        host.trim(at, 7 * (256 << 10));
    }
    host.tasks.run(host.drive().flush()).expect("flush");
    for n in 0..12 {
        let data = random(n, BLOCK as usize);
        host.tasks.run(host.drive().write(BIG + n * BLOCK, &data, false)).expect("write");
        host.tasks.run(host.drive().flush()).expect("flush");
        host.pass(5 * TICKS_A_SECOND / 2);
    }
    host.must_have_given_back("one block every 2.5 s");
    host.must_come_to_rest();
}
