//! `pumice capacity`: the consolidated capacity report of ScaleFlux's CSD 2000 (`sfx_capacity_stat`).

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};
use status::{CAPACITY_COLUMNS, DriveState, StatusReport, capacity_values, path_text, shown};

use crate::output::print_json;
use crate::usage;

#[derive(clap::Args)]
#[command(
    after_help = "Columns, in sectors of 512 bytes: free_space: physical space left for data, physical_size: physical \
    space in use, logical_size: data stored, comp_ratio: logical_size / physical_size, provisioned_cap: logical \
    capacity, space_flag: 1 if out of physical space. Without PATH, a last column shows the path of the drive. JSON \
    has bytes, and the names of `pumice status --json`.\n\n\
    Example: pumice capacity /srv/drive | awk 'NR > 1 && $6 == 1 { print \"out of space\" }'"
)]
pub(crate) struct Args {
    /// Drive (file or block device) [default: all drives being served]
    path: Option<PathBuf>,
    /// Omit the header line
    #[arg(long, conflicts_with = "json")]
    no_header: bool,
    /// Print JSON, in bytes: {"drives": [{"path": ..., "physical_available_bytes": ..., ...}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut drives = crate::status::find(args.path.as_deref())?;
    if args.path.is_none() {
        let downs: Vec<StatusReport> =
            drives.extract_if(.., |drive| drive.state == DriveState::Down).collect();
        for down in &downs {
            let why = down.state_reason.as_deref().unwrap_or("no reason given");
            usage::complain(&usage::printable(&format!("warning: {}: down: {why}", shown(&down.path))));
        }
    }
    if args.json {
        return print_json(&json!({ "drives": drives.iter().map(document).collect::<Vec<Value>>() }));
    }
    let mut out = crate::output::stdout();
    if !args.no_header {
        let path = if args.path.is_none() { "\tpath" } else { "" };
        writeln!(out, "{}{path}", CAPACITY_COLUMNS.join("\t"))?;
    }
    for drive in &drives {
        write!(out, "{}", capacity_values(drive).join("\t"))?;
        match args.path {
            Some(_) => writeln!(out)?,
            None => writeln!(out, "\t{}", usage::printable(&path_text(&drive.path)))?,
        }
    }
    Ok(())
}

/// Returns the JSON of a drive. Its keys are those of `pumice status --json`.
fn document(drive: &StatusReport) -> Value {
    json!({
        "path": path_text(&drive.path),
        "physical_available_bytes": drive.physical_available_bytes,
        "physical_used_bytes": drive.physical_used_bytes,
        "logical_used_bytes": drive.logical_used_bytes,
        "compression_ratio": drive.compression_ratio,
        "logical_capacity_bytes": drive.logical_capacity_bytes,
        "out_of_space": drive.out_of_space,
    })
}
