//! Progress of a run on standard error: a bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};

use ::bench::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::human;
use crate::usage::complain;

pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(super) fn new() -> Bar {
        Bar(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(4));
            crate::progress::set_style(&bar, "round {prefix} {bar:20} {msg}");
            bar
        }))
    }

    /// Prints lines above the bar, from any thread.
    pub(super) fn voice(&self) -> impl Fn(&str) + Send + 'static + use<> {
        let bar = self.0.clone();
        move |line| match &bar {
            Some(bar) => bar.suspend(|| complain(line)),
            None => complain(line),
        }
    }

    pub(super) fn show(&self, progress: &Progress) {
        let left = human::duration(progress.left.as_secs_f64());
        match &self.0 {
            Some(bar) => {
                bar.set_length(progress.total_count as u64);
                bar.set_position(progress.done_count as u64);
                bar.set_prefix(progress.round.to_string());
                bar.set_message(format!("{}; at most {left} left", progress.what));
            }
            None => {
                // The run goes on if nobody reads it.
                let _ = writeln!(
                    std::io::stderr(),
                    "round {}, {} of {}: {}; at most {left} left",
                    progress.round,
                    progress.done_count + 1,
                    progress.total_count,
                    progress.what
                );
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
