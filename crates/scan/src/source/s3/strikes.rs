//! Objects that are requested no more, because they failed or were slow several times in a row, and buckets
//! whose server gives no good answer for long.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Refused;

/// Failed reads of an object in a row after which it is requested no more.
const OBJECT_FAILURES_MAX: u32 = 3;
/// Failed reads in a row, of any objects, after which a bucket is given up if [`BUCKET_TIMEOUTS`] have
/// passed, too.
const BUCKET_FAILURES_MIN: u32 = 10;
/// Timeouts of a request that must pass from the first of these failures on: a restart of the server takes
/// less.
const BUCKET_TIMEOUTS: u32 = 5;

/// Failures of the objects of a bucket. ScanState by all readers.
#[derive(Debug)]
pub(super) struct Strikes {
    /// A successful read that takes longer counts as a failure of the object. Its data is used.
    slow: Duration,
    /// See [`BUCKET_TIMEOUTS`].
    bucket_patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Objects whose latest read failed: the number of failures in a row and the first one's description.
    objects: HashMap<Box<str>, (u32, String)>,
    /// Failed reads of any objects since the last good one: their number and when the first one began.
    row: Option<(u32, Instant)>,
    bucket_given_up: bool,
}

impl Strikes {
    /// `patience` is the timeout of a request.
    pub(super) fn new(patience: Duration) -> Strikes {
        let (slow, bucket_patience) = (patience / 2, patience * BUCKET_TIMEOUTS);
        Strikes { slow, bucket_patience, state: Mutex::default() }
    }

    /// Checks that an object may be requested.
    ///
    /// # Errors
    /// If the object or the bucket has been given up.
    pub(super) fn check(&self, key: &str) -> io::Result<()> {
        let Ok(state) = self.state.lock() else { return Ok(()) };
        if state.bucket_given_up {
            return Err(io::Error::other("not requested: the server gives no good answer any more"));
        }
        match state.objects.get(key) {
            Some((failures, why)) if *failures >= OBJECT_FAILURES_MAX => {
                Err(io::Error::other(format!("{why} (given up)")))
            }
            _ => Ok(()),
        }
    }

    /// Records a read of `wanted` bytes of an object, which began at `started` and is over. A shorter one
    /// failed.
    pub(super) fn record(&self, key: &str, started: Instant, wanted: u64, read: &io::Result<usize>) {
        let Ok(mut state) = self.state.lock() else { return };
        let why = match read {
            Err(error) => error.to_string(),
            Ok(bytes) if (*bytes as u64) < wanted => "is shorter than when it was listed".to_string(),
            Ok(_) => {
                // The server is well, if slow at times.
                state.row = None;
                if started.elapsed() <= self.slow {
                    state.objects.remove(key);
                } else {
                    let why = "the server sends it too slowly".to_string();
                    state.objects.entry(key.into()).or_insert((0, why)).0 += 1;
                }
                return;
            }
        };
        let (failures, _) = state.objects.entry(key.into()).or_insert((0, why));
        *failures += 1;
        let is_final = |error| Refused::status_of(error).is_some_and(is_final);
        if read.as_ref().is_err_and(is_final) {
            // The server is well, and another request would be refused as well.
            *failures = OBJECT_FAILURES_MAX;
            state.row = None;
            return;
        }
        let (failures, since) = state.row.unwrap_or((0, started));
        state.row = Some((failures + 1, since));
        state.bucket_given_up |=
            failures + 1 >= BUCKET_FAILURES_MIN && since.elapsed() >= self.bucket_patience;
    }
}

/// Whether a status of HTTP concerns the object and not the range or the moment.
fn is_final(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 410 | 412)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> io::Result<usize> {
        Err(io::Error::other("no answer"))
    }

    fn refused(status: u16) -> io::Result<usize> {
        Err(Refused::new(status, "").into())
    }

    #[test]
    fn objects_are_given_up_after_failures_in_a_row() {
        let strikes = Strikes::new(Duration::from_secs(3600));
        for read in [failed(), refused(503), Ok(10), failed(), Ok(9)] {
            strikes.record("a", Instant::now(), 10, &read);
            strikes.check("a").expect("two in a row at most");
        }
        strikes.record("a", Instant::now(), 10, &failed());
        strikes.check("a").expect_err("three in a row");
        strikes.check("b").expect("another object");
        strikes.record("b", Instant::now(), 10, &refused(404));
        strikes.check("b").expect_err("gone");
    }

    #[test]
    fn slow_answers_are_failures() {
        let strikes = Strikes::new(Duration::ZERO);
        for _ in 0..3 {
            strikes.check("a").expect("fewer than three");
            strikes.record("a", Instant::now() - Duration::from_secs(1), 10, &Ok(10));
        }
        strikes.check("a").expect_err("three in a row");
        for key in 0..20 {
            strikes.record(&key.to_string(), Instant::now() - Duration::from_secs(1), 10, &Ok(10));
        }
        strikes.check("new").expect("slow answers are answers");
    }

    #[test]
    fn buckets_are_given_up_after_failures_for_long() {
        let fail = |strikes: &Strikes, from: u32| {
            (from..from + 9).for_each(|key| strikes.record(&key.to_string(), Instant::now(), 10, &failed()));
        };
        let (hasty, patient) = (Strikes::new(Duration::ZERO), Strikes::new(Duration::from_secs(3600)));
        fail(&hasty, 0);
        hasty.record("gone", Instant::now(), 10, &refused(404));
        fail(&hasty, 100);
        hasty.check("new").expect("the server answered in between");
        hasty.record("x", Instant::now(), 10, &failed());
        hasty.check("new").expect_err("nothing for long");
        (0..100).for_each(|from| fail(&patient, from));
        patient.check("new").expect("in a short time");
    }
}
