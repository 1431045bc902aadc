//! `pumice demo`: creates a drive, fills it with real files, kills its server and verifies everything.

mod disk;
mod files;
mod image;
mod mount;
mod mounted;
mod server;
mod tools;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use report::Table;

use crate::free_space::free_bytes;
use crate::human;
use crate::output::print_json;
use crate::progress;
use disk::Disk;
use server::{path_text, pumice};
use status::StatusReport;

/// Sizes of the demo drive.
const PHYSICAL_SIZE: &str = "512M";
const LOGICAL_CAPACITY: &str = "1G";
/// Physical size in bytes. The drive may use all of it.
const PHYSICAL_BYTES: u64 = 512 << 20;
/// Bytes of files that are written and flushed before the kill.
const FILES_BYTES: u64 = 256 << 20;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice demo")]
pub(crate) struct Args {
    /// Print JSON: {"files_count": ..., "compression_ratio": ..., ...}; the steps go to standard error
    #[arg(long)]
    json: bool,
}

/// True if standard output is reserved for JSON. Set once, before anything is printed.
static JSON: AtomicBool = AtomicBool::new(false);

/// Result of the demo.
struct Outcome {
    files: usize,
    bytes: u64,
    /// Time to write and flush.
    wrote_in: Duration,
    /// Write amplification until the server was killed; `None` if no host write was counted. Read before the
    /// kill, because the counts since the last checkpoint are lost then and a later status shows less.
    write_amplification: Option<f64>,
    /// Status at the end.
    status: StatusReport,
    /// Time until the drive was served again after the kill.
    ready_after: Duration,
}

/// Checks for free space. The drive is a sparse file, so a file system that is too small would cause I/O
/// errors later.
fn room_for_the_drive(folder: &Path) -> Result<()> {
    let free = free_bytes(folder).with_context(|| format!("{}: cannot look at it", folder.display()))?;
    ensure!(
        free >= PHYSICAL_BYTES,
        "{}: {} are free and the drive may take {}; set TMPDIR to a directory with more",
        std::env::temp_dir().display(),
        human::bytes(free),
        human::bytes(PHYSICAL_BYTES)
    );
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<()> {
    JSON.store(args.json, Ordering::Relaxed);
    crate::interrupt::on_signal(tools::interrupt)?;
    let since = Instant::now();
    let folder = tempfile::Builder::new()
        .prefix("pumice-demo-")
        .tempdir()
        .context("cannot create a temporary directory (set TMPDIR)")?;
    room_for_the_drive(folder.path())?;
    let drive = folder.path().join("drive");
    let created = ["create", path_text(&drive)?, "--size", PHYSICAL_SIZE, "--capacity", LOGICAL_CAPACITY];
    say(&format!(
        "A drive of {LOGICAL_CAPACITY} logical on {PHYSICAL_SIZE} physical, in {}",
        drive.display()
    ));
    pumice(&created)?;
    let outcome = match Disk::missing() {
        None => mounted::write_kill_verify(folder.path())?,
        Some(why) => {
            say(&format!("Not mounting a file system: {why}"));
            image::write_kill_verify(folder.path())?
        }
    };
    let (status, ready_after) = (&outcome.status, outcome.ready_after);
    let checked = pumice(&["check", path_text(&drive)?, "--deep"])?;
    say(&format!("Checked offline: {}", checked.lines().last().unwrap_or_default()));
    let rate = outcome.bytes as f64 / outcome.wrote_in.as_secs_f64() / f64::from(1 << 20);
    if args.json {
        print_json(&serde_json::json!({
            "files_count": outcome.files,
            "written_bytes": outcome.bytes,
            "written_bytes_per_second": (rate * f64::from(1 << 20)).round(),
            "logical_used_bytes": status.logical_used_bytes,
            "physical_used_bytes": status.physical_used_bytes,
            "compression_ratio": status.compression_ratio,
            "write_amplification": outcome.write_amplification,
            "ready_after_kill_seconds": ready_after.as_secs_f64(),
            "seconds": since.elapsed().as_secs_f64(),
        }))?;
        return folder.close().context("the temporary directory is still there");
    }
    let rows = [
        ("files", format!("{} with {}", outcome.files, human::bytes(outcome.bytes))),
        ("written and flushed at", format!("{rate:.0} MiB/s")),
        ("logical used", human::bytes(status.logical_used_bytes)),
        ("physical used", human::bytes(status.physical_used_bytes)),
        ("compression ratio", format!("{:.2}:1", status.compression_ratio)),
        (
            "write amplification",
            outcome.write_amplification.map_or("not available".to_string(), |waf| format!("{waf:.2}")),
        ),
        ("serving again after the kill", format!("{:.2} s", ready_after.as_secs_f64())),
        ("took", format!("{:.0} s", since.elapsed().as_secs_f64())),
    ];
    print("");
    let mut table = Table::new::<String>([]);
    for (name, value) in rows {
        table.row([name.to_string(), value]);
    }
    print(table.to_text().trim_end());
    folder.close().context("the temporary directory is still there")
}

/// Prints a step of the demo.
fn say(what: &str) {
    print(&format!("* {what}"));
}

fn print(line: &str) {
    // Ignores errors, so that the demo cleans up even if its output is closed.
    let _ = match JSON.load(Ordering::Relaxed) {
        true => writeln!(std::io::stderr(), "{line}"),
        false => writeln!(std::io::stdout(), "{line}"),
    };
}

/// Returns the files to write.
fn sources() -> Result<Vec<std::path::PathBuf>> {
    files::find(FILES_BYTES)
}

/// Copies files and shows a progress bar.
fn copy_all(sources: &[std::path::PathBuf], to: &Path) -> Result<Vec<files::Copied>> {
    let total: u64 = sources.iter().filter_map(|it| it.metadata().ok()).map(|it| it.len()).sum();
    let bar = progress::bar(total, progress::BYTES);
    let mut copied = Vec::with_capacity(sources.len());
    for source in sources {
        let one = files::copy(source, to)?;
        bar.inc(one.bytes());
        copied.push(one);
    }
    bar.finish_and_clear();
    Ok(copied)
}

fn total_bytes(copied: &[files::Copied]) -> u64 {
    copied.iter().map(files::Copied::bytes).sum()
}
