//! `pumice train`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use ask::{Change, change, find_served};
use status::{CompressionReport, SampleSource, StatusReport, TrainingReport, path_text, shown};

use crate::alone::with_drive;
use crate::output::{print_json, report_result};

#[derive(clap::Args)]
#[command(after_help = "Example: pumice train /srv/drive\n\
    Trains one or more compression dictionaries from a sample of the data written since the server opened the drive or \
    since the last training, or from blocks all over the drive if too little was written. The dictionaries are used \
    for new data if they make a second sample at least 3 % smaller. A server trains by itself once enough was written; \
    this command does it now. A drive that is not being served is opened for the training.")]
pub(crate) struct Args {
    /// Drive (file or block device), served or not
    path: PathBuf,
    /// Print JSON: {"path": ..., "training": {...}, "dictionaries": [{...}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = shown(&args.path);
    let drive: StatusReport = if find_served(&args.path)?.is_none() {
        // Training takes seconds and changes nothing before its end, so it is not interruptible.
        with_drive(&args.path, |_| {}, async |drive| drive.train().await.map(|_| drive.report()))??
    } else {
        change(&args.path, &Change::Train)?.ok_or_else(|| anyhow!("{path}: its server is gone"))?
    };
    let Some(training) = drive.server.and_then(|server| server.training) else {
        bail!("{path}: no training status from its server (different version?)");
    };
    report_result(&format!("{path}: trained"), || print(args, &training, &drive.compression));
    Ok(())
}

fn print(args: &Args, training: &TrainingReport, compression: &CompressionReport) -> Result<()> {
    let path = shown(&args.path);
    let mut out = crate::output::stdout();
    if args.json {
        let json = serde_json::json!({
            "path": path_text(&args.path),
            "training": training,
            "dictionaries": compression.dictionaries,
        });
        return print_json(&json);
    }
    let of = match training.sample {
        SampleSource::Live => "what it holds",
        SampleSource::Written => "what was written",
        SampleSource::Unknown => "the drive",
    };
    let outcome = format!("{} (from {} blocks of {of})", training.outcome, training.sample_blocks_count);
    match training.dictionary_ids.len() {
        0 => writeln!(out, "{path}: no new dictionary; {outcome}")?,
        1 => writeln!(out, "{path}: a new dictionary for new data; {outcome}")?,
        count => writeln!(out, "{path}: {count} new dictionaries for new data; {outcome}")?,
    }
    Ok(())
}
