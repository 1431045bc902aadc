//! Scrubbing a served drive at once, as a user asks: every record, and every page with parity, is read and
//! verified in the background, at a limited rate. `periodic` does the same by itself, spread over days.

pub(crate) mod periodic;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drive::{Drive, Spawner};
use layout::ScrubMark;
use media::AnyMedia;
use parking_lot::Mutex;
use status::{ScrubReport, ScrubState, shown, unix_seconds_now};
use tokio::sync::watch;

use crate::workers::pause::rest_unless_stopped;

/// Default rate, in bytes per second: little compared with what a disk can do.
pub const DEFAULT_SCRUB_BYTES_PER_SECOND: u64 = 64 << 20;
/// Faults that are kept as text. All are counted.
const FAULTS_MAX: usize = 100;

/// The scrubs of a drive: one at a time, and the result of the last one.
pub(crate) struct Scrubber {
    drive: Drive<AnyMedia>,
    path: PathBuf,
    report: Arc<Mutex<Option<ScrubReport>>>,
    /// Stops the running scrub.
    stop: Mutex<watch::Sender<bool>>,
    spawner: Spawner,
}

impl Scrubber {
    pub(crate) fn new(drive: Drive<AnyMedia>, path: PathBuf, spawner: Spawner) -> Scrubber {
        Scrubber { drive, path, report: Arc::default(), stop: Mutex::new(watch::channel(false).0), spawner }
    }

    pub(crate) fn report(&self) -> Option<ScrubReport> {
        self.report.lock().clone()
    }

    /// Starts a scrub. If one is running, it continues at the new rate.
    pub(crate) fn start(&self, bytes_per_second: u64) {
        let bytes_per_second = bytes_per_second.max(1);
        let mut stop = self.stop.lock();
        let mut report = self.report.lock();
        if let Some(report) = report.as_mut().filter(|report| report.state == ScrubState::Running) {
            report.bytes_per_second = bytes_per_second;
            return;
        }
        let (_, total_bytes) = self.drive.scrub_begin();
        *report = Some(ScrubReport {
            state: ScrubState::Running,
            started_unix_seconds: unix_seconds_now(),
            finished_unix_seconds: None,
            bytes_per_second,
            total_bytes,
            ..ScrubReport::default()
        });
        let (sender, stopped) = watch::channel(false);
        *stop = sender;
        let (drive, path, report) = (self.drive.clone(), self.path.clone(), self.report.clone());
        (self.spawner)(Box::pin(scrub(drive, path, report, stopped)));
    }

    /// Stops the running scrub, if any.
    pub(crate) fn stop(&self) {
        self.stop.lock().send_replace(true);
        if let Some(report) = self.report.lock().as_mut().filter(|report| report.state == ScrubState::Running)
        {
            report.state = ScrubState::Stopped;
            report.finished_unix_seconds = Some(unix_seconds_now());
        }
    }
}

/// The rest after a step that took `elapsed` and should have taken `due`. A step over records that were read
/// by place reads none, but the map: half of the time is left to others.
fn pause_after(due: Duration, elapsed: Duration) -> Duration {
    if due.is_zero() { elapsed } else { due.saturating_sub(elapsed) }
}

async fn scrub(
    drive: Drive<AnyMedia>,
    path: PathBuf,
    report: Arc<Mutex<Option<ScrubReport>>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut next = Some(drive.scrub_begin().0);
    let mut state = ScrubState::Finished;
    while let Some(block) = next {
        let begun = Instant::now();
        let Ok(step) = drive.scrub_step(block).await else {
            // The drive is closing.
            state = ScrubState::Stopped;
            break;
        };
        if *stopped.borrow() {
            // The stop is already recorded, and another scrub may be running by now.
            return;
        }
        next = step.next_block;
        let mut pause = Duration::ZERO;
        if let Some(report) = report.lock().as_mut() {
            report.records_verified_count += step.records_count;
            report.read_bytes += step.read_bytes;
            report.total_bytes = report.total_bytes.max(report.read_bytes);
            for fault in &step.faults {
                tracing::error!(drive = %shown(&path), %fault, "the scrub found a fault");
                if report.faults.len() < FAULTS_MAX {
                    report.faults.push(fault.to_string());
                }
                report.faults_count += 1;
            }
            for range in step.lost {
                report.lose(range);
            }
            debug_assert!(report.faults.len() as u64 <= report.faults_count, "every listed fault is counted");
            debug_assert!(report.read_bytes <= report.total_bytes, "the total is at least what was read");
            debug_assert!(report.bytes_per_second > 0, "the rate was checked at the start");
            let due = Duration::from_secs_f64(step.read_bytes as f64 / report.bytes_per_second as f64);
            pause = pause_after(due, begun.elapsed());
        }
        if rest_unless_stopped(pause, &mut stopped).await {
            return;
        }
    }
    if let Some(report) = report.lock().as_mut() {
        if state == ScrubState::Finished {
            let mark = ScrubMark {
                finished_unix_seconds: unix_seconds_now(),
                finished_faults_count: report.faults_count,
                ..drive.scrub_mark()
            };
            drive.set_scrub_mark(mark);
        }
        report.state = state;
        report.finished_unix_seconds = Some(unix_seconds_now());
        tracing::info!(
            drive = %shown(&path),
            %state,
            records = report.records_verified_count,
            bytes = report.read_bytes,
            faults = report.faults_count,
            "scrub"
        );
    }
}
