//! Signals that stop the server or reload its configuration.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nbd::{Shutdown, ShutdownTrigger};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Requests by signals.
pub(super) struct Signals {
    /// Set by SIGTERM or SIGINT.
    pub(super) stop: Shutdown,
    /// SIGHUP.
    pub(super) reload: Signal,
}

/// Signals that arrive this soon after the first count as the same request: `timeout` sends SIGTERM twice.
const SAME_WITHIN: Duration = Duration::from_secs(1);

/// Handles signals from now on. The first SIGTERM or SIGINT requests a shutdown. A second one, later than
/// [`SAME_WITHIN`], ends the process immediately.
pub(super) fn watch() -> Result<Signals> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let reload = listen(SignalKind::hangup())?;
    let trigger = ShutdownTrigger::new();
    let stop = trigger.subscribe();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        let first = Instant::now();
        trigger.trigger();
        while first.elapsed() < SAME_WITHIN {
            next().await;
        }
        tracing::warn!("stopped at once; the drives recover at their next opening");
        crate::logging::finish();
        std::process::exit(1);
    });
    Ok(Signals { stop, reload })
}
