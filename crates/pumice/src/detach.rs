//! `pumice detach`

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use attach::bridge::State;
use attach::client::{self, Attachment};
use service::DriveSearch;
use status::{BackingPlace, shown};

use crate::attach::detach_all;
use crate::in_use;

/// Interval of checks whether a device is in use still.
const POLL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
#[command(after_help = "Example: pumice detach /dev/loop0\n\
    Flushes the drive, removes its node, and ends the bridge; and the server, if `pumice attach` started it. Refused while the \
    device is mounted or in use otherwise, and if that server has a backing that was deleted.")]
pub(crate) struct Args {
    /// Device node, or drive
    #[arg(required_unless_present = "configured")]
    path: Option<PathBuf>,
    /// Detach all drives that `pumice attach --configured` has attached
    #[arg(long, conflicts_with = "path")]
    configured: bool,
    /// Detach although the server is gone: what is not flushed is lost. Also a mounted device without a bridge: its requests fail. Also
    /// a drive whose backing was deleted: all of it is lost
    #[arg(long)]
    force: bool,
    /// Wait so long, in seconds, for all together, until it is not mounted, swap space or part of another device any more
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true)]
    wait: u64,
    /// Only if this process is the one behind it: for units, whose main process it is. Empty: it has ended, do nothing
    #[arg(long, value_name = "PID", conflicts_with = "configured")]
    bridge: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("detaching a drive needs root");
    }
    let patience = Duration::from_secs(args.wait);
    let Some(path) = &args.path else { return detach_all(args.force, patience) };
    if args.bridge.as_deref() == Some("") {
        return Ok(());
    }
    let Some(found) = client::find(path) else {
        bail!("{}: not attached; `pumice list` shows what is", shown(path));
    };
    let pid = found.record.bridge_pid;
    if args.bridge.as_ref().is_some_and(|bridge| *bridge != pid.to_string()) {
        bail!("{}: attached by another process: {pid}", shown(path));
    }
    // A unit that stops ends the server in any case.
    if !args.force && args.bridge.is_none() {
        refuse_loss(&found)?;
    }
    unused_within(&found, args.force, patience)?;
    Ok(found.detach(args.force)?)
}

/// Refuses a drive whose backing was deleted if its server ends with the attachment: the file is gone then.
fn refuse_loss(found: &Attachment) -> Result<()> {
    let Some(started) = found.record.server_pid else { return Ok(()) };
    let Some(report) = DriveSearch::new(&found.record.path).find_patiently() else { return Ok(()) };
    let ends = report.server.as_ref().is_some_and(|server| server.pid == started);
    if ends && report.backing.place == BackingPlace::Deleted {
        bail!(
            "{}: its backing was deleted, and detaching ends its server (process {started}), with which all data is lost; copy it \
             first (docs/space.md), or use --force",
            shown(&found.record.path)
        );
    }
    Ok(())
}

/// Waits until the device of a drive is not in use. At shutdown, what is mounted there may be unmounted at the same time. A device
/// without a bridge is not waited for if it is to be detached by force: it may be that nobody can unmount it.
///
/// # Errors
/// If it is in use after `patience`.
pub(crate) fn unused_within(found: &Attachment, force: bool, patience: Duration) -> Result<()> {
    if force && found.status.state == State::Unattended {
        return Ok(());
    }
    let since = Instant::now();
    loop {
        let unused = found.record.node.as_deref().map_or(Ok(()), in_use::refuse);
        if unused.is_ok() || since.elapsed() >= patience {
            return unused;
        }
        sleep(POLL);
    }
}
