//! `pumice train`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use service::{Change, change, find_served};

#[derive(clap::Args)]
#[command(after_help = "Example: pumice train /srv/drive\n\
    What the drive's blocks have in common is learned, as a dictionary or several, from a sample of what was written since the server \
    opened the drive, or since the last training. They are taken for new data if another sample becomes at least 3 % smaller. \
    A server does so by itself, when enough was written; this does it now.")]
pub(crate) struct Args {
    /// File or block device with the drive, which is being served
    path: PathBuf,
    /// Print JSON: {"path": ..., "training": {...}, "dictionaries": [{...}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let path = args.path.display();
    if find_served(Some(&args.path)).is_empty() {
        // If that is no drive, it is said first.
        crate::status::idle(&args.path)?;
        bail!("{path}: nobody serves it; what is learned from is what is written while it is served");
    }
    let drive = change(&args.path, &Change::Train)?.ok_or_else(|| anyhow!("{path}: its server is gone"))?;
    let Some(training) = drive.server.and_then(|server| server.training) else {
        bail!("{path}: its server tells nothing of the training; is it of another version?");
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let json = serde_json::json!({
            "path": args.path,
            "training": training,
            "dictionaries": drive.compression.dictionaries,
        });
        serde_json::to_writer_pretty(&mut out, &json).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    match training.dictionary_ids.len() {
        0 => writeln!(out, "{path}: no new dictionary; {}", training.outcome)?,
        1 => writeln!(out, "{path}: a new dictionary for new data; {}", training.outcome)?,
        count => writeln!(out, "{path}: {count} new dictionaries for new data; {}", training.outcome)?,
    }
    Ok(())
}
