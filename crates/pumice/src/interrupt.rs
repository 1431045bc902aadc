//! SIGINT, SIGTERM and SIGHUP for commands that clean up before they end.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Calls `stop` at the first SIGINT, SIGTERM or SIGHUP. Later ones have no effect. SIGHUP stays ignored if it
/// was (`nohup`).
pub(crate) fn on_signal(stop: impl FnOnce() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt, mut hangup) = {
        let _inside = runtime.enter();
        // A second listener of SIGINT changes nothing.
        let hangup = if ignores_hangup() { SignalKind::interrupt() } else { SignalKind::hangup() };
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(hangup)?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        stop();
    });
    Ok(())
}

/// Whether SIGHUP was ignored when the program started (`proc_pid_status(5)`: `SigIgn`).
fn ignores_hangup() -> bool {
    let mask = host::process::status_field(&host::Root::machine(), "self", "SigIgn");
    mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).is_some_and(|mask| mask & 1 != 0)
}
