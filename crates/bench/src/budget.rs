//! What fits into the time given.

use std::time::{Duration, Instant};

use crate::fio::{Amount, Job};
use crate::scene::{Action, Scene};

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

/// Expected time of one scene with timed jobs of `job_seconds`.
pub(crate) fn scene_seconds(scene: &Scene, size_bytes: u64, job_seconds: u32) -> f64 {
    let bytes = size_bytes as f64 * scene.expansion.unwrap_or(1.0);
    let speed = scene.backing_mb_per_s.map_or(SPEED_BYTES, |rate| (f64::from(rate) * 1e6).min(SPEED_BYTES));
    let once = |job: &Job| match job.block_kib {
        // Small requests.
        ..16 => bytes / (speed / 8.0),
        _ => bytes / speed,
    };
    let steps = scene.steps.iter().map(|step| match &step.action {
        Action::Fio(Job { amount: Amount::Timed, .. }) => f64::from(job_seconds),
        Action::Fio(job) => once(job),
        Action::Objects(job) if !job.is_put => f64::from(job_seconds),
        Action::Objects(_) | Action::Copy(_) | Action::Settle => bytes / speed,
    });
    steps.sum::<f64>() + SETUP_SECONDS
}

/// Time of timed jobs with which the usual number of rounds fits, in whole seconds. `to_steady`: once, with those that write
/// as often as it may take until they are steady.
pub(crate) fn job_seconds<'a>(
    scenes: impl Iterator<Item = &'a Scene> + Clone,
    size_bytes: u64,
    limit: Duration,
    to_steady: bool,
) -> u32 {
    let timed = scenes.clone().flat_map(|scene| &scene.steps).filter(|step| step.is_timed());
    let jobs: usize =
        timed.map(|step| if to_steady && step.may_be_unsteady() { STEADY_ROUNDS } else { 1 }).sum();
    if jobs == 0 {
        return JOB_SECONDS_MIN;
    }
    let rest: f64 = scenes.map(|scene| scene_seconds(scene, size_bytes, 0)).sum();
    let rounds = if to_steady { 1.0 } else { ROUNDS };
    let seconds = (limit.as_secs_f64() / rounds - rest) / jobs as f64;
    (seconds.max(0.0) as u32).clamp(JOB_SECONDS_MIN, JOB_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::{Data, Pattern};
    use crate::scene::Step;

    #[test]
    fn jobs_are_as_long_as_the_time_allows() {
        let job = Job::random(Pattern::RandomRead, Data::Zeros);
        let fill = Job::sequential(Pattern::Write, Data::Zeros);
        let scene = Scene::new("a", vec![Step::prepare("fill", fill), Step::job("read", job)]);
        let seconds = |minutes: u64| {
            job_seconds([&scene, &scene].into_iter(), 300_000_000, Duration::from_secs(60 * minutes), false)
        };
        // Each of two scenes fills for a second and needs another for itself.
        assert_eq!(seconds(1), 8);
        assert_eq!(seconds(0), 1);
        assert_eq!(seconds(100), 30);
        assert_eq!(scene_seconds(&scene, 300_000_000, 5), 7.0);
        assert_eq!(scene_seconds(&scene.limited(100), 300_000_000, 5), 9.0);
    }

    #[test]
    fn a_budget_runs_out() {
        let budget = Budget::new(Duration::from_secs(10));
        assert!(budget.fits(5.0) && !budget.fits(11.0));
        assert!(budget.left() > Duration::from_secs(9) && budget.used() < Duration::from_secs(1));
    }
}
