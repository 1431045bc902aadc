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

/// Position of a pass, and when the next work may be done.
#[derive(Default)]
pub(super) struct Pass {
    /// Next block of the pass; `None` between passes.
    pub(super) next: Option<u64>,
    pub(super) found: bool,
    /// State for which the last pass found nothing on the whole drive. While it is unchanged, another pass would
    /// find nothing either.
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
        if resting || self.nothing == Some(reason) {
            return None;
        }
        debug_assert!(self.next.is_none(), "a pass begins when none is under way");
        self.nothing = None;
        self.found = false;
        self.begun = Some(reason);
        Some(0)
    }
}

/// Returns the number of packs after which untouched data counts as cold, for a drive with this size of segments that
/// has written `written_bytes` in `sequence` packs.
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
