//! Events of a drive, each reported once: levels of space in use, writes refused for lack of space, poison,
//! corrupt records, repaired and lost pages, segments set aside, a backing that was truncated, deleted or
//! moved.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use status::{BackingPlace, EventCount, EventKind, EventsReport, RecentEvent, unix_seconds};

use crate::watch::error_counts::{ErrorCounts, Rising};

/// A level counts as left when usage is this much below it, because space in use fluctuates.
const HYSTERESIS_PERCENT: f64 = 2.0;
/// Most levels.
const LEVELS_MAX: usize = 16;
/// Space is back when no write was refused for this long.
const QUIET: Duration = Duration::from_secs(10);
/// Advice for data that cannot be read.
const DAMAGE: &str = "keep the drive served: `pumice check --deep` names the blocks, to be restored from a backup; \
                      check the backing (docs/how-to/backing-trouble.md)";
/// Events remembered for the status.
const REMEMBERED: usize = 16;

/// Receives events from other parts of the service: a kind and a one-line message.
pub(crate) type EventSink = Box<dyn Fn(EventKind, String) + Send + Sync>;

/// Levels of physical space in use that cause an event, in percent, ascending. As text: `80,90,95`, or `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarnAt(Vec<u8>);

impl Default for WarnAt {
    fn default() -> WarnAt {
        WarnAt(vec![80, 90, 95])
    }
}

impl WarnAt {
    /// The levels.
    pub fn levels(&self) -> &[u8] {
        &self.0
    }

    /// Returns the highest level, from which on space is a critical warning; 95 if there are none.
    pub fn critical(&self) -> u8 {
        self.0.last().copied().unwrap_or(95)
    }
}

impl fmt::Display for WarnAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels: Vec<String> = self.0.iter().map(u8::to_string).collect();
        f.write_str(if levels.is_empty() { "off".to_string() } else { levels.join(",") }.as_str())
    }
}

impl FromStr for WarnAt {
    type Err = WarnAtError;

    fn from_str(text: &str) -> Result<WarnAt, WarnAtError> {
        if text == "off" {
            return Ok(WarnAt(Vec::new()));
        }
        let level = |text: &str| text.trim().parse().ok().filter(|level| (1..=100).contains(level));
        let levels: Option<Vec<u8>> = text.split(',').map(level).collect();
        match levels {
            Some(levels) if levels.is_sorted_by(|a, b| a < b) && levels.len() <= LEVELS_MAX => {
                Ok(WarnAt(levels))
            }
            _ => Err(WarnAtError),
        }
    }
}

/// A text that is no list of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected up to {LEVELS_MAX} whole percentages from 1 to 100, rising, such as 80,90,95, or off")]
pub struct WarnAtError;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// Kind.
    pub(crate) kind: EventKind,
    /// Time.
    pub(crate) at: SystemTime,
    /// One-line message, without any data stored on the drive.
    pub(crate) message: String,
    /// Physical space in use at that time, in percent of the limit.
    pub(crate) used_percent: f64,
    /// Space available at that time, including reclaimable space, in bytes.
    pub(crate) available_bytes: u64,
    /// The level that was reached or left.
    pub(crate) level_percent: Option<u8>,
}

/// An observation of the drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Since the drive was opened.
    pub(crate) at: Duration,
    pub(crate) used_percent: f64,
    pub(crate) available_bytes: u64,
    /// Too little space is left for the next write.
    pub(crate) out_of_space: bool,
    pub(crate) backing_full: bool,
    /// Number of times that the backing was full so far.
    pub(crate) backing_full_count: u64,
    /// Requests refused for lack of space so far.
    pub(crate) no_space_count: u64,
    /// Errors of the drive so far.
    pub(crate) errors: ErrorCounts,
    /// Bytes of the drive behind the end of its backing.
    pub(crate) missing_bytes: u64,
    /// Where the backing is.
    pub(crate) place: BackingPlace,
    /// Place on the backing of the page repaired last, and of the one last found to be lost.
    pub(crate) last_repaired_byte: Option<u64>,
    pub(crate) last_lost_byte: Option<u64>,
    /// So many pages were repaired lately that the backing seems to fail.
    pub(crate) backing_failing: bool,
    /// The reason, if the drive is poisoned.
    pub(crate) poisoned: Option<String>,
}

