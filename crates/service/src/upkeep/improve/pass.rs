//! Passes over a drive: what is cold, and when another pass may find something.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::watch::requests::Requests;

/// A drive that was not written for this long is settled completely.
const IDLE: Duration = Duration::from_secs(30);
/// Data is cold once this part of the packs that fill a drive was written after it.
const COLD_PART: u64 = 4;
/// Smallest and largest assumed size of a pack.
const PACK_BYTES: (u64, u64) = (4 << 10, 512 << 10);

/// Bytes that a pass may write to the backing for each byte that it gains, on an idle drive: on a full drive
/// cleaning has to move many bytes for each that settling writes.
const PRICE_MAX: u64 = 64;
/// Bytes written before the price is judged. It is all that a pass writes if nothing is gained.
const UNJUDGED_BYTES: u64 = 4 << 20;

/// Cost and gain of a pass.
#[derive(Default)]
pub(super) struct Cost {
    /// Bytes written to the backing before it began; `None`: it has not begun.
    from_bytes: Option<u64>,
    pub(super) gained_bytes: u64,
    /// A pass was too dear. None is begun before hosts have written so much.
    wait_until_written: Option<u64>,
}

impl Cost {
    /// Hosts have written so much in all.
    pub(super) fn note_host_written(&mut self, host_written_bytes: u64) {
        self.wait_until_written = self.wait_until_written.filter(|until| host_written_bytes < *until);
    }

    pub(super) fn count(&mut self, gained_bytes: u64) {
        self.gained_bytes += gained_bytes;
    }

    /// Writes so far are not counted: hosts wrote too.
    pub(super) fn begin_anew(&mut self) {
        (self.from_bytes, self.gained_bytes) = (None, 0);
    }

    /// Returns whether the pass has cost too much by now. `written_bytes`: total bytes written to the
    /// backing.
    pub(super) fn is_too_high(&mut self, written_bytes: u64) -> bool {
        let from = *self.from_bytes.get_or_insert(written_bytes);
        written_bytes.saturating_sub(from) > UNJUDGED_BYTES + PRICE_MAX * self.gained_bytes
    }
}

/// Position of a pass, and when the next work may be done.
#[derive(Default)]
pub(super) struct Pass {
    /// Next block of the pass; `None` between passes.
    pub(super) next: Option<u64>,
    pub(super) found: bool,
    pub(super) cost: Cost,
    /// State for which the last pass found nothing on the whole drive. While it is unchanged, another pass
    /// would find nothing either.
    pub(super) nothing: Option<Reason>,
    pub(super) begun: Option<Reason>,
    /// Earliest time of another pass for a reason of this kind.
    pub(super) rest_until: Option<Instant>,
    pub(super) not_before: Option<Instant>,
    /// Processor time for which the rest was taken or is owed; `None`: time used before now is not counted.
    pub(super) counted: Option<Duration>,
    /// Rest time that is still owed.
    pub(super) owed: Duration,
    pub(super) forget_at: Option<Instant>,
    /// When it was asked whether the file system under the drive has room, and the answer: it has little.
    pub(super) room_asked_at: Option<Instant>,
    pub(super) is_short: bool,
    /// The last work in the background was to cut hot frames.
    pub(super) cut_last: bool,
    /// Position of settling again.
    pub(super) again: Option<u64>,
    /// Adoption of dictionaries for which settling again is done, or not worth it.
    pub(super) again_done: u64,
    pub(super) survey_at: Option<Instant>,
    /// Amount written at the last survey.
    pub(super) surveyed: u64,
    /// Writes and trims seen, and the time of the last one.
    pub(super) seen: u64,
    pub(super) quiet_since: Option<Instant>,
}

/// State that determines whether there is something to settle.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reason {
    /// Everything may be settled; amount written.
    All(u64),
    /// Data older than this number of packs may be settled; number of packs.
    Old(u64, u64),
}

impl Pass {
    /// Returns the part of the state that remains valid while nothing may be done.
    pub(super) fn switched_off(&self) -> Pass {
        Pass {
            seen: self.seen,
            quiet_since: self.quiet_since,
            again_done: self.again_done,
            ..Pass::default()
        }
    }

