//! `pumice settle`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use ask::{Change, DriveSearch, change, find_served};
use indicatif::ProgressBar;
use service::ServedDrive;
use status::{RunState, SettleRunReport, StatusReport, path_text, shown};

use crate::alone::with_drive;
use crate::human;
use crate::output::{print_json, report_result};
use crate::progress;

/// Interval between progress requests.
const POLL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
#[command(after_help = "Example: pumice settle /srv/drive\n\
    Recompresses all data that can be stored smaller: at a higher level, with the current dictionary, and with \
    neighbouring blocks in one frame. A server does this with cold data in the background (see --background-cpu of \
    `pumice serve`); this command does it now, with all data, on one processor. Hosts can use the drive meanwhile. If \
    the drive is being served, interrupting this command does not stop the run (use --stop). If it is not, the command \
    opens the drive; Ctrl-C or SIGTERM stops the run, keeps what was recompressed so far and closes the drive. The \
    space saved becomes free as cleaning reaches it.")]
pub(crate) struct Args {
    /// Drive (file or block device), served or not
    path: PathBuf,
    /// Stop the current run (drive being served)
    #[arg(long)]
    stop: bool,
    /// Print JSON: {"path": ..., "settle": {...}, ...}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = shown(&args.path);
    match find_served(&args.path)? {
        Some(drive) if args.stop => {
            if running(&drive).is_none() {
                bail!("{path}: no settling run is active");
            }
            let stopped = ask(&args.path, &Change::StopSettle)?;
            report_run(args, drive.compression_ratio, &stopped)
        }
        Some(drive) => served(args, &drive),
        None if args.stop => {
            crate::status::idle(&args.path)?;
            bail!("{path}: the drive is not being served")
        }
        None => unserved(args),
    }
}

/// Returns the run in progress, if any.
fn running(drive: &StatusReport) -> Option<&SettleRunReport> {
    of(drive).filter(|run| run.state == RunState::Running)
}

fn of(drive: &StatusReport) -> Option<&SettleRunReport> {
    drive.server.as_ref()?.settling.run.as_ref()
}

fn ask(path: &Path, what: &Change) -> Result<StatusReport> {
    change(path, what)?.ok_or_else(|| anyhow!("{}: its server is gone", shown(path)))
}

/// Settles a drive that is being served, in its server.
fn served(args: &Args, before: &StatusReport) -> Result<()> {
    let bar = bar();
    let mut drive = ask(&args.path, &Change::StartSettle)?;
    let search = DriveSearch::new(&args.path);
    // The server that was asked, from now on.
    search.find_exactly_patiently()?;
    while let Some(run) = running(&drive) {
        show(&bar, run);
        std::thread::sleep(POLL);
        drive = search.find_again().ok_or_else(|| {
            anyhow!("{}: its server is gone; nothing is lost, settle it again", shown(&args.path))
        })?;
    }
    bar.finish_and_clear();
    report_run(args, before.compression_ratio, &drive)
}

/// Opens the drive, settles it, and closes it.
fn unserved(args: &Args) -> Result<()> {
    let bar = bar();
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
    report_run(args, before, &report)
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

fn bar() -> ProgressBar {
    progress::bar(0, &format!("{}, {{msg}}", progress::BYTES))
}

fn show(bar: &ProgressBar, run: &SettleRunReport) {
    bar.set_length(run.total_bytes);
    bar.set_position(run.position_bytes);
    let gained = run.before_bytes.saturating_sub(run.after_bytes);
    bar.set_message(format!("{} gained", human::bytes(gained)));
}

/// Reports the result. `before` is the ratio of the drive before the run.
fn report_run(args: &Args, before: f64, drive: &StatusReport) -> Result<()> {
    let path = shown(&args.path);
    let Some(run) = of(drive) else {
        bail!("{path}: its server was restarted; nothing is lost, settle again");
    };
    report_result(&format!("{path}: run ended"), || print(args, before, drive, run));
    match run.state {
        RunState::Finished => Ok(()),
        RunState::Stopped if args.stop => Ok(()),
        RunState::Stopped => bail!("{path}: stopped before its end; what was settled until then stays"),
        RunState::Running | RunState::Failed | RunState::Unknown => bail!(
            "{path}: {}; what was settled until then stays",
            run.reason.as_deref().unwrap_or("it did not come to its end")
        ),
    }
}

fn print(args: &Args, before: f64, drive: &StatusReport, run: &SettleRunReport) -> Result<()> {
    let path = shown(&args.path);
    let mut out = crate::output::stdout();
    if args.json {
        let json = serde_json::json!({
            "path": path_text(&args.path),
            "settle": run,
            "compression_ratio_before": before,
            "compression_ratio": drive.compression_ratio,
        });
        print_json(&json)?;
    } else if run.settled_bytes == 0 && drive.codec.parse() == Ok(codec::Policy::None) {
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
    Ok(())
}