impl Seen {
    /// Creates an event of this time.
    pub(crate) fn event(&self, kind: EventKind, message: String) -> Event {
        Event {
            kind,
            at: SystemTime::now(),
            message,
            used_percent: self.used_percent,
            available_bytes: self.available_bytes,
            level_percent: None,
        }
    }
}

/// Compares each observation with the previous ones.
#[derive(Debug)]
pub(crate) struct Watcher {
    warn_at: WarnAt,
    /// Number of levels reached.
    reached: usize,
    out_of_space: bool,
    no_space_count: u64,
    backing_full_count: u64,
    /// Time at which writes were last seen to be refused.
    refused_at: Duration,
    corrupt_records: Rising,
    bad_segments: Rising,
    damaged_segments: Rising,
    repaired_pages: Rising,
    lost_pages: Rising,
    backing_failing: bool,
    truncated: bool,
    place: BackingPlace,
    poisoned: bool,
}

impl Watcher {
    /// Begins with the errors that a drive had before, which are not reported.
    pub(crate) fn new(warn_at: WarnAt, known: ErrorCounts) -> Watcher {
        Watcher {
            warn_at,
            reached: 0,
            out_of_space: false,
            no_space_count: 0,
            backing_full_count: 0,
            refused_at: Duration::ZERO,
            corrupt_records: Rising::from(known.corrupt_records),
            bad_segments: Rising::from(known.bad_segments),
            damaged_segments: Rising::from(known.damaged_segments),
            repaired_pages: Rising::from(known.repaired_pages),
            lost_pages: Rising::from(known.lost_pages),
            backing_failing: false,
            truncated: false,
            place: BackingPlace::InPlace,
            poisoned: false,
        }
    }

    /// The levels.
    pub(crate) fn warn_at(&self) -> &WarnAt {
        &self.warn_at
    }

    /// Returns the events since the last observation.
    pub(crate) fn observe(&mut self, seen: &Seen) -> Vec<Event> {
        let mut events = Vec::new();
        self.check_levels(seen, &mut events);
        self.check_refusals(seen, &mut events);
        self.check_errors(seen, &mut events);
        self.check_repairs(seen, &mut events);
        self.check_length(seen, &mut events);
        self.check_place(seen, &mut events);
        events
    }

    fn check_levels(&mut self, seen: &Seen, events: &mut Vec<Event>) {
        let levels = &self.warn_at.0;
        let of_level = |level: u8, kind, how: &str| {
            let mut message = format!("physical space in use is {how} {level} %: {:.2} %", seen.used_percent);
            if kind == EventKind::SpaceWarning {
                message += "; delete and trim data, or grow the drive by `pumice set-size` (docs/how-to/full-drive.md)";
            }
            Event { level_percent: Some(level), ..seen.event(kind, message) }
        };
        while let Some(level) = levels.get(self.reached)
            && seen.used_percent >= f64::from(*level)
        {
            self.reached += 1;
            events.push(of_level(*level, EventKind::SpaceWarning, "at or above"));
        }
        while let Some(level) = self.reached.checked_sub(1).and_then(|highest| levels.get(highest))
            && seen.used_percent < f64::from(*level) - HYSTERESIS_PERCENT
        {
            self.reached -= 1;
            events.push(of_level(*level, EventKind::SpaceWarningOver, "below"));
        }
        debug_assert!(self.reached <= levels.len(), "levels reached are among those configured");
    }

    fn check_refusals(&mut self, seen: &Seen, events: &mut Vec<Event>) {
        let refused = seen.no_space_count > self.no_space_count;
        self.no_space_count = seen.no_space_count;
        let backing_full = seen.backing_full || seen.backing_full_count > self.backing_full_count;
        self.backing_full_count = seen.backing_full_count;
        if seen.out_of_space || refused {
            self.refused_at = seen.at;
            if !self.out_of_space {
                let message = match backing_full {
                    true => {
                        "the file system or volume under the drive is full, or its file may not be larger: changes are \
                         refused; make room there (docs/how-to/full-drive.md)"
                    }
                    false => {
                        "out of physical space: writes are refused; delete and trim data, or grow the drive by `pumice \
                         set-size`; do not run fsck before (docs/how-to/full-drive.md)"
                    }
                };
                events.push(seen.event(EventKind::OutOfSpace, message.into()));
            }
            self.out_of_space = true;
        } else if self.out_of_space && seen.at.saturating_sub(self.refused_at) >= QUIET {
            events.push(
                seen.event(EventKind::SpaceBack, "there is physical space again: writes are accepted".into()),
            );
            self.out_of_space = false;
        }
    }

