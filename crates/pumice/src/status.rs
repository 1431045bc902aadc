//! `pumice status`

pub(crate) mod listing;
mod names;
mod table;
mod times;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use attach::bridge::AttachmentState;
use attach::client::{self, Attachment};
use attach::place::Record;
use service::{IoChoice, ServiceError, inspect_status, run_here};
use status::{DriveState, StatusAnswer, StatusReport, shown};

use crate::output::print_json;
use crate::served;
use crate::usage::{complain, printable};

/// Most lines about attached drives without a server.
const LINES_MAX: usize = 8;

#[derive(clap::Args)]
#[command(
    after_help = "Sizes are in powers of 1024. Provisioned Capacity is the logical capacity that hosts see.\n\n\
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
    let (drives, is_all) = match args.path.as_deref() {
        Some(path) => match served::drive(path)? {
            Some(drive) => (vec![drive], true),
            None => (vec![without_server(path, &attachments_of(path))?], true),
        },
        None => served::drives(),
    };
    if args.path.is_none() {
        complain_of_attachments(&drives);
    }
    let mut out = crate::output::coloured_stdout();
    if args.json {
        print_json(&StatusAnswer { drives })?;
    } else if drives.is_empty() {
        if is_all {
            writeln!(out, "{}; to see another one, give its path", served::none())?;
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
        None => Ok(served::drives().0),
    }
}

/// Returns the drive at `path`, from its server if it is being served, else from the backing.
fn one(path: &Path) -> Result<StatusReport> {
    match of_server(path)? {
        Some(report) => Ok(report),
        None => idle(path),
    }
}

/// Returns the drive at `path` as its server reports it, if one has it open. Complains of servers that do not
/// answer.
///
/// # Errors
/// If a server has another file, which it has opened by this path.
pub(crate) fn of_server(path: &Path) -> Result<Option<StatusReport>> {
    Ok(served::drive(path)?.filter(|report| report.state != DriveState::Down))
}

/// Returns the attachments of the drive at `path`. Bridges of other drives are not asked.
pub(crate) fn attachments_of(path: &Path) -> Vec<Attachment> {
    client::chosen(|record| record.is_served_at(path))
}

/// As [`idle`]. The reason is that of its attachment, if it has one without a server.
pub(crate) fn without_server(path: &Path, attachments: &[Attachment]) -> Result<StatusReport> {
    let mut report = idle(path)?;
    if report.state == DriveState::Idle {
        let mut its = attachments.iter().filter(|attachment| attachment.record.matches(&report).is_some());
        report.state_reason = its.find_map(not_served).map(|(_, reason)| reason.to_string());
    }
    Ok(report)
}

/// Returns why an attached drive is not served, and what its device does. `None` if its device has a server:
/// a reason says then what else is wrong with it.
pub(crate) fn not_served(attachment: &Attachment) -> Option<(AttachmentState, &str)> {
    let status = &attachment.status;
    let reason = status.reason.as_deref()?;
    (status.state != AttachmentState::Attached).then_some((status.state, reason))
}

/// Complains of attached drives that have no server.
fn complain_of_attachments(served: &[StatusReport]) {
    let is_served = |record: &Record| served.iter().any(|drive| record.matches(drive).is_some());
    for line in lines(&client::chosen(|record| !is_served(record))) {
        complain(&line);
    }
}

fn lines(attachments: &[Attachment]) -> Vec<String> {
    let without = attachments.iter().filter_map(|it| Some((&it.record.path, not_served(it)?)));
    let mut lines: Vec<String> = without
        .map(|(path, (state, reason))| {
            let what =
                if state == AttachmentState::Failed { "and its device failed" } else { "and not served" };
            printable(&format!("warning: {} is attached, {what}: {reason}", shown(path)))
        })
        .collect();
    let others = lines.len().saturating_sub(LINES_MAX);
    if others > 0 {
        lines.truncate(LINES_MAX);
        lines
            .push(format!("warning: {others} more attached drives are not served; `pumice list` shows them"));
    }
    lines
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
