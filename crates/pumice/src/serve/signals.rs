//! Being told to stop.

use anyhow::{Context, Result};
use nbd::{Shutdown, ShutdownTrigger};
use tokio::signal::unix::{SignalKind, signal};

/// From now on SIGTERM and SIGINT do not kill the process: the first requests shutdown, the second ends it at once.
pub(super) fn watch() -> Result<Shutdown> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let trigger = ShutdownTrigger::new();
    let shutdown = trigger.subscribe();
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
    Ok(shutdown)
}
