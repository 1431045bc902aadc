//! `pumice set-capacity` and `pumice set-size`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use service::{IoChoice, run_here};
use status::{CapacityPlan, Fit, StatusReport, path_text, shown};

use crate::human;
use crate::output::{print_json, report_result};
use crate::size::Size;
use crate::usage;

const BLOCK: u64 = layout::BLOCK_BYTES as u64;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice set-capacity /srv/drive 40G\n\
    Clients see the new capacity when they reconnect; then grow the file system (resize2fs, xfs_growfs).\n\
    Capacity cannot be reduced, except by `pumice wipe --capacity`.")]
pub(crate) struct CapacityArgs {
    /// Drive (file or block device), served or not
    path: PathBuf,
    /// New logical capacity
    capacity: Size,
    /// Print JSON: {"path": ..., "logical_capacity_bytes": ..., "physical_size_bytes": ..., "warning": ...}
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example: pumice set-size /srv/drive 20G\n\
    Extends a file as needed; a block device must be grown first. The limit is four times the size at creation.")]
pub(crate) struct SizeArgs {
    /// Drive (file or block device), served or not
    path: PathBuf,
    /// New physical size
    size: Size,
    /// Allocate the added space of a file now; it stays allocated only if the drive was created with
    /// --preallocate
    #[arg(long)]
    preallocate: bool,
    /// Print JSON: {"path": ..., "logical_capacity_bytes": ..., "physical_size_bytes": ..., "warning": ...}
    #[arg(long)]
    json: bool,
}

pub(crate) fn set_capacity(args: &CapacityArgs) -> Result<()> {
    // Powers of 1000 are rarely a multiple of the block size.
    let bytes = args.capacity.0 / BLOCK * BLOCK;
    let drive = run_here(IoChoice::Auto, |spawner| service::set_capacity(&args.path, bytes, spawner))??;
    report(&drive, args.json);
    Ok(())
}

pub(crate) fn set_size(args: &SizeArgs) -> Result<()> {
    let set = |spawner| service::set_size(&args.path, args.size.0, args.preallocate, spawner);
    report(&run_here(IoChoice::Auto, set)??, args.json);
    Ok(())
}

fn report(drive: &StatusReport, json: bool) {
    let warning = too_much(drive);
    report_result(&format!("{}: changed", shown(&drive.path)), || print(drive, warning.as_deref(), json));
    if let Some(warning) = warning {
        usage::complain(&format!("warning: {warning}"));
    }
}

fn print(drive: &StatusReport, warning: Option<&str>, json: bool) -> Result<()> {
    if json {
        print_json(&serde_json::json!({
            "path": path_text(&drive.path),
            "logical_capacity_bytes": drive.logical_capacity_bytes,
            "physical_size_bytes": drive.physical_size_bytes,
            "warning": warning,
        }))?;
    } else {
        writeln!(
            crate::output::stdout(),
            "{}: {} logical on {} physical",
            shown(&drive.path),
            human::bytes(drive.logical_capacity_bytes),
            human::bytes(drive.physical_size_bytes),
        )?;
    }
    Ok(())
}

/// Returns a warning if the data does not compress as well as the capacity requires, or if there is too
/// little data to know.
pub(crate) fn too_much(drive: &StatusReport) -> Option<String> {
    let plan = drive.capacity_plan();
    let needs = needs(drive.logical_capacity_bytes, &plan);
    match plan.fit {
        Fit::Any | Fit::Enough { .. } => None,
        Fit::Unknown => {
            Some(format!("{needs}; too little data other than zeros was written to estimate its ratio"))
        }
        Fit::TooMuch { reach_bytes, .. } => Some(format!(
            "{needs}, the data has shown {} so far, enough for {}: it may run full before hosts see that",
            drive.ratios_text(human::duration).unwrap_or_default(),
            human::bytes(reach_bytes)
        )),
    }
}

/// Describes the ratio that a capacity needs.
pub(crate) fn needs(capacity_bytes: u64, plan: &CapacityPlan) -> String {
    format!(
        "{} on {} of space for data need a ratio of {:.2}:1",
        human::bytes(capacity_bytes),
        human::bytes(plan.room_bytes),
        plan.needed_ratio
    )
}
