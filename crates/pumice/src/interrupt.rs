//! SIGINT and SIGTERM for commands that clean up before they end.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Calls `stop` at the first SIGINT or SIGTERM. Later ones have no effect.
pub(crate) fn on_signal(stop: impl FnOnce() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        stop();
    });
    Ok(())
}
