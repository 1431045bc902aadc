//! `pumice status`

pub(crate) mod listing;
mod names;
mod table;
mod times;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use attach::client;
use service::{IoChoice, ServiceError, inspect_status, run_here};
use status::{DriveState, StatusAnswer, StatusReport, shown};

use crate::output::print_json;
use crate::served;
use crate::usage::{complain, printable};

#[derive(clap::Args)]
#[command(
    after_help = "Capacity and space are in powers of 1024. Provisioned Capacity is the logical capacity that hosts see.\n\n\
    Example: pumice status /srv/drive --json | jq '.drives[0].compression_ratio'"
)]
pub(crate) struct Args {
    /// Drive (file or block device) [default: all drives of running servers]
    path: Option<PathBuf>,
    /// Show everything; otherwise a summary
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    all: bool,
    /// Print JSON: {"drives": [{...}]}, always with everything
    #[arg(long)]
    json: bool,
    /// Live view of the drives being served, updated every SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    #[arg(conflicts_with = "json")]
    watch: Option<watch::Interval>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(interval) = args.watch {
        return watch::run(args.path.as_deref(), interval);
    }
    let (found, is_all) = served::drives(args.path.as_deref());
    let drives = match (args.path.as_deref(), found) {
        (Some(path), found) if found.is_empty() => vec![without_server(path)?],
        (Some(_), mut found) => {
            found.truncate(1);
            found
        }
        (None, found) => found,
    };
    if args.path.is_none() {
        complain_of_attachments(&drives);
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        print_json(&StatusAnswer { drives })?;
    } else if drives.is_empty() {
        if is_all {
            writeln!(out, "no drive is being served; give the path of one that is not")?;
        }
    } else {
        for (index, drive) in drives.iter().enumerate() {
            let gap = if index > 0 { "\n" } else { "" };
            write!(out, "{gap}{}", table::render(drive, args.all))?;
        }
    }
    Ok(())
}

/// Returns the drive at `path`, or all drives of servers, also those that are down.
pub(crate) fn find(path: Option<&Path>) -> Result<Vec<StatusReport>> {
    match path {
        Some(path) => Ok(vec![one(path)?]),
        None => Ok(served::drives(None).0),
    }
}

/// Returns the drive at `path`, from its server if it is being served, else from the backing.
fn one(path: &Path) -> Result<StatusReport> {
    match of_server(path) {
        Some(report) => Ok(report),
        None => idle(path),
    }
}

/// Returns the drive at `path` as its server reports it, if one has it open. Complains of servers that do not answer.
pub(crate) fn of_server(path: &Path) -> Option<StatusReport> {
    served::drives(Some(path)).0.into_iter().find(|report| report.state != DriveState::Down)
}

/// As [`idle`]. The reason is that of its attachment, if it has one, which waits for a server.
pub(crate) fn without_server(path: &Path) -> Result<StatusReport> {
    let mut report = idle(path)?;
    if report.state == DriveState::Idle {
        let attachment = client::all().into_iter().find(|attachment| attachment.is_of(path));
        report.state_reason = attachment.and_then(|attachment| attachment.status.reason);
    }
    Ok(report)
}

/// Complains of attached drives that have no server.
fn complain_of_attachments(served: &[StatusReport]) {
    for attachment in client::all() {
        let Some(reason) = &attachment.status.reason else { continue };
        if !served.iter().any(|drive| attachment.is_of(&drive.path)) {
            let path = shown(&attachment.record.path);
            complain(&printable(&format!("warning: {path} is attached, and not served: {reason}")));
        }
    }
}

/// Returns the status of the drive at `path` without a server.
pub(crate) fn idle(path: &Path) -> Result<StatusReport> {
    let look = |accept_damage| -> Result<_, ServiceError> {
        run_here(IoChoice::Auto, |spawner| inspect_status(path, accept_damage, spawner))?
    };
    match look(false) {
        Ok(report) => Ok(report),
        // A damaged drive still has a partial status.
        Err(
            error @ ServiceError::Drive {
                source: drive::Error::Corrupt(_) | drive::Error::Damaged(_), ..
            },
        ) => look(true).map_err(|_| error.into()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the suffix of the state for a drive that refuses writes for lack of space.
pub(crate) fn out_of_space(drive: &StatusReport) -> &'static str {
    match (drive.out_of_space, drive.backing_full) {
        (_, true) => " (out of space: the backing is full)",
        (true, false) => " (out of space)",
        (false, false) => "",
    }
}
