//! What fits into the time given.

use std::time::{Duration, Instant};

use crate::fio::{Amount, Job};
use crate::scene::{Action, Scene, Step};
use crate::store;
use crate::target::{Kind, Target};

/// Rounds that a run should have: with three, one that was disturbed does not move the median.
const ROUNDS: f64 = 3.0;
/// Rounds of a job that may be needed until it is steady.
const STEADY_ROUNDS: usize = 8;
/// Most rounds of a run.
pub(crate) const ROUNDS_MAX: u32 = 9;
/// Shortest and longest time of a timed job.
const JOB_SECONDS_MIN: u32 = 1;
const JOB_SECONDS_MAX: u32 = 30;
/// Assumed before anything was measured: speed of a store in bytes per second, and time to make and end one.
const SPEED_BYTES: f64 = 300e6;
const SETUP_SECONDS: f64 = 1.0;

/// The time given, and what was used of it.
pub(crate) struct Budget {
    since: Instant,
    limit: Duration,
}

impl Budget {
    pub(crate) fn new(limit: Duration) -> Budget {
        Budget { since: Instant::now(), limit }
    }

    /// Whether something that takes `seconds` fits.
    pub(crate) fn fits(&self, seconds: f64) -> bool {
        self.since.elapsed().as_secs_f64() + seconds <= self.limit.as_secs_f64()
    }

    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.since.elapsed())
    }

    pub(crate) fn used(&self) -> Duration {
        self.since.elapsed()
    }
}

/// What is assumed of a target before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// Bytes per second.
    speed: f64,
    /// Time of each step besides its job: until servers are at rest.
    step_seconds: f64,
    /// Time to ask what a step has written.
    ask_seconds: f64,
}

impl Pace {
    /// Clusters on one machine write 30 to 300 MB/s here, and their servers work for a while after each step.
    pub(crate) fn of(target: &Target) -> Pace {
        const CLUSTER_BYTES: f64 = 100e6;
        const AFTER_SECONDS: f64 = 1.0;
        let cluster = Pace { speed: CLUSTER_BYTES, step_seconds: AFTER_SECONDS, ask_seconds: 0.0 };
        match target.kind {
            Kind::Rbd { .. } if target.drives.is_empty() => {
                Pace { ask_seconds: store::MANAGER_AGE.as_secs_f64(), ..cluster }
            }
            Kind::Rbd { .. } | Kind::S3(_) => cluster,
            _ => Pace { speed: SPEED_BYTES, step_seconds: 0.0, ask_seconds: 0.0 },
        }
    }
}

/// Expected time of one scene with timed jobs of `job_seconds`.
pub(crate) fn scene_seconds(scene: &Scene, pace: Pace, size_bytes: u64, job_seconds: u32) -> f64 {
    let bytes = size_bytes as f64 * scene.expansion.unwrap_or(1.0);
    let speed = scene.backing_mb_per_s.map_or(pace.speed, |rate| (f64::from(rate) * 1e6).min(pace.speed));
    let once = |job: &Job| match job.block_kib {
        // Small requests.
        ..16 => bytes / (speed / 8.0),
        _ => bytes / speed,
    };
    let asked = |step: &&Step| step.writes();
    let asks = scene.steps.iter().filter(asked).count() as f64 * pace.ask_seconds;
    let pauses = scene.steps.len() as f64 * pace.step_seconds;
    let steps = scene.steps.iter().map(|step| match &step.action {
        Action::Fio(Job { amount: Amount::Timed, .. }) => f64::from(job_seconds),
        Action::Fio(job) => once(job),
        Action::Objects(job) if job.is_timed() => job.expected_seconds(job_seconds),
        Action::Objects(_) | Action::Copy(_) | Action::Settle => bytes / speed,
    });
    steps.sum::<f64>() + asks + pauses + SETUP_SECONDS
}

/// Time of timed jobs with which the usual number of rounds fits, in whole seconds. `to_steady`: once, with
/// those that write as often as it may take until they are steady.
pub(crate) fn job_seconds<'a>(
    scenes: impl Iterator<Item = (&'a Scene, Pace)> + Clone,
    size_bytes: u64,
    limit: Duration,
    to_steady: bool,
) -> u32 {
    let timed = scenes.clone().flat_map(|(scene, _)| &scene.steps).filter(|step| step.is_timed());
    let jobs: usize =
        timed.map(|step| if to_steady && step.may_be_unsteady() { STEADY_ROUNDS } else { 1 }).sum();
    if jobs == 0 {
        return JOB_SECONDS_MIN;
    }
    let rest: f64 = scenes.map(|(scene, pace)| scene_seconds(scene, pace, size_bytes, 0)).sum();
    let rounds = if to_steady { 1.0 } else { ROUNDS };
    let seconds = (limit.as_secs_f64() / rounds - rest) / jobs as f64;
    (seconds.max(0.0) as u32).clamp(JOB_SECONDS_MIN, JOB_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::{Data, Pattern};

    #[test]
    fn jobs_are_as_long_as_the_time_allows() {
        let job = Job::random(Pattern::RandomRead, Data::Zeros);
        let fill = Job::sequential(Pattern::Write, Data::Zeros);
        let scene = Scene::new("a", vec![Step::prepare("fill", fill), Step::job("read", job)]);
        let pace = |target: &str| Pace::of(&target.parse().expect("a target"));
        let seconds = |minutes: u64| {
            job_seconds(
                [(&scene, pace("raw")); 2].into_iter(),
                300_000_000,
                Duration::from_secs(60 * minutes),
                false,
            )
        };
        // Each of two scenes fills for a second and needs another for itself.
        assert_eq!(seconds(1), 8);
        assert_eq!(seconds(0), 1);
        assert_eq!(seconds(100), 30);
        assert_eq!(scene_seconds(&scene, pace("raw"), 300_000_000, 5), 7.0);
        // A cluster is slower, rests after each of two steps, and is asked after the one that writes.
        assert_eq!(scene_seconds(&scene, pace("s3+http://h/b"), 300_000_000, 5), 11.0);
        assert_eq!(scene_seconds(&scene, pace("rbd:p/i"), 300_000_000, 5), 17.0);
        assert_eq!(scene_seconds(&scene.limited(100), pace("raw"), 300_000_000, 5), 9.0);
    }

    #[test]
    fn a_budget_runs_out() {
        let budget = Budget::new(Duration::from_secs(10));
        assert!(budget.fits(5.0) && !budget.fits(11.0));
        assert!(budget.left() > Duration::from_secs(9) && budget.used() < Duration::from_secs(1));
    }
}
