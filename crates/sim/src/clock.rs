//! Time for code that uses a tokio runtime's clock. It advances only when the executor advances it.

use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime};

/// A clock that can be advanced.
pub(crate) struct Clock(Runtime);

impl Clock {
    /// Creates a stopped clock.
    ///
    /// # Panics
    /// If no runtime can be created. That is not expected: the runtime needs nothing that can fail.
    #[allow(clippy::expect_used, reason = "a simulation cannot go on without its clock")]
    pub(crate) fn new() -> Clock {
        Clock(Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime"))
    }

    /// Makes this clock apply to everything that is polled while the guard is held.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }

    /// Advances the clock and wakes tasks that waited for it.
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
