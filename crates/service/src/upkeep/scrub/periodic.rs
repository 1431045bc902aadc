//! Periodic scrubs: all records of a drive are verified once in a period, a little all the time.
//!
//! The drive itself keeps the position ([`ScrubMark`], in its checkpoints): a state file would have to be
//! somewhere that the server may write to, and would not go with a drive that is moved to another machine. A
//! crash repeats what was verified since the last checkpoint.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use drive::Drive;
use layout::ScrubMark;
use media::Media;
use status::{shown, unix_seconds_now};
use tokio::sync::watch;

use super::{DEFAULT_SCRUB_BYTES_PER_SECOND, pause_after};
use crate::workers::pause::rest_unless_stopped;

/// Share of the period in which a scrub verifies everything. The rest is for times without a server.
const SHARE: f64 = 0.9;
/// Longest rest: clocks may be set meanwhile.
const REST_MAX: Duration = Duration::from_secs(60);

/// Next step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// Begin a scrub.
    Begin,
    /// Verify the blocks from here on.
    Step(u64),
    /// Rest for so long, and look again.
    Rest(Duration),
}

/// Decides by the time, in seconds since 1970, and about what a scrub reads.
fn next(mark: &ScrubMark, every: Duration, now: u64, total_bytes: u64) -> Next {
    let every = every.as_secs_f64();
    let rest_until = |due: f64| match due - now as f64 {
        left if left > 0.0 => Some(Next::Rest(Duration::from_secs_f64(left).min(REST_MAX))),
        _ => None,
    };
    // A clock that was set back does not stop scrubs for ever.
    let is_past = |seconds: u64| seconds > 0 && seconds <= now;
    if mark.begun_unix_seconds == 0 {
        // The next one begins where the last would be as old as the period allows.
        let due = mark.finished_unix_seconds as f64 + every * (1.0 - SHARE);
        return match is_past(mark.finished_unix_seconds) {
            true => rest_until(due).unwrap_or(Next::Begin),
            false => Next::Begin,
        };
    }
    if !is_past(mark.begun_unix_seconds) {
        return Next::Begin;
    }
    let done = mark.read_bytes as f64 / total_bytes.max(1) as f64;
    let due = mark.begun_unix_seconds as f64 + every * SHARE * done.min(1.0);
    rest_until(due).unwrap_or(Next::Step(mark.next_block))
}

/// Scrubs a drive periodically until stopped.
pub(crate) async fn scrub_periodically<M: Media>(
    drive: Drive<M>,
    path: PathBuf,
    every: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let mark = drive.scrub_mark();
        let (first, total_bytes) = drive.scrub_begin();
        let pause = match next(&mark, every, unix_seconds_now(), total_bytes) {
            Next::Rest(pause) => pause,
            Next::Begin => {
                drive.set_scrub_mark(ScrubMark {
                    begun_unix_seconds: unix_seconds_now().max(1),
                    next_block: first,
                    read_bytes: 0,
                    faults_count: 0,
                    ..mark
                });
                Duration::ZERO
            }
            Next::Step(block) => {
                let since = Instant::now();
                let Ok(step) = drive.scrub_step(block).await else { return };
                for fault in &step.faults {
                    tracing::error!(drive = %shown(&path), %fault, "the scrub found a fault");
                }
                // A scrub of a user may have ended meanwhile.
                let mark = drive.scrub_mark();
                let faults_count = mark.faults_count + step.faults.len() as u64;
                let read_bytes = mark.read_bytes + step.read_bytes;
                drive.set_scrub_mark(match step.next_block {
                    Some(next_block) => ScrubMark { next_block, read_bytes, faults_count, ..mark },
                    None => {
                        tracing::info!(drive = %shown(&path), bytes = read_bytes, faults = faults_count, "periodic \
                            scrub finished");
                        ScrubMark {
                            finished_unix_seconds: unix_seconds_now(),
                            finished_faults_count: faults_count,
                            ..ScrubMark::default()
                        }
                    }
                });
                let least = step.read_bytes as f64 / DEFAULT_SCRUB_BYTES_PER_SECOND as f64;
                pause_after(Duration::from_secs_f64(least), since.elapsed())
            }
        };
        if rest_unless_stopped(pause, &mut stopped).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const EVERY: Duration = Duration::from_secs(10 * DAY);
    const NOW: u64 = 1_800_000_000;
    const TOTAL: u64 = 1000 << 20;

    fn running(days: u64, read_mib: u64) -> ScrubMark {
        ScrubMark {
            begun_unix_seconds: NOW - days * DAY,
            next_block: 77,
            read_bytes: read_mib << 20,
            ..ScrubMark::default()
        }
    }

    #[test]
    fn a_scrub_takes_nine_tenths_of_its_period() {
        // A third of the time, a third of the data: both must be more.
        assert_eq!(next(&running(3, 333), EVERY, NOW, TOTAL), Next::Step(77));
        assert_eq!(next(&running(3, 340), EVERY, NOW, TOTAL), Next::Rest(REST_MAX));
        // The server was away for a while: it makes up for that.
        assert_eq!(next(&running(30, 340), EVERY, NOW, TOTAL), Next::Step(77));
        // Data was deleted meanwhile.
        assert_eq!(next(&running(3, 340), EVERY, NOW, 1 << 20), Next::Rest(REST_MAX));
        assert_eq!(next(&running(9, 340), EVERY, NOW, 1 << 20), Next::Step(77));
    }

    #[test]
    fn scrubs_begin_a_period_apart() {
        let finished =
            |days: u64| ScrubMark { finished_unix_seconds: NOW - days * DAY, ..ScrubMark::default() };
        assert_eq!(next(&ScrubMark::default(), EVERY, NOW, TOTAL), Next::Begin, "never before");
        assert_eq!(next(&finished(0), EVERY, NOW, TOTAL), Next::Rest(REST_MAX));
        assert_eq!(next(&finished(1), EVERY, NOW, TOTAL), Next::Begin);
    }

    #[test]
    fn a_clock_that_was_set_back_stops_nothing() {
        let mark = ScrubMark { finished_unix_seconds: NOW + DAY, ..ScrubMark::default() };
        assert_eq!(next(&mark, EVERY, NOW, TOTAL), Next::Begin);
        let mark = ScrubMark { begun_unix_seconds: NOW + DAY, ..running(0, 500) };
        assert_eq!(next(&mark, EVERY, NOW, TOTAL), Next::Begin);
    }
}
