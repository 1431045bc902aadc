//! Times in a status report, as text.

use status::{NoTime, StatusReport, TimeToFull, unix_seconds_now};

use crate::human;

/// Formats the time elapsed since a moment.
pub(super) fn ago(unix_seconds: u64) -> String {
    format!("{} ago", human::duration(unix_seconds_now().saturating_sub(unix_seconds) as f64))
}

/// What there is no room in, where the drive may have room.
pub(super) const BACKING_FULL: &str = "the file system or volume under the drive is full";

/// Formats the time to full with its range, or the reason why there is none.
pub(super) fn time_to_full(drive: &StatusReport) -> String {
    let time = &drive.time_to_full;
    if drive.backing_full {
        return format!("none: {BACKING_FULL}");
    }
    let range = |time: &TimeToFull| {
        let latest = time.latest_seconds.map_or("never".to_string(), human::duration);
        time.soonest_seconds.map(|soonest| format!("{} to {latest}", human::duration(soonest)))
    };
    let reason = match time.reason {
        None => {
            let seconds = time.seconds.map_or("unknown".to_string(), human::duration);
            let text = range(time).map_or(seconds.clone(), |range| format!("{seconds} ({range})"));
            return match time.window_seconds {
                Some(window) => format!("{text}, by the growth of the last {}", human::duration(window)),
                None => text,
            };
        }
        Some(NoTime::Full) => "none: it is full",
        Some(NoTime::NotGrowing) => "not growing",
        Some(NoTime::CapacityFirst) => "never: all of the capacity fits at the ratio of what is written now",
        Some(NoTime::NoTrend) => "unknown: space grew in a burst, which is no trend",
        Some(NoTime::SeenTooShort) => "known after a minute of serving",
        Some(NoTime::NotServed) => "known while it is served",
        Some(NoTime::Unknown) => "unknown",
    };
    match (time.seconds, range(time)) {
        (None, Some(range)) => format!("{reason} now; {range} as it grew before"),
        (Some(_), _) | (None, None) => reason.to_string(),
    }
}
