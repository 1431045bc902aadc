//! Drives over the last minutes. Rates are differences between successive status reports.

use std::collections::VecDeque;
use std::path::PathBuf;

use status::StatusReport;

/// Number of rates kept for the charts.
pub(super) const POINTS: usize = 240;

/// Host activity between two status reports, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) read_bytes: f64,
    pub(super) written_bytes: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
    /// Bytes written to the backing.
    pub(super) physical_written_bytes: f64,
}

/// A drive and its history.
pub(super) struct Watched {
    pub(super) report: StatusReport,
    /// Rates, newest last: one fewer than status reports.
    pub(super) rates: VecDeque<Rates>,
    /// True if no server reported the drive in the last update.
    pub(super) gone: bool,
}

impl Watched {
    /// The newest rates.
    pub(super) fn now(&self) -> Rates {
        self.rates.back().copied().unwrap_or_default()
    }

    /// Adds a status report.
    fn add(&mut self, report: StatusReport) {
        self.gone = false;
        match rates(&self.report, &report) {
            Some(rates) => {
                if self.rates.len() == POINTS {
                    self.rates.pop_front();
                }
                self.rates.push_back(rates);
            }
            // The drive has another server, whose counters started at 0.
            None => self.rates.clear(),
        }
        self.report = report;
    }
}

/// Returns the rates between two status reports of the same server.
fn rates(before: &StatusReport, after: &StatusReport) -> Option<Rates> {
    let (first, second) = (before.server.as_ref()?, after.server.as_ref()?);
    let seconds = second.uptime_seconds - first.uptime_seconds;
    if seconds <= 0.0 || first.pid != second.pid {
        return None;
    }
    let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
    Some(Rates {
        read_bytes: rate(before.host_read_bytes, after.host_read_bytes),
        written_bytes: rate(before.host_written_bytes, after.host_written_bytes),
        reads: rate(first.requests.reads_count, second.requests.reads_count),
        writes: rate(first.requests.writes_count, second.requests.writes_count),
        physical_written_bytes: rate(before.physical_written_bytes, after.physical_written_bytes),
    })
}

/// All drives seen.
#[derive(Default)]
pub(super) struct History {
    pub(super) drives: Vec<Watched>,
    /// Servers that did not answer in the last update, one a line.
    pub(super) warnings: Vec<String>,
}

impl History {
    /// Adds the status reports of all drives. Drives that are no longer reported stay, marked as gone.
    pub(super) fn update(&mut self, reports: Vec<StatusReport>) {
        self.drives.iter_mut().for_each(|drive| drive.gone = true);
        for report in reports {
            let path: &PathBuf = &report.path;
            match self.drives.iter_mut().find(|drive| drive.report.path == *path) {
                Some(drive) => drive.add(report),
                None => self.drives.push(Watched { report, rates: VecDeque::new(), gone: false }),
            }
        }
        self.drives.sort_by(|a, b| a.report.path.cmp(&b.report.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use status::ServerReport;

    fn report(path: &str, seconds: f64, written: u64) -> StatusReport {
        StatusReport {
            path: path.into(),
            host_written_bytes: written,
            server: Some(ServerReport { pid: 1, uptime_seconds: seconds, ..ServerReport::default() }),
            ..StatusReport::default()
        }
    }

    #[test]
    fn rates_are_per_second_of_the_server() {
        let mut history = History::default();
        history.update(vec![report("/a", 10.0, 1000)]);
        assert_eq!(history.drives[0].now(), Rates::default());
        history.update(vec![report("/a", 14.0, 9000)]);
        assert_eq!(history.drives[0].now().written_bytes, 2000.0);
    }

    #[test]
    fn another_server_begins_anew() {
        let mut history = History::default();
        history.update(vec![report("/a", 10.0, 1000)]);
        history.update(vec![report("/a", 14.0, 9000)]);
        history.update(vec![report("/a", 1.0, 9000)]);
        assert_eq!(history.drives[0].now(), Rates::default());
        assert!(history.drives[0].rates.is_empty());
    }

    #[test]
    fn who_is_gone_stays_and_may_come_back() {
        let mut history = History::default();
        history.update(vec![report("/b", 1.0, 0), report("/a", 1.0, 0)]);
        history.update(vec![report("/a", 2.0, 0)]);
        let seen: Vec<(String, bool)> =
            history.drives.iter().map(|it| (it.report.path.display().to_string(), it.gone)).collect();
        assert_eq!(seen, [("/a".to_string(), false), ("/b".to_string(), true)]);
        history.update(vec![report("/b", 3.0, 0)]);
        assert!(!history.drives[1].gone && history.drives[0].gone);
    }

    #[test]
    fn only_so_much_is_remembered() {
        let mut history = History::default();
        (0..POINTS as u64 + 50).for_each(|n| history.update(vec![report("/a", n as f64, n)]));
        assert_eq!(history.drives[0].rates.len(), POINTS);
    }
}
