//! Error counts, for events when they rise.

use std::time::Duration;

/// A count that rises again within this time after a report is reported at its end.
const PAUSE: Duration = Duration::from_secs(60);

/// Errors of a drive so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorCounts {
    /// Corrupt records found over the drive's life.
    pub(crate) corrupt_records: u64,
    /// Segments set aside because a write to them failed.
    pub(crate) bad_segments: u64,
    /// Segments set aside because they hold records that cannot be read.
    pub(crate) damaged_segments: u64,
    /// Pages repaired by parity since the drive was opened.
    pub(crate) repaired_pages: u64,
    /// Pages that parity could not repair since then.
    pub(crate) lost_pages: u64,
}

impl ErrorCounts {
    /// Counts of a drive that was just opened, without the records that recovery has found: they get an
    /// event. (Segments are in that of the opening.)
    pub(crate) fn before_opening(status: &drive::Status) -> ErrorCounts {
        let now = ErrorCounts::from(status);
        let found = status.recovered.damaged_records_count;
        let corrupt_records = now.corrupt_records.saturating_sub(found);
        // What the opening has repaired, or could not, is new.
        ErrorCounts { corrupt_records, repaired_pages: 0, lost_pages: 0, ..now }
    }
}

impl From<&drive::Status> for ErrorCounts {
    fn from(status: &drive::Status) -> ErrorCounts {
        ErrorCounts {
            corrupt_records: status.counters.corrupt_records_count,
            bad_segments: status.segments_bad_count.into(),
            damaged_segments: status.segments_damaged_count.into(),
            repaired_pages: status.parity.repaired_pages_count,
            lost_pages: status.parity.lost_pages_count,
        }
    }
}

/// A count that causes an event when it rises, at most one per minute.
#[derive(Debug)]
pub(crate) struct Rising {
    reported: u64,
    at: Option<Duration>,
}

impl Rising {
    /// Begins with the known count.
    pub(crate) fn from(known: u64) -> Rising {
        Rising { reported: known, at: None }
    }

    /// Returns by how much the count has risen since the last report, if one is due now.
    pub(crate) fn observe(&mut self, at: Duration, count: u64) -> Option<u64> {
        let new = count.saturating_sub(self.reported);
        let paused = self.at.is_some_and(|before| at.saturating_sub(before) < PAUSE);
        if new == 0 || paused {
            return None;
        }
        (self.reported, self.at) = (count, Some(at));
        Some(new)
    }
}
