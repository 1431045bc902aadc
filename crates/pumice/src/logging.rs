//! The log, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Logs from now on: warnings and notices, or what `PUMICE_LOG` says (`debug`, `nbd=trace`, ...).
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("PUMICE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init();
    // Somebody else logs already: so be it.
    drop(started);
}
