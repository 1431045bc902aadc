//! Being told to stop, or to read the configuration again.

use anyhow::{Context, Result};
use nbd::{Shutdown, ShutdownTrigger};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the process is told from outside.
pub(super) struct Signals {
    /// SIGTERM or SIGINT.
    pub(super) stop: Shutdown,
    /// SIGHUP.
    pub(super) reload: Signal,
}

/// From now on SIGTERM and SIGINT do not kill the process: the first requests shutdown, the second ends it at once.
pub(super) fn watch() -> Result<Signals> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let reload = listen(SignalKind::hangup())?;
    let trigger = ShutdownTrigger::new();
    let stop = trigger.subscribe();
    tokio::spawn(async move {
        for again in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if again {
                tracing::warn!("stopped at once; the drives recover at their next opening");
                std::process::exit(1);
            }
            trigger.trigger();
        }
    });
    Ok(Signals { stop, reload })
}