    fn check_length(&mut self, seen: &Seen, events: &mut Vec<Event>) {
        let truncated = seen.missing_bytes > 0;
        match (self.truncated, truncated) {
            (false, true) => {
                let message = format!(
                    "the backing was truncated: {} bytes of the drive are behind its end, where reads fail; unmount \
                     its devices and stop its other clients, find out what truncated it, and restore a copy \
                     (docs/how-to/backing-trouble.md)",
                    seen.missing_bytes
                );
                events.push(seen.event(EventKind::BackingTruncated, message));
            }
            (true, false) => {
                let message = "the backing is as long as the drive again; data in the part that was cut off may be \
                    lost: `pumice check --deep` names it, while the drive is served; restore that from a backup";
                events.push(seen.event(EventKind::BackingRestored, message.into()));
            }
            (true, true) | (false, false) => {}
        }
        self.truncated = truncated;
    }

    fn check_place(&mut self, seen: &Seen, events: &mut Vec<Event>) {
        if seen.place == self.place || seen.place == BackingPlace::Unknown {
            return;
        }
        self.place = seen.place;
        let kind = match seen.place {
            BackingPlace::Deleted => EventKind::BackingDeleted,
            BackingPlace::Moved | BackingPlace::Replaced => EventKind::BackingMoved,
            BackingPlace::InPlace | BackingPlace::Unknown => EventKind::BackingFound,
        };
        let message = seen.place.advice().unwrap_or("the path of the backing leads to it again");
        events.push(seen.event(kind, message.into()));
    }

    fn check_errors(&mut self, seen: &Seen, events: &mut Vec<Event>) {
        if let Some(why) = &seen.poisoned
            && !self.poisoned
        {
            self.poisoned = true;
            let message = format!(
                "writes are refused: {why}; restart the server when the cause is gone; attached devices stay \
                 (docs/how-to/backing-trouble.md)"
            );
            events.push(seen.event(EventKind::Poisoned, message));
        }
        if let Some(new) = self.corrupt_records.observe(seen.at, seen.errors.corrupt_records) {
            let message = format!(
                "{new} records of data, of the map or of dictionaries were read that differ from what was written; \
                 {DAMAGE}"
            );
            events.push(seen.event(EventKind::CorruptRecord, message));
        }
        if let Some(new) = self.bad_segments.observe(seen.at, seen.errors.bad_segments) {
            let message = format!(
                "segments set aside as bad because writes to them failed: {new} new, {} in all; nothing is \
                 lost, their data is written elsewhere; check the backing (docs/how-to/backing-trouble.md)",
                seen.errors.bad_segments
            );
            events.push(seen.event(EventKind::BadSegment, message));
        }
        if let Some(new) = self.damaged_segments.observe(seen.at, seen.errors.damaged_segments) {
            let message = format!(
                "segments set aside as damaged because they hold records that cannot be read: {new} new, {} in all; \
                 {DAMAGE}",
                seen.errors.damaged_segments
            );
            events.push(seen.event(EventKind::DamagedSegment, message));
        }
    }
}

/// The place of a page in words.
fn at(byte: Option<u64>) -> String {
    byte.map_or(String::new(), |byte| format!(", the last one at byte {byte} of the backing"))
}

impl Watcher {
    fn check_repairs(&mut self, seen: &Seen, events: &mut Vec<Event>) {
        if let Some(new) = self.repaired_pages.observe(seen.at, seen.errors.repaired_pages) {
            let message = format!(
                "pages of the backing that were lost or wrong were repaired by parity: {new} new, {} in all{}; nothing \
                 is lost, what was on them is written elsewhere; check the backing (docs/how-to/backing-trouble.md)",
                seen.errors.repaired_pages,
                at(seen.last_repaired_byte)
            );
            events.push(seen.event(EventKind::PageRepaired, message));
        }
        if let Some(new) = self.lost_pages.observe(seen.at, seen.errors.lost_pages) {
            let message = format!(
                "pages of the backing are lost that parity cannot repair: {new}{}; {DAMAGE}",
                at(seen.last_lost_byte)
            );
            events.push(seen.event(EventKind::PageLost, message));
        }
        if seen.backing_failing && !self.backing_failing {
            let message = "repairs were needed at more than 256 places within an hour: the backing is failing; only \
                           what is on repaired pages is moved, to spare it; move the drive to another backing \
                           (docs/how-to/backing-trouble.md)";
            events.push(seen.event(EventKind::BackingFailing, message.into()));
        }
        self.backing_failing = seen.backing_failing;
    }
}

