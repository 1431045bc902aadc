//! Background work of a served drive: ticks, cleaning, checkpoints.

use std::sync::Arc;
use std::time::Duration;

use drive::Drive;
use media::{AnyMedia, Media};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::admission::pacer::Pacer;
use crate::admission::throttle::{Throttle, Throttling};
use crate::workers::busy::Hurry;
use crate::workers::pause::{rest_after, rest_unless_stopped};
use crate::workers::pool::Workers;

/// Interval of ticks, and of checks for work, while the drive does not rest.
const TICK: Duration = Duration::from_millis(10);
/// Pauses between steps of cleaning are accumulated up to this, because timers are not more precise.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Pause after background work that failed without poisoning the drive, so that the log does not fill up.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

/// Time without any change after which a drive's memory for packs is given back.
const MEMORY_KEPT_FOR: Duration = Duration::from_secs(60);

/// The background tasks of a drive.
pub(crate) struct Background {
    maintenance: Stoppable,
    clock: Stoppable,
}

/// The task that sends ticks to a drive.
pub(crate) struct Clock(Stoppable);

impl Clock {
    /// Stops the task.
    pub(crate) async fn stop(self) {
        self.0.stop().await;
    }
}

/// A task, and the way to end it.
struct Stoppable {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Stoppable {
    async fn stop(self) {
        self.stop.send_replace(true);
        // A panic of the task was already reported.
        let _ = self.task.await;
    }
}

impl Background {
    /// Starts the tasks on worker `index`.
    pub(crate) fn start(
        workers: &Workers,
        index: usize,
        name: Arc<str>,
        drive: &Drive<AnyMedia>,
        throttle: (Throttling, Arc<Throttle>),
        pacer: Arc<Pacer>,
    ) -> Background {
        // Two tasks, because a tick must not wait until a long checkpoint is done.
        let (stop, stopped) = watch::channel(false);
        let hurry = Hurry::new(workers.shares());
        let task = workers.spawn_on(index, tick(drive.clone(), throttle, pacer, hurry, stopped));
        let clock = Stoppable { stop, task };
        let (stop, stopped) = watch::channel(false);
        let task = workers.spawn_on(index, maintain(name, drive.clone(), stopped));
        Background { maintenance: Stoppable { stop, task }, clock }
    }

    /// Lets the current unit of work end, and no other begin. The clock continues: closing the drive may have
    /// to wait for readers, which only a tick examines. Returns the clock, to be stopped later.
    pub(crate) async fn stop_maintenance(self) -> Clock {
        self.maintenance.stop().await;
        Clock(self.clock)
    }
}

/// Sends ticks to a drive, unless it rests, and sets the rate of writers accordingly.
pub(crate) async fn tick<M: Media>(
    drive: Drive<M>,
    (throttling, throttle): (Throttling, Arc<Throttle>),
    pacer: Arc<Pacer>,
    mut hurry: Hurry,
    mut stopped: watch::Receiver<bool>,
) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return,
            _ = interval.tick() => {}
        }
        drive.tick();
        let now = Instant::now();
        pacer.set(drive.pace().writers, now);
        let hurried = hurry.judge(now);
        drive.set_hurried(hurried);
        if throttling != Throttling::Off {
            let (used, limit) = drive.space();
            // Both may change while the drive is in use.
            let settings = throttling.settings(drive.logical_capacity_bytes(), limit);
            throttle.set_rate(settings.and_then(|it| it.rate(used as f64 * 100.0 / limit.max(1) as f64)));
        }
        // The load of the threads decides when that ends.
        if hurried {
            continue;
        }
        let rested = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return,
            rested = drive.rest() => rested,
        };
        if rested {
            let ticks = now.elapsed().as_nanos() / TICK.as_nanos();
            drive.miss_ticks(u64::try_from(ticks).unwrap_or(u64::MAX));
            interval.reset();
        }
    }
}

/// Cleans, frees and checkpoints.
pub(crate) async fn maintain<M: Media>(name: Arc<str>, drive: Drive<M>, mut stopped: watch::Receiver<bool>) {
    let mut owed = Duration::ZERO;
    loop {
        let share = drive.pace().cleaning_share;
        let since = Instant::now();
        let pause = match drive.maintain().await {
            Ok(true) => {
                owed += pause_after(since.elapsed(), share);
                // Mostly at once, after the requests that wait for this thread.
                if owed < PAUSE_MIN { Duration::ZERO } else { std::mem::take(&mut owed) }
            }
            Ok(false) => {
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => return,
                    () = rest(&drive) => {}
                }
                // After a rest, too: what rouses a drive may come thousands of times a second.
                TICK
            }
            Err(error) => {
                tracing::error!(drive = %name, %error, "background work failed");
                PAUSE_AFTER_ERROR
            }
        };
        if drive.writable().is_err() {
            // Read-only as long as it is open: there will be no work. The monitor reports it.
            return;
        }
        if rest_unless_stopped(pause, &mut stopped).await {
            return;
        }
    }
}

/// Waits while nothing happens to a drive. If that takes long, its memory is given back.
async fn rest<M: Media>(drive: &Drive<M>) {
    if tokio::time::timeout(MEMORY_KEPT_FOR, drive.rest()).await.is_err() {
        drive.give_back_memory();
        drive.rest().await;
    }
}

/// Returns how long to rest after work that took `took`, so that it takes `share` of the time; at most a
/// tick, after which the need may have changed. Work other than cleaning has a share of 0: nothing is gained
/// by postponing it.
fn pause_after(took: Duration, share: f64) -> Duration {
    if share <= 0.0 {
        return Duration::ZERO;
    }
    TICK.min(rest_after(took, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_takes_its_share_of_the_time_and_no_more() {
        let took = Duration::from_millis(1);
        assert_eq!(pause_after(took, 1.0), Duration::ZERO);
        assert_eq!(pause_after(took, 0.5), took);
        assert_eq!(pause_after(took, 0.2), 4 * took);
        assert_eq!(pause_after(took, 0.001), TICK);
        assert_eq!(pause_after(took, 0.0), Duration::ZERO);
    }
}
