//! `pumice settle`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use service::{Change, ServedDrive, SettleRunReport, StatusReport, change, find_served};

use crate::alone::with_drive;
use crate::human;

/// How often it is looked how far it is.
const POLL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
#[command(after_help = "Example: pumice settle /srv/drive\n\
    What was not compressed as well as the drive can is compressed again: harder, with the dictionary in use, neighbours \
    together. A server does so with cold data by itself, at --background-cpu; this does it now, with all data, on one \
    processor. Hosts may go on; interrupting this command leaves a server at it. A drive that is not served is opened for it; \
    Ctrl-C or SIGTERM ends that, closes the drive, and what was settled until then stays. The space of what lay there before \
    comes back as cleaning passes over it.")]
pub(crate) struct Args {
    /// File or block device with the drive, served or not
    path: PathBuf,
    /// Of a drive that is being served: end the run that is under way
    #[arg(long)]
    stop: bool,
    /// Print JSON: {"path": ..., "settle": {...}, ...}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = args.path.display();
    match find_served(Some(&args.path)).into_iter().next() {
        Some(drive) if args.stop => {
            if running(&drive).is_none() {
                bail!("{path}: no run of settling is under way");
            }
            let stopped = ask(&args.path, &Change::StopSettle)?;
            tell(args, drive.compression_ratio, &stopped)
        }
        Some(drive) => served(args, &drive),
        None if args.stop => {
            crate::status::idle(&args.path)?;
            bail!("{path}: nobody serves it, so nobody settles it")
        }
        None => unserved(args),
    }
}

/// The run that is under way.
fn running(drive: &StatusReport) -> Option<&SettleRunReport> {
    of(drive).filter(|run| run.state == "running")
}

fn of(drive: &StatusReport) -> Option<&SettleRunReport> {
    drive.server.as_ref()?.settling.run.as_ref()
}

fn ask(path: &Path, what: &Change) -> Result<StatusReport> {
    change(path, what)?.ok_or_else(|| anyhow!("{}: its server is gone", path.display()))
}

/// Lets its server do it.
fn served(args: &Args, before: &StatusReport) -> Result<()> {
    let bar = bar()?;
    let mut drive = ask(&args.path, &Change::StartSettle)?;
    while let Some(run) = running(&drive) {
        show(&bar, run);
        std::thread::sleep(POLL);
        drive = find_served(Some(&args.path)).into_iter().next().ok_or_else(|| {
            anyhow!("{}: its server is gone; nothing is lost, settle it again", args.path.display())
        })?;
    }
    bar.finish_and_clear();
    tell(args, before.compression_ratio, &drive)
}

/// Opens it, settles it, closes it.
fn unserved(args: &Args) -> Result<()> {
    let bar = bar()?;
    let done = with_drive(
        &args.path,
        |drive| drive.stop_settle(),
        async |drive| {
            let before = drive.report().compression_ratio;
            (before, follow(drive, &bar).await)
        },
    );
    bar.finish_and_clear();
    let (before, report) = done?;
    tell(args, before, &report)
}

async fn follow(drive: &Arc<ServedDrive>, bar: &ProgressBar) -> StatusReport {
    drive.start_settle();
    loop {
        let report = drive.report();
        match running(&report) {
            Some(run) => show(bar, run),
            None => return report,
        }
        tokio::time::sleep(POLL).await;
    }
}

fn bar() -> Result<ProgressBar> {
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left, {msg}",
    )?);
    Ok(bar)
}

fn show(bar: &ProgressBar, run: &SettleRunReport) {
    bar.set_length(run.total_bytes);
    bar.set_position(run.position_bytes);
    let gained = run.before_bytes.saturating_sub(run.after_bytes);
    bar.set_message(format!("{} gained", human::bytes(gained)));
}

/// What came of it. `before` is the ratio that the drive had.
fn tell(args: &Args, before: f64, drive: &StatusReport) -> Result<()> {
    let path = args.path.display();
    let Some(run) = of(drive) else {
        bail!("{path}: its server was started anew meanwhile; nothing is lost, settle it again");
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let json = serde_json::json!({
            "path": args.path,
            "settle": run,
            "compression_ratio_before": before,
            "compression_ratio": drive.compression_ratio,
        });
        serde_json::to_writer_pretty(&mut out, &json).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else if run.settled_bytes == 0 && drive.codec == "none" {
        writeln!(out, "{path}: its codec is none: nothing is compressed (set-codec changes that)")?;
    } else {
        writeln!(
            out,
            "{path}: {} settled, {} before, {} now; ratio of the drive {before:.2}:1 before, {:.2}:1 now",
            human::bytes(run.settled_bytes),
            human::bytes(run.before_bytes),
            human::bytes(run.after_bytes),
            drive.compression_ratio,
        )?;
    }
    match run.state.as_str() {
        "finished" => Ok(()),
        "stopped" if args.stop => Ok(()),
        "stopped" => bail!("{path}: stopped before its end; what was settled until then stays"),
        _ => bail!(
            "{path}: {}; what was settled until then stays",
            run.reason.as_deref().unwrap_or("it did not come to its end")
        ),
    }
}
