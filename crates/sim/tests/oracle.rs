//! The rules of the oracle, one per test.

use sim::content::{self, Filler, SECTOR_BYTES};
use sim::oracle::{Kind, LifeEnd, Oracle};

/// A drive of 16 sectors in memory, and its oracle.
struct Story {
    oracle: Oracle,
    data: Vec<u8>,
}

impl Story {
    fn new() -> Story {
        Story { oracle: Oracle::new(), data: vec![0; 16 * SECTOR_BYTES] }
    }

    /// Begins a write. Returns its number and data.
    fn begin(&mut self, first: u64, count: u64) -> (u32, Vec<u8>) {
        let number = self.oracle.begin_write(Kind::Write, first, count, Filler::Text);
        let mut bytes = vec![0; count as usize * SECTOR_BYTES];
        content::fill(&mut bytes, first, number, Filler::Text);
        (number, bytes)
    }

    /// Performs a whole write that takes effect.
    fn write(&mut self, first: u64, count: u64) -> u32 {
        let (number, bytes) = self.begin(first, count);
        self.put(first, &bytes);
        self.oracle.acknowledge(number, false);
        number
    }

    fn put(&mut self, first: u64, bytes: &[u8]) {
        let from = first as usize * SECTOR_BYTES;
        self.data[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn flush(&mut self) {
        let began = self.oracle.begin_flush();
        self.oracle.end_flush(began);
    }

    fn read(&mut self) -> Result<(), String> {
        let reading = self.oracle.begin_read(0, 16);
        self.oracle.end_read(&reading, &self.data).map_err(|violation| violation.0)
    }

    fn restart(&mut self, end: LifeEnd) -> Result<(), String> {
        let seen = self.oracle.observe(0, 16, Some(&self.data));
        seen.and_then(|()| self.oracle.resolve(end)).map_err(|violation| violation.0)
    }
}

fn assert_broken(result: Result<(), String>, what: &str) {
    let why = result.expect_err(what);
    assert!(why.contains(what), "wanted {what:?}, got: {why}");
}

#[test]
fn an_acknowledged_write_must_be_read() {
    let mut story = Story::new();
    let old = story.data.clone();
    story.write(0, 8);
    assert_eq!(story.read(), Ok(()));
    story.data = old;
    assert_broken(story.read(), "sector 0 holds zeros");
}

#[test]
fn a_write_in_flight_may_be_read_sector_by_sector_but_not_unread() {
    let mut story = Story::new();
    let (_, bytes) = story.begin(0, 2);
    assert_eq!(story.read(), Ok(()));
    story.put(0, &bytes[..SECTOR_BYTES]);
    assert_eq!(story.read(), Ok(()));
    story.data.fill(0);
    assert_broken(story.read(), "sector 0 holds zeros");
}

#[test]
fn a_misplaced_sector_is_not_what_was_written() {
    let mut story = Story::new();
    story.write(0, 2);
    story.data.copy_within(0..SECTOR_BYTES, SECTOR_BYTES);
    assert_broken(story.read(), "sector 1 holds sector 0 of");
}

#[test]
fn a_refused_write_must_not_be_there() {
    let mut story = Story::new();
    let (number, bytes) = story.begin(0, 2);
    assert_eq!(story.oracle.refuse(number), Ok(()));
    assert_eq!(story.read(), Ok(()));
    story.put(0, &bytes);
    assert_broken(story.read(), "refused");
}

#[test]
fn what_was_not_flushed_may_be_lost() {
    let mut story = Story::new();
    story.write(0, 8);
    story.data.fill(0);
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
}

#[test]
fn what_was_flushed_or_closed_may_not_be_lost() {
    for end in [LifeEnd::Crash, LifeEnd::Closed] {
        let mut story = Story::new();
        story.write(0, 8);
        if end == LifeEnd::Crash {
            story.flush();
        }
        story.data.fill(0);
        assert_broken(story.restart(end), "a durable write was lost");
    }
}

#[test]
fn a_write_acknowledged_during_a_flush_is_not_durable_yet() {
    let mut story = Story::new();
    let began = story.oracle.begin_flush();
    story.write(0, 8);
    story.oracle.end_flush(began);
    story.data.fill(0);
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
}

#[test]
fn a_write_is_there_wholly_or_not_at_all() {
    let mut story = Story::new();
    story.write(0, 8);
    story.data[3 * SECTOR_BYTES..].fill(0);
    assert_broken(story.restart(LifeEnd::Crash), "an atomic write was torn");
}

#[test]
fn a_part_that_was_overwritten_is_not_torn() {
    let mut story = Story::new();
    story.write(0, 8);
    story.write(2, 2);
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
}

#[test]
fn what_survives_is_a_prefix() {
    let mut story = Story::new();
    let before = story.data.clone();
    story.write(0, 2);
    story.data = before;
    story.write(8, 2);
    assert_broken(story.restart(LifeEnd::Crash), "acknowledged before a surviving one began");
}

#[test]
fn of_concurrent_writes_either_may_survive_alone() {
    let mut story = Story::new();
    let (first, _) = story.begin(0, 2);
    story.write(8, 2);
    story.oracle.acknowledge(first, false);
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
}

#[test]
fn concurrent_writes_have_one_order_everywhere() {
    let mut story = Story::new();
    let (a, a_bytes) = story.begin(0, 4);
    let (b, b_bytes) = story.begin(0, 4);
    story.oracle.acknowledge(a, false);
    story.oracle.acknowledge(b, false);
    story.put(0, &a_bytes[..2 * SECTOR_BYTES]);
    story.put(2, &b_bytes[2 * SECTOR_BYTES..]);
    assert_broken(story.restart(LifeEnd::Crash), "no order of whole writes");
}

#[test]
fn the_order_a_reader_saw_is_the_order() {
    let mut story = Story::new();
    let (a, a_bytes) = story.begin(0, 1);
    let (b, b_bytes) = story.begin(0, 1);
    story.oracle.acknowledge(a, false);
    story.oracle.acknowledge(b, false);
    story.put(0, &b_bytes);
    assert_eq!(story.read(), Ok(()));
    story.flush();
    story.put(0, &a_bytes);
    assert_broken(story.restart(LifeEnd::Crash), "no order of whole writes");
}

#[test]
fn what_was_shown_after_a_restart_stays() {
    let mut story = Story::new();
    story.write(0, 8);
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
    story.data.fill(0);
    assert_broken(story.restart(LifeEnd::Crash), "sector 0 holds zeros");
}

#[test]
fn what_was_lost_in_a_crash_stays_lost() {
    let mut story = Story::new();
    story.write(0, 8);
    let written = std::mem::replace(&mut story.data, vec![0; 16 * SECTOR_BYTES]);
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
    story.data = written;
    assert_broken(story.restart(LifeEnd::Crash), "before the last restart");
}

#[test]
fn a_trim_is_a_write_of_zeros() {
    let mut story = Story::new();
    story.write(0, 8);
    let trim = story.oracle.begin_write(Kind::Trim, 0, 8, Filler::Zero);
    story.oracle.acknowledge(trim, true);
    assert_broken(story.restart(LifeEnd::Crash), "a durable write was lost: Trim");
    story.data.fill(0);
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
}

#[test]
fn what_cannot_be_read_back_may_be_any_of_its_values() {
    let mut story = Story::new();
    story.write(0, 8);
    assert!(story.oracle.observe(0, 16, None).and_then(|()| story.oracle.resolve(LifeEnd::Crash)).is_ok());
    assert_eq!(story.read(), Ok(()));
    story.data[..8 * SECTOR_BYTES].fill(0);
    assert_eq!(story.read(), Ok(()));
    story.data[..8 * SECTOR_BYTES].fill(9);
    assert_broken(story.read(), "sector 0 holds fill");
}

#[test]
fn a_write_that_was_given_up_may_be_there_or_not() {
    for happened in [false, true] {
        let mut story = Story::new();
        let (number, bytes) = story.begin(0, 8);
        story.oracle.drop_write(number);
        if happened {
            story.put(0, &bytes);
        }
        story.flush();
        assert_eq!(story.read(), Ok(()));
        assert_eq!(story.restart(LifeEnd::Closed), Ok(()));
    }
}

#[test]
fn a_write_that_was_given_up_is_there_wholly_or_not_at_all() {
    let mut story = Story::new();
    let (number, bytes) = story.begin(0, 8);
    story.oracle.drop_write(number);
    story.put(0, &bytes[..3 * SECTOR_BYTES]);
    assert_broken(story.restart(LifeEnd::Crash), "an atomic write was torn");
}

#[test]
fn a_write_that_was_given_up_does_not_come_back_over_a_later_one() {
    let mut story = Story::new();
    let (number, bytes) = story.begin(0, 8);
    story.oracle.drop_write(number);
    story.write(0, 8);
    assert_eq!(story.read(), Ok(()));
    story.put(0, &bytes);
    assert_broken(story.read(), "given up");
}

#[test]
fn a_write_that_was_given_up_need_not_survive_what_came_after() {
    let mut story = Story::new();
    let (number, _) = story.begin(0, 8);
    story.oracle.drop_write(number);
    story.write(8, 2);
    story.flush();
    assert_eq!(story.restart(LifeEnd::Crash), Ok(()));
}
