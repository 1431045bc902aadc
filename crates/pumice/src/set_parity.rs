//! `pumice set-parity`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use layout::ParityForm;
use service::{IoChoice, run_here};
use status::{StatusReport, path_text, shown};

use crate::output::{print_json, report_result};

#[derive(clap::Args)]
#[command(after_help = "Example: pumice set-parity /srv/drive 1/32\n\
    Applies to future writes; hosts can use the drive meanwhile. Stored data keeps the parity that it has until \
    cleaning moves it. Older versions of Pumice open a drive that has or had parity read-only.")]
pub(crate) struct Args {
    /// Drive (file or block device), served or not
    path: PathBuf,
    /// Share of each segment set apart for parity: 1/64, 1/32, 1/16 or none
    #[arg(value_name = "FORM")]
    parity: ParityForm,
    /// Print JSON: {"path": ..., "parity_before": ..., "parity": ...}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let set = |spawner| service::set_parity(&args.path, args.parity, spawner);
    let (before, drive) = run_here(IoChoice::Auto, set)??;
    report_result(&format!("{}: changed", shown(&args.path)), || print(args, &before, &drive));
    Ok(())
}

fn print(args: &Args, before: &str, drive: &StatusReport) -> Result<()> {
    let form = &drive.parity.form;
    if args.json {
        let path = path_text(&args.path);
        return print_json(&serde_json::json!({ "path": path, "parity_before": before, "parity": form }));
    }
    writeln!(
        crate::output::stdout(),
        "{}: parity {form} for what is written from now on, {before} until now",
        shown(&args.path),
    )?;
    Ok(())
}
