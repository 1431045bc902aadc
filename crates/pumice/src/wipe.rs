//! `pumice wipe` and `pumice format`

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use drive::WipeOptions;
use indicatif::{ProgressBar, ProgressStyle};
use service::{IoChoice, run_here};

use crate::size::Size;

const BLOCK: u64 = layout::BLOCK_BYTES as u64;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice wipe /srv/drive --yes\n\
    All data and statistics go at once, bytes written over the drive's life are still known afterwards. A power cut on the \
    way leaves the drive as it was, or wiped. The old contents can no longer be reached through the drive, but lie on the \
    backing until it discards or overwrites them.")]
pub(crate) struct WipeArgs {
    /// File or block device with the drive; no server may have it
    path: PathBuf,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Logical capacity from then on, smaller or larger than before
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Leave the space of the old contents with the backing
    #[arg(long)]
    no_discard: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example: pumice format /srv/drive --sector 4096 --yes\n\
    This wipes the drive.")]
pub(crate) struct FormatArgs {
    /// File or block device with the drive; no server may have it
    path: PathBuf,
    /// Bytes of a sector from then on
    #[arg(long, value_parser = ["512", "4096"])]
    sector: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) fn wipe(args: &WipeArgs) -> Result<()> {
    let options = WipeOptions {
        sector_bytes: None,
        logical_capacity_bytes: args.capacity.map(|capacity| capacity.0 / BLOCK * BLOCK),
    };
    erase(&args.path, options, args.yes, !args.no_discard)
}

pub(crate) fn format(args: &FormatArgs) -> Result<()> {
    let options = WipeOptions { sector_bytes: Some(args.sector.parse()?), logical_capacity_bytes: None };
    erase(&args.path, options, args.yes, true)
}

fn erase(path: &Path, options: WipeOptions, yes: bool, discard: bool) -> Result<()> {
    if !yes {
        ask(path)?;
    }
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("discarding {wide_bar} {bytes}/{total_bytes} {eta}")?);
    let progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let wiped = run_here(IoChoice::Auto, |_| service::wipe(path, options, discard, progress))?;
    bar.finish_and_clear();
    let gave_back = wiped?;
    let mut out = std::io::stdout();
    writeln!(out, "{}: wiped", path.display())?;
    if !gave_back && discard {
        let why = "the drive was made with --preallocate, or the backing cannot discard";
        writeln!(out, "{}: keeps its space: {why}", path.display())?;
    }
    Ok(())
}

fn ask(path: &Path) -> Result<()> {
    let mut answer = String::new();
    if !std::io::stdin().is_terminal() {
        bail!("{}: everything on it would be lost; say --yes if that is wanted", path.display());
    }
    write!(std::io::stderr(), "{}: everything on it will be lost. Type yes to go on: ", path.display())?;
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() != "yes" {
        bail!("{}: left as it is", path.display());
    }
    Ok(())
}