/// Counts and latest events.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    counts: [u64; EventKind::ALL.len()],
    recent: VecDeque<RecentEvent>,
}

impl EventLog {
    pub(crate) fn add(&mut self, event: &Event) {
        if let Some(count) = self.counts.get_mut(event.kind as usize) {
            *count += 1;
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(RecentEvent {
            event: event.kind,
            unix_seconds: unix_seconds(event.at),
            message: event.message.clone(),
            used_percent: event.used_percent,
            level_percent: event.level_percent,
        });
    }

    pub(crate) fn report(&self, warn_at: &WarnAt) -> EventsReport {
        let count = |&kind: &EventKind| EventCount { event: kind, count: self.counts[kind as usize] };
        EventsReport {
            warn_at_percent: warn_at.0.clone(),
            counts: EventKind::ALL.iter().map(count).collect(),
            recent: self.recent.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(seconds: u64) -> Seen {
        Seen { at: Duration::from_secs(seconds), ..Seen::default() }
    }

    /// Kinds and levels of the events of an observation.
    fn kinds(watcher: &mut Watcher, seen: &Seen) -> Vec<(EventKind, Option<u8>)> {
        watcher.observe(seen).into_iter().map(|event| (event.kind, event.level_percent)).collect()
    }

    fn at_use(watcher: &mut Watcher, used_percent: f64) -> Vec<(EventKind, Option<u8>)> {
        kinds(watcher, &Seen { used_percent, ..Seen::default() })
    }

    #[test]
    fn levels_are_reported_once_each_on_the_way_up() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        let warning = |level| (EventKind::SpaceWarning, Some(level));
        assert_eq!(at_use(&mut watcher, 79.9), []);
        assert_eq!(at_use(&mut watcher, 80.0), [warning(80)]);
        assert_eq!(at_use(&mut watcher, 85.0), []);
        assert_eq!(at_use(&mut watcher, 97.0), [warning(90), warning(95)]);
        assert_eq!(at_use(&mut watcher, 99.0), []);
    }

    #[test]
    fn wavering_around_a_level_is_reported_once() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        assert_eq!(at_use(&mut watcher, 80.5).len(), 1);
        for used in [79.5, 80.5, 78.0, 81.0] {
            assert_eq!(at_use(&mut watcher, used), []);
        }
        assert_eq!(at_use(&mut watcher, 77.9), [(EventKind::SpaceWarningOver, Some(80))]);
        assert_eq!(at_use(&mut watcher, 80.0), [(EventKind::SpaceWarning, Some(80))], "again");
    }

    #[test]
    fn all_levels_are_left_in_one_step_highest_first() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        at_use(&mut watcher, 100.0);
        let over = |level| (EventKind::SpaceWarningOver, Some(level));
        assert_eq!(at_use(&mut watcher, 10.0), [over(95), over(90), over(80)]);
    }