    pub(super) fn look_at_hosts(&mut self, requests: &Requests, now: Instant) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seen = of(&requests.writes) + of(&requests.trims);
        if seen != self.seen || self.quiet_since.is_none() {
            self.seen = seen;
            self.quiet_since = Some(now);
        }
    }

    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.quiet_since.is_some_and(|since| now.saturating_duration_since(since) >= IDLE)
    }

    /// Begins a pass, unless nothing could be found again, or nothing was found a moment ago.
    pub(super) fn begin(&mut self, reason: Reason, now: Instant) -> Option<u64> {
        let same = |before: &Reason| matches!(before, Reason::All(_)) == matches!(reason, Reason::All(_));
        let resting =
            self.rest_until.is_some_and(|until| now < until) && self.nothing.as_ref().is_some_and(same);
        if resting || self.nothing == Some(reason) || self.cost.wait_until_written.is_some() {
            return None;
        }
        debug_assert!(self.next.is_none(), "a pass begins when none is under way");
        self.nothing = None;
        self.found = false;
        self.cost = Cost::default();
        self.begun = Some(reason);
        Some(0)
    }

    /// Ends a pass that costs too much.
    pub(super) fn give_up(&mut self, until_host_written_bytes: u64) {
        self.next = None;
        self.found = false;
        self.cost = Cost { wait_until_written: Some(until_host_written_bytes), ..Cost::default() };
    }
}

/// Returns the number of packs after which untouched data counts as cold, for a drive with this size of
/// segments that has written `written_bytes` in `sequence` packs.
pub(super) fn cold_packs(segments_bytes: u64, written_bytes: u64, sequence: u64) -> u64 {
    let (least, most) = PACK_BYTES;
    let pack_bytes = written_bytes.checked_div(sequence).unwrap_or(most).clamp(least, most);
    segments_bytes / pack_bytes / COLD_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_secs(60);

    #[test]
    fn cold_is_what_a_quarter_of_the_drive_was_written_after() {
        // 1 GiB in packs of 64 KiB: 16384 of them.
        assert_eq!(cold_packs(1 << 30, 10 << 30, 163_840), 4096);
        // Nothing known: large packs, so that data counts as cold early.
        assert_eq!(cold_packs(1 << 30, 0, 0), 512);
        // Sequence numbers outlive a wipe, the counter does not.
        assert_eq!(cold_packs(1 << 30, 0, 1000), 65_536);
    }

    #[test]
    fn a_pass_that_found_nothing_is_not_repeated_for_the_same_reason() {
        let (mut pass, now) = (Pass::default(), Instant::now());
        assert_eq!(pass.begin(Reason::All(7), now), Some(0));
        pass.nothing = pass.begun;
        assert_eq!(pass.begin(Reason::All(7), now), None);
        assert_eq!(pass.begin(Reason::All(8), now), Some(0), "something was written");
        pass.nothing = Some(Reason::Old(10, 100));
        assert_eq!(pass.begin(Reason::Old(10, 100), now), None);
        assert_eq!(pass.begin(Reason::Old(10, 101), now), Some(0));
    }

    #[test]
    fn a_pass_that_found_nothing_is_rested_from_unless_the_drive_becomes_idle() {
        let (mut pass, now) = (Pass::default(), Instant::now());
        assert_eq!(pass.begin(Reason::Old(10, 100), now), Some(0));
        (pass.nothing, pass.rest_until) = (pass.begun, Some(now + REST));
        assert_eq!(pass.begin(Reason::Old(10, 101), now), None);
        assert_eq!(pass.begin(Reason::All(3), now), Some(0));
        (pass.nothing, pass.rest_until) = (Some(Reason::Old(10, 100)), Some(now + REST));
        assert_eq!(pass.begin(Reason::Old(10, 101), now + REST), Some(0));
    }

    #[test]
    fn a_pass_that_costs_too_much_ends_until_hosts_have_written_much() {
        let (mut pass, now) = (Pass::default(), Instant::now());
        let before = 7 << 30;
        assert_eq!(pass.begin(Reason::All(7), now), Some(0));
        assert!(!pass.cost.is_too_high(before), "it begins");
        pass.cost.count(1 << 20);
        assert!(!pass.cost.is_too_high(before + UNJUDGED_BYTES + (PRICE_MAX << 20)), "it gained as much");
        assert!(pass.cost.is_too_high(before + UNJUDGED_BYTES + (PRICE_MAX << 20) + 1));
        pass.give_up(1000);
        assert_eq!(pass.next, None);
        pass.cost.note_host_written(999);
        assert_eq!(pass.begin(Reason::All(8), now), None);
        pass.cost.note_host_written(1000);
        assert_eq!(pass.begin(Reason::All(8), now), Some(0));
        assert!(!pass.cost.is_too_high(before), "counted anew");
    }

    #[test]
    fn a_drive_is_idle_half_a_minute_after_the_last_write() {
        let (mut pass, requests, start) = (Pass::default(), Requests::new(1), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        pass.look_at_hosts(&requests, at(0));
        assert!(!pass.is_quiet(at(29)) && pass.is_quiet(at(30)));
        requests.writes.fetch_add(1, Ordering::Relaxed);
        pass.look_at_hosts(&requests, at(31));
        requests.reads.fetch_add(1, Ordering::Relaxed);
        pass.look_at_hosts(&requests, at(40));
        assert!(!pass.is_quiet(at(60)) && pass.is_quiet(at(61)));
    }
}
