//! `pumice check`

mod files;
mod report;
mod scrub;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use drive::{CheckOptions, CheckProgress, CheckReport, Drive, Status};
use indicatif::ProgressBar;
use media::{AnyMedia, Direct, FileMedia};
use service::{IoChoice, ServiceError, inspect, run_here};

use crate::not_a_drive;
use crate::output::print_json;
use crate::progress;
use crate::size::Size;
use crate::usage::Coded;
use report::{CheckOutcome, Checked};

/// Update interval of the progress bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
#[command(after_help = "Example: pumice check /srv/drive --deep\n\
    If the drive is being served, --deep starts a scrub in its server: all records are read and verified in the \
    background, at --rate. Interrupting this command does not stop the scrub (use --stop).\n\
    --files needs ext4, XFS or another file system with FIEMAP, on the device of the drive or a partition of it, and \
    root. It opens every file, reads none, and takes as long as `find` on the file system.\n\
    Exit code: 0 no faults, 1 faults found (one line each), 2 usage error, 3 check incomplete or impossible")]
pub(crate) struct Args {
    /// Drive (file or block device)
    path: PathBuf,
    /// Also read, verify and decompress all records
    #[arg(long)]
    deep: bool,
    /// Read rate of the scrub of a drive being served, in bytes per second
    #[arg(long, value_name = "SIZE", default_value = "64M", requires = "deep", value_parser = rate)]
    rate: Size,
    /// Name the files that the faults are in, of the file system at MOUNT or, without it, of those mounted
    /// from the drive: opens every file. Without --deep, of the last scrub since the drive was opened
    #[arg(long, value_name = "MOUNT", num_args = 0..=1, require_equals = true)]
    files: Option<Option<PathBuf>>,
    /// Stop the running scrub of a drive being served
    #[arg(long, conflicts_with_all = ["deep", "files", "accept_damage", "json"])]
    stop: bool,
    /// Check a drive with a damaged log in the state before the damage
    #[arg(long)]
    accept_damage: bool,
    /// Print JSON: {"path": ..., "faults": [{...}], ...}
    #[arg(long)]
    json: bool,
}

/// Exit code if the drive was not checked completely, so that it is unknown whether it has faults.
const NOT_CHECKED: u8 = 3;

/// Error for a drive with faults: the last line, after one line for each fault.
#[derive(Debug)]
struct Faults(String);

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Faults {}

fn rate(text: &str) -> Result<Size> {
    let size: Size = text.parse()?;
    match size.0 {
        0 => bail!("expected more than 0; --stop stops a scrub"),
        _ => Ok(size),
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    examine(args).map_err(|error| match error.is::<Faults>() || crate::is_broken_pipe(&error) {
        true => error,
        false => Coded { code: NOT_CHECKED, error: not_a_drive::clarify(error) }.into(),
    })
}

fn examine(args: &Args) -> Result<()> {
    let path = args.path.display();
    if let Some(drive) = ask::find_served(&args.path)? {
        return scrub::run(args, &drive);
    }
    if args.stop {
        bail!("{path}: the drive is not being served");
    }
    if args.files.is_some() {
        bail!(files::not_served(&args.path));
    }
    let found = run_here(IoChoice::Auto, |spawner| async move {
        let drive = match inspect(&args.path, args.accept_damage, spawner).await {
            Ok(drive) => drive,
            Err(ServiceError::Drive {
                source: why @ (drive::Error::Corrupt(_) | drive::Error::Damaged(_)),
                ..
            }) => return closed(&args.path, why.to_string()).await,
            Err(error) => return Err(error.into()),
        };
        let status = drive.status();
        let report = check(&drive, &status, args.deep).await?;
        let media = AnyMedia::from(FileMedia::open(&args.path, true, Direct::Auto)?);
        let owner = drive::find_owner(&media).await;
        Ok(CheckOutcome::Open(Box::new(Checked { status, report, owner })))
    })??;
    let mut out = crate::output::stdout();
    let printed = match args.json {
        true => print_json(&found.json(&args.path)),
        false => found.print(&mut out).map_err(Into::into),
    };
    match (found.faults_count(), found.advice()) {
        (0, _) if args.json => printed,
        (0, _) => printed.and_then(|()| Ok(writeln!(out, "{path}: no faults")?)),
        (count, advice) => Err(Faults(format!("{path}: {}; {advice}", faults_text(count))).into()),
    }
}

/// Returns a number of faults in words.
fn faults_text(count: u64) -> String {
    if count == 1 { "1 fault".to_string() } else { format!("{count} faults") }
}

/// Collects the state of the superblocks and checkpoints of a drive that cannot be opened.
async fn closed(path: &Path, why: String) -> Result<CheckOutcome> {
    let media = AnyMedia::from(FileMedia::open(path, true, Direct::Auto)?);
    let (superblocks, checkpoints) = drive::find_copies(&media).await;
    Ok(CheckOutcome::Closed { superblocks, checkpoints, why })
}

async fn check(drive: &Drive<AnyMedia>, status: &Status, deep: bool) -> Result<CheckReport> {
    let bar = ProgressBar::no_length();
    bar.enable_steady_tick(PROGRESS_INTERVAL);
    progress::set_style(&bar, "{spinner} {pos} map nodes read, {elapsed}");
    let (mut records, mut places) = (false, false);
    let options = CheckOptions { deep, ..CheckOptions::default() };
    let checked = drive
        .examine(options, |progress| match progress {
            CheckProgress::Map { nodes_count } => bar.set_position(nodes_count),
            CheckProgress::Records { done_bytes, total_bytes } => {
                if !std::mem::replace(&mut records, true) {
                    progress::set_style(&bar, progress::BYTES);
                    bar.set_length(total_bytes);
                }
                bar.set_position(done_bytes);
            }
            CheckProgress::Places { segment, segments_count } => {
                if !std::mem::replace(&mut places, true) {
                    progress::set_style(&bar, "segments with parity: {bar:40} {pos}/{len}, {elapsed}");
                    bar.set_length(u64::from(segments_count));
                }
                bar.set_position(u64::from(segment));
            }
        })
        .await;
    bar.finish_and_clear();
    let mut report = checked?;
    // The drive was opened in the state before the damage. The damage itself counts as a fault.
    if let drive::State::Damaged(why) = &status.state {
        report.add_fault(why.clone());
    }
    Ok(report)
}
