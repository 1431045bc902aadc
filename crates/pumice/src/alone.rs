//! Opens a drive that is not being served for one piece of work, and closes it even if the work is
//! interrupted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use service::{IoChoice, OpenSettings, ServedDrive, Workers, inspect, run_here};
use tokio::signal::unix::{SignalKind, signal};

/// Wait for requests in flight when the drive is closed. There are none at that point.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens the drive at `path`, does `work` with it, and closes it. SIGINT and SIGTERM call `interrupt`, which
/// must make the work end soon. A second signal ends the process immediately; the drive then recovers at its
/// next opening.
pub(crate) fn with_drive<T>(
    path: &Path,
    interrupt: impl Fn(&ServedDrive) + Send + 'static,
    work: impl AsyncFnOnce(&Arc<ServedDrive>) -> T,
) -> Result<T> {
    // Opening and closing write to the backing. Checks first that it holds a drive.
    run_here(IoChoice::Auto, |spawner| inspect(path, false, spawner))??;
    let workers = Workers::start(None, IoChoice::Auto)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // No background work beyond what the user asked for.
    let settings = OpenSettings { background_cpu_percent: 0.0, ..OpenSettings::default() };
    let done = runtime.block_on(async {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let (mut end, mut stop) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let drive = ServedDrive::open(path, &settings, &workers, 0).await?;
        let interrupted = drive.clone();
        let watching = tokio::spawn(async move {
            for again in [false, true] {
                tokio::select! {
                    _ = end.recv() => {}
                    _ = stop.recv() => {}
                }
                if again {
                    std::process::exit(1);
                }
                interrupt(&interrupted);
            }
        });
        let done = work(&drive).await;
        let closed = drive.close(PATIENCE).await;
        watching.abort();
        closed?;
        Ok::<T, anyhow::Error>(done)
    });
    drop(runtime);
    workers.stop();
    done
}
