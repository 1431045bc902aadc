//! Messages about owners: who, since when, and what to do.

use layout::OwnerPage;
use layout::owner::UNKNOWN_ID;

use super::Fate;
use crate::error::Error;

impl super::OwnerFound {
    fn of(mark: &OwnerPage) -> super::OwnerFound {
        super::OwnerFound {
            open: mark.in_force,
            since_unix_seconds: mark.written_unix_seconds,
            process: mark.process.clone(),
        }
    }

    /// Names the process, for people:
    /// `process 4711 on host store-7 (machine 0123...), since 2026-11-27 12:00:00 UTC`.
    pub fn who(&self) -> String {
        let process = &self.process;
        let host = if process.host.is_empty() { "unknown" } else { &process.host };
        let mut who = format!("process {} on host {host}", process.pid);
        if process.machine_id != UNKNOWN_ID {
            let id: String = process.machine_id.iter().map(|byte| format!("{byte:02x}")).collect();
            who += &format!(" (machine {id})");
        }
        match self.since_unix_seconds {
            0 => who,
            seconds => format!("{who}, since {}", utc(seconds)),
        }
    }
}

fn who(page: &OwnerPage) -> String {
    super::OwnerFound::of(page).who()
}

/// A process has the drive, and was not asked.
pub(super) fn not_asked(mark: &OwnerPage, fate: &Fate) -> Error {
    let who = who(mark);
    Error::Owned(match fate {
        Fate::Elsewhere => format!(
            "open in {who}, which did not close it; if that host is down, or has \
             a copy of this drive, use `pumice serve --take-over`"
        ),
        _ => format!(
            "open in {who}; stop it first, or, if that has a copy of this drive, use \
             `pumice serve --take-over`"
        ),
    })
}

/// The start cannot be read, and writing it does not help.
pub(super) fn start_unusable(error: Error) -> Error {
    let Error::Io(why) = error else { return error };
    Error::Io(format!(
        "{why}; the start of the backing cannot be read, nor written again, and the mark of an owner has to be there: \
         open the drive read-only, or copy the backing to another one, as far as it can be read"
    ))
}

/// The process that has the drive answered a challenge.
pub(super) fn answered(mark: &OwnerPage) -> Error {
    Error::Owned(format!("open in {}, which is at work; stop it first", who(mark)))
}

/// Another process claims the drive at the same time.
pub(super) fn at_the_same_time(other: Option<&OwnerPage>) -> Error {
    Error::Owned(match other {
        Some(other) => format!("being opened by {}; try again in ten seconds", who(other)),
        None => "somebody else writes to the backing; find out who, then try again".to_string(),
    })
}

/// Why an owner stops that does not find its mark any more.
pub(super) fn replaced(mark: Option<&OwnerPage>) -> String {
    match mark {
        Some(mark) if mark.in_force => format!("the drive was taken over by {}", who(mark)),
        Some(mark) => format!("the drive was taken over, and closed, by {}", who(mark)),
        None => "something else was written over the mark of this server on the backing".to_string(),
    }
}

/// Returns a time of the Gregorian calendar (the algorithm is Howard Hinnant's `civil_from_days`).
fn utc(unix_seconds: u64) -> String {
    // Farther in the future than a clock can be.
    let unix_seconds = unix_seconds.min(1 << 40);
    let (days, seconds) = (unix_seconds / 86_400 + 719_468, unix_seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The mark could not be read for too long.
pub(super) fn unreadable(error: &Error) -> String {
    format!(
        "the backing could not be read for 30 seconds, so another process may have taken over the drive: {error}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_795_199, "2026-11-27 15:59:59 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
        utc(u64::MAX);
    }
}
