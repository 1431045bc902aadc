//! `pumice wipe` and `pumice format`

use std::io::{BufRead, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use ask::{drive_id, file_id};
use drive::{WipeOptions, WipeTarget};
use service::{IoChoice, SpaceAfterWipe, Wipe, run_here};
use status::{path_text, shown};

use crate::in_use;
use crate::output::{print_json, report_result};
use crate::progress;
use crate::size::Size;
use crate::usage;

const BLOCK: u64 = layout::BLOCK_BYTES as u64;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice wipe /srv/drive --yes\n\
    Erases all data and statistics at once, except the bytes written over the life of the drive. After a power loss \
    the drive is either unchanged or wiped. The old contents cannot be read through the drive any more, but remain on \
    the backing until they are discarded or overwritten.")]
pub(crate) struct WipeArgs {
    /// Drive (file or block device) that is not being served
    path: PathBuf,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// New logical capacity, smaller or larger than before
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Do not discard the space of the old contents
    #[arg(long)]
    no_discard: bool,
    /// Wipe a drive that another machine has open, if its server does not answer
    #[arg(long)]
    take_over: bool,
    /// Print JSON: {"path": ..., "space": ..., "warnings": [...], "may_come_back": ...}
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example: pumice format /srv/drive --sector 4096 --yes\n\
    Erases all data, like `pumice wipe`.")]
pub(crate) struct FormatArgs {
    /// Drive (file or block device) that is not being served
    path: PathBuf,
    /// New sector size in bytes
    #[arg(long, value_parser = ["512", "4096"])]
    sector: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Format a drive that another machine has open, if its server does not answer
    #[arg(long)]
    take_over: bool,
    /// Print JSON: {"path": ..., "space": ..., "warnings": [...], "may_come_back": ...}
    #[arg(long)]
    json: bool,
}

pub(crate) fn wipe(args: &WipeArgs) -> Result<()> {
    let options = WipeOptions {
        sector_bytes: None,
        logical_capacity_bytes: args.capacity.map(|capacity| capacity.0 / BLOCK * BLOCK),
        ..WipeOptions::any()
    };
    let how =
        Erasing { yes: args.yes, discard: !args.no_discard, take_over: args.take_over, json: args.json };
    erase(&args.path, options, &how)
}

pub(crate) fn format(args: &FormatArgs) -> Result<()> {
    let options = WipeOptions { sector_bytes: Some(args.sector.parse()?), ..WipeOptions::any() };
    let how = Erasing { yes: args.yes, discard: true, take_over: args.take_over, json: args.json };
    erase(&args.path, options, &how)
}

/// How a drive is erased.
pub(crate) struct Erasing {
    /// Without a question.
    pub(crate) yes: bool,
    /// The space of the old contents is discarded.
    pub(crate) discard: bool,
    /// Also if another machine has the drive, and does not answer.
    pub(crate) take_over: bool,
    /// Prints JSON.
    pub(crate) json: bool,
}

/// Wipes a drive that is not being served.
pub(crate) fn erase(path: &Path, options: WipeOptions, how: &Erasing) -> Result<()> {
    let Erasing { yes, discard, take_over, json } = *how;
    // First: its server would be started again.
    in_use::refuse_attached(path)?;
    // What a server has opened by this path may be another file, which would look wiped.
    crate::served::drive(path)?;
    in_use::refuse(path)?;
    let options = if yes { options } else { confirmed(path, options)? };
    let bar = progress::bar(0, &format!("discarding {}", progress::BYTES));
    let progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        ControlFlow::Continue(())
    };
    let wiped = run_here(IoChoice::Auto, |spawner| {
        service::wipe(path, Wipe { options, discard, take_over }, spawner, progress)
    })?;
    bar.finish_and_clear();
    let (space, wiped) = wiped?;
    let mut warnings = wiped.not_taken;
    if let SpaceAfterWipe::Failed(error) = &space {
        warnings.push(format!("the old space was not discarded: {error}"));
    }
    report_result(&format!("{}: wiped", shown(path)), || {
        if json {
            return print_json(&serde_json::json!({
                "path": path_text(path),
                "space": match space {
                    SpaceAfterWipe::Discarded => "discarded",
                    SpaceAfterWipe::Kept | SpaceAfterWipe::Failed(_) => "kept",
                },
                "warnings": warnings,
                "may_come_back": wiped.may_come_back,
            }));
        }
        let mut out = crate::output::stdout();
        writeln!(out, "{}: wiped", shown(path))?;
        if discard && matches!(space, SpaceAfterWipe::Kept) {
            let why = "the drive was made with --preallocate, or the backing cannot discard";
            writeln!(out, "{}: keeps its space: {why}", shown(path))?;
        }
        Ok(())
    });
    for warning in warnings {
        usage::complain(&format!("warning: {}: {warning}", shown(path)));
    }
    if wiped.may_come_back {
        bail!(
            "{}: wiped, but the backing did not take every copy of the superblock: if the others are lost, what was \
             on it may come back",
            shown(path)
        );
    }
    Ok(())
}

/// Asks on the terminal. Whoever answers means the drive that was there then.
fn confirmed(path: &Path, options: WipeOptions) -> Result<WipeOptions> {
    let mut answer = String::new();
    if !std::io::stdin().is_terminal() {
        bail!("{}: this erases all data; confirm with --yes", shown(path));
    }
    let meant = || -> Result<_> {
        let id = drive_id(path).map_err(|_| anyhow!("{}: its file system does not answer", shown(path)))?;
        let file = std::fs::metadata(path).ok().map(|found| file_id(&found));
        Ok((id.and_then(|id| uuid::Uuid::parse_str(&id).ok()), file))
    };
    let before = meant()?;
    let Some(id) = before.0 else {
        // No drive that anybody could mean. The engine says why, and refuses one that comes there.
        return Ok(WipeOptions { target: WipeTarget::NoDrive, ..options });
    };
    write!(std::io::stderr(), "{}: everything on it will be lost. Type yes to go on: ", shown(path))?;
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() != "yes" {
        bail!("{}: unchanged", shown(path));
    }
    // Also a copy, which has the same id.
    if meant()? != before {
        bail!("{}: another drive is at this path now; nothing was erased", shown(path));
    }
    let target = match options.target {
        WipeTarget::Any => WipeTarget::Id(id.into_bytes()),
        given => given,
    };
    Ok(WipeOptions { target, ..options })
}
