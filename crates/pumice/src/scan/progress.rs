//! Progress of a scan on a terminal, shown if it takes longer than two seconds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::scan::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget};

/// Time before anything is shown.
const QUIET: Duration = Duration::from_secs(2);

pub(super) struct Bar {
    since: Instant,
    bar: OnceLock<ProgressBar>,
    /// Total for the bar when it appears; 0 while unknown.
    total: AtomicU64,
    done: AtomicU64,
}

impl Bar {
    pub(super) fn new() -> Bar {
        Bar { since: Instant::now(), bar: OnceLock::new(), total: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    fn bar(&self) -> Option<&ProgressBar> {
        if self.since.elapsed() < QUIET {
            return None;
        }
        Some(self.bar.get_or_init(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
            self.style(&bar);
            bar
        }))
    }

    fn style(&self, bar: &ProgressBar) {
        let total = self.total.load(Ordering::Relaxed);
        let template = if total > 0 {
            bar.set_length(total);
            "{bar:30} {bytes} of at most {total_bytes}, {bytes_per_sec}, {eta} left"
        } else {
            "{spinner} {msg} {bytes} read, {bytes_per_sec}"
        };
        crate::progress::set_style(bar, template);
        bar.set_position(self.done.load(Ordering::Relaxed));
    }

    /// Shows the number of files found.
    pub(super) fn listed(&self, count: u64) {
        if count.is_multiple_of(1024)
            && let Some(bar) = self.bar()
        {
            bar.set_message(format!("{count} files found,"));
        }
    }

    pub(super) fn on(&self, event: Progress) {
        match event {
            Progress::Begin(total) => {
                self.total.store(total.unwrap_or(0), Ordering::Relaxed);
                if let Some(bar) = self.bar() {
                    bar.reset();
                    self.style(bar);
                }
            }
            Progress::Read(bytes) => {
                let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                if let Some(bar) = self.bar() {
                    bar.set_position(done);
                }
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
