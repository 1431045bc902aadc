//! `pumice set-codec`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use service::{IoChoice, run_here};
use status::{StatusReport, path_text, shown};

use crate::output::{print_json, report_result};

#[derive(clap::Args)]
#[command(after_help = "Example: pumice set-codec /srv/drive zstd:3\n\
    Applies to future writes; hosts can use the drive meanwhile. Stored data remains readable and keeps its codec \
    until it is overwritten or recompressed by settling, which uses zstd with every codec except none (no settling).")]
pub(crate) struct Args {
    /// Drive (file or block device), served or not
    path: PathBuf,
    /// Codec: auto, lz4, zstd, zstd:LEVEL, deflate, deflate:LEVEL or none
    codec: codec::Policy,
    /// Print JSON: {"path": ..., "codec_before": ..., "codec": ...}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let set = |spawner| service::set_codec(&args.path, args.codec, spawner);
    let (before, drive) = run_here(IoChoice::Auto, set)??;
    report_result(&format!("{}: changed", shown(&args.path)), || print(args, &before, &drive));
    Ok(())
}

fn print(args: &Args, before: &str, drive: &StatusReport) -> Result<()> {
    let mut out = crate::output::stdout();
    if args.json {
        let json = serde_json::json!({ "path": path_text(&args.path), "codec_before": before, "codec": drive.codec });
        return print_json(&json);
    }
    writeln!(
        out,
        "{}: codec {} for what is written from now on, {before} until now; what is there stays as it is until it is \
         overwritten or settled",
        shown(&args.path),
        drive.codec,
    )?;
    Ok(())
}