    #[test]
    fn refusals_are_reported_once_until_they_stop() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        let out = [(EventKind::OutOfSpace, None)];
        let refused = |seconds, no_space_count| Seen { no_space_count, ..seen(seconds) };
        assert_eq!(kinds(&mut watcher, &refused(1, 3)), out);
        assert_eq!(kinds(&mut watcher, &refused(5, 4)), []);
        assert_eq!(kinds(&mut watcher, &refused(14, 4)), [], "too early to say");
        assert_eq!(kinds(&mut watcher, &refused(15, 4)), [(EventKind::SpaceBack, None)]);
        assert_eq!(kinds(&mut watcher, &refused(16, 4)), []);
        let full = |seconds| Seen { out_of_space: true, ..refused(seconds, 4) };
        assert_eq!(kinds(&mut watcher, &full(17)), out, "also before anybody was refused");
        assert_eq!(kinds(&mut watcher, &full(100)), []);
        assert_eq!(kinds(&mut watcher, &refused(111, 4)), [(EventKind::SpaceBack, None)]);
    }

    #[test]
    fn repairs_are_reported_together_and_a_failing_backing_once() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        let pages = |seconds, repaired_pages, lost_pages, backing_failing| Seen {
            errors: ErrorCounts { repaired_pages, lost_pages, ..ErrorCounts::default() },
            last_repaired_byte: Some(8192),
            backing_failing,
            ..seen(seconds)
        };
        let repaired = (EventKind::PageRepaired, None);
        assert_eq!(kinds(&mut watcher, &pages(1, 0, 0, false)), []);
        let events = watcher.observe(&pages(2, 3, 0, false));
        assert_eq!(events.len(), 1);
        assert!(
            events[0].message.contains("3 new, 3 in all, the last one at byte 8192"),
            "{}",
            events[0].message
        );
        assert_eq!(kinds(&mut watcher, &pages(3, 9, 0, false)), [], "within a minute");
        assert_eq!(kinds(&mut watcher, &pages(70, 9, 2, false)), [repaired, (EventKind::PageLost, None)]);
        assert_eq!(kinds(&mut watcher, &pages(71, 9, 2, true)), [(EventKind::BackingFailing, None)]);
        assert_eq!(kinds(&mut watcher, &pages(72, 9, 2, true)), []);
    }

    #[test]
    fn a_truncated_backing_is_reported_once_until_it_is_whole_again() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        let missing = |missing_bytes| Seen { missing_bytes, ..seen(1) };
        let truncated = [(EventKind::BackingTruncated, None)];
        assert_eq!(kinds(&mut watcher, &missing(0)), []);
        assert_eq!(kinds(&mut watcher, &missing(4096)), truncated);
        assert_eq!(kinds(&mut watcher, &missing(8192)), []);
        assert_eq!(kinds(&mut watcher, &missing(0)), [(EventKind::BackingRestored, None)]);
        assert_eq!(kinds(&mut watcher, &missing(1)), truncated, "again");
    }

    #[test]
    fn each_place_of_the_backing_is_reported_once_until_it_is_back() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        let at = |place| Seen { place, ..seen(1) };
        let (moved, deleted) = ([(EventKind::BackingMoved, None)], [(EventKind::BackingDeleted, None)]);
        assert_eq!(kinds(&mut watcher, &at(BackingPlace::Unknown)), [], "not looked at yet");
        assert_eq!(kinds(&mut watcher, &at(BackingPlace::InPlace)), []);
        assert_eq!(kinds(&mut watcher, &at(BackingPlace::Moved)), moved);
        assert_eq!(kinds(&mut watcher, &at(BackingPlace::Moved)), []);
        assert_eq!(kinds(&mut watcher, &at(BackingPlace::InPlace)), [(EventKind::BackingFound, None)]);
        assert_eq!(kinds(&mut watcher, &at(BackingPlace::Replaced)), moved, "again");
        let events = watcher.observe(&at(BackingPlace::Deleted));
        assert_eq!(events.iter().map(|event| (event.kind, event.level_percent)).collect::<Vec<_>>(), deleted);
        assert!(events[0].message.contains("do not stop"), "{events:?}");
    }

    #[test]
    fn poison_is_reported_once_with_its_reason() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        let poisoned = Seen { poisoned: Some("a sync failed".into()), ..seen(1) };
        let events = watcher.observe(&poisoned);
        assert_eq!(events.len(), 1);
        assert!(events[0].message.contains("a sync failed"), "{events:?}");
        assert_eq!(kinds(&mut watcher, &poisoned), []);
    }

    #[test]
    fn whatever_is_wrong_the_event_says_what_to_do_while_the_drive_is_served() {
        let mut watcher = Watcher::new(WarnAt::default(), ErrorCounts::default());
        let errors = ErrorCounts {
            corrupt_records: 1,
            bad_segments: 1,
            damaged_segments: 1,
            ..ErrorCounts::default()
        };
        let wrong = Seen {
            used_percent: 99.0,
            out_of_space: true,
            errors,
            missing_bytes: 1,
            place: BackingPlace::Moved,
            poisoned: Some("a sync failed".into()),
            ..seen(1)
        };
        let mut events = watcher.observe(&wrong);
        events.extend(watcher.observe(&Seen { missing_bytes: 0, place: BackingPlace::Deleted, ..wrong }));
        let mut kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        kinds.dedup();
        assert_eq!(kinds.len(), 10, "{kinds:?}");
        for Event { kind, message, .. } in &events {
            let advice = message.split_once(';').or(message.split_once(':')).map(|(_, advice)| advice);
            let verbs = ["delete", "unmount", "restore", "check", "restart", "rename", "copy"];
            assert!(advice.is_some_and(|it| verbs.iter().any(|verb| it.contains(verb))), "{kind}: {message}");
            assert!(!message.contains("server stopped") && !message.contains("stop the server"), "{message}");
        }
        let of = |kind| events.iter().find(|event| event.kind == kind).map_or("", |event| &event.message);
        for kind in [EventKind::CorruptRecord, EventKind::DamagedSegment] {
            assert!(of(kind).contains("keep the drive served: `pumice check --deep`"), "{}", of(kind));
        }
    }

    #[test]
    fn corrupt_records_are_reported_together_once_a_minute() {
        let known = ErrorCounts { corrupt_records: 7, ..ErrorCounts::default() };
        let mut watcher = Watcher::new(WarnAt::default(), known);
        let corrupt = |seconds, corrupt_records| {
            let errors = ErrorCounts { corrupt_records, ..known };
            Seen { errors, ..seen(seconds) }
        };
        assert_eq!(kinds(&mut watcher, &corrupt(1, 7)), [], "known from before");
        let events = watcher.observe(&corrupt(2, 8));
        assert!(events[0].message.starts_with("1 "), "{events:?}");
        assert_eq!(kinds(&mut watcher, &corrupt(3, 500)), []);
        let events = watcher.observe(&corrupt(62, 501));
        assert!(events[0].message.starts_with("493 "), "{events:?}");
    }

    #[test]
    fn segments_set_aside_are_reported_once_each_by_what_is_wrong_with_them() {
        let known = ErrorCounts { bad_segments: 2, damaged_segments: 1, ..ErrorCounts::default() };
        let mut watcher = Watcher::new(WarnAt::default(), known);
        let aside = |seconds, bad_segments, damaged_segments| Seen {
            errors: ErrorCounts { bad_segments, damaged_segments, ..known },
            ..seen(seconds)
        };
        assert_eq!(kinds(&mut watcher, &aside(1, 2, 1)), [], "known from before");
        let events = watcher.observe(&aside(2, 3, 1));
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::BadSegment);
        assert!(events[0].message.contains("1 new, 3 in all"), "{events:?}");
        assert_eq!(kinds(&mut watcher, &aside(3, 3, 2)), [(EventKind::DamagedSegment, None)]);
        assert_eq!(kinds(&mut watcher, &aside(4, 3, 2)), []);
        // A medium that breaks down: one event per minute.
        assert_eq!(kinds(&mut watcher, &aside(5, 9, 2)), []);
        let events = watcher.observe(&aside(62, 10, 2));
        assert!(events[0].message.contains("7 new, 10 in all"), "{events:?}");
    }

    #[test]
    fn levels_as_text() {
        assert_eq!("80,90,95".parse(), Ok(WarnAt::default()));
        assert_eq!(" 5 , 100".parse(), Ok(WarnAt(vec![5, 100])));
        assert_eq!("off".parse(), Ok(WarnAt(Vec::new())));
        assert_eq!(WarnAt(Vec::new()).to_string().parse(), Ok(WarnAt(Vec::new())));
        assert_eq!(WarnAt::default().to_string(), "80,90,95");
        let many: Vec<String> = (1..=17).map(|level| level.to_string()).collect();
        for wrong in ["", "0", "101", "80,80", "90,80", "80,", "80;90", "8.5", "-3", "300", &many.join(",")] {
            assert!(wrong.parse::<WarnAt>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_log_counts_all_and_remembers_the_latest() {
        let mut log = EventLog::default();
        for level in 0..100 {
            let event =
                Event { level_percent: Some(level), ..seen(0).event(EventKind::SpaceWarning, "x".into()) };
            log.add(&event);
        }
        log.add(&seen(0).event(EventKind::Closed, "y".into()));
        let report = log.report(&WarnAt::default());
        assert_eq!(report.counts.len(), EventKind::ALL.len());
        let count = |kind: EventKind| report.counts.iter().find(|it| it.event == kind).map(|it| it.count);
        assert_eq!(count(EventKind::SpaceWarning), Some(100));
        assert_eq!((count(EventKind::Closed), count(EventKind::Opened)), (Some(1), Some(0)));
        assert_eq!(report.recent.len(), REMEMBERED);
        assert_eq!(report.recent.last().map(|event| event.message.as_str()), Some("y"));
    }

    #[test]
    fn kinds_are_numbered_as_listed() {
        assert!(EventKind::ALL.iter().enumerate().all(|(i, kind)| *kind as usize == i));
    }
}
