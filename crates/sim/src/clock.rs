//! Time for what goes by a tokio runtime's clock: it stands still, but for where the executor lets it pass.

use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime};

/// A clock.
pub(crate) struct Clock(Runtime);

impl Clock {
    /// A clock that stands still.
    ///
    /// # Panics
    /// Where no runtime can be made, which needs nothing that can fail.
    #[allow(clippy::expect_used, reason = "a simulation cannot go on without its clock")]
    pub(crate) fn new() -> Clock {
        Clock(Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime"))
    }

    /// What is polled while this is held goes by this clock.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }

    /// Time passes. Wakes who waits for it.
    pub(crate) fn pass(&self, time: Duration) {
        self.0.block_on(tokio::time::advance(time));
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use media::{Faults, SimMedia, SimRng};
    use tokio::time::{Instant, sleep};

    use crate::executor::{Cut, End, Executor, NoPulse};

    #[test]
    fn time_passes_in_the_simulation_alone() {
        let media = SimMedia::new(1 << 20, SimRng::new(1), Faults::default());
        let mut executor = Executor::new(SimRng::new(1)).with_clock();
        let slept = Arc::new(AtomicU64::new(0));
        let theirs = slept.clone();
        executor.spawn(async move {
            let begun = Instant::now();
            sleep(std::time::Duration::from_secs(3)).await;
            theirs.store(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        });
        assert_eq!(executor.run(&media, &NoPulse, Cut::Never), End::Finished);
        assert!((3000..100_000).contains(&slept.load(Ordering::Relaxed)), "{slept:?} ms");
    }
}
