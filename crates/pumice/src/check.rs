//! `pumice check`

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use drive::{Drive, Status};
use indicatif::{ProgressBar, ProgressStyle};
use media::AnyMedia;
use service::{IoChoice, ServiceError, inspect, run_here};

use crate::human;

/// How often the progress bar moves.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
#[command(after_help = "Example: pumice check /srv/drive --deep")]
pub(crate) struct Args {
    /// File or block device
    path: PathBuf,
    /// Also read, verify and decompress every record
    #[arg(long)]
    deep: bool,
    /// Check what is left of a drive whose log is damaged
    #[arg(long)]
    accept_damage: bool,
}

/// What was found.
struct Findings {
    /// `None` if the drive cannot even be opened.
    status: Option<Status>,
    faults: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let findings = run_here(IoChoice::Auto, |spawner| async move {
        let drive = match inspect(&args.path, args.accept_damage, spawner).await {
            Ok(drive) => drive,
            Err(ServiceError::Drive { source: drive::Error::Corrupt(why), .. }) => {
                return Ok(Findings { status: None, faults: vec![why] });
            }
            Err(error) => return Err(error.into()),
        };
        check(&drive, args.deep).await
    })??;
    let mut out = std::io::stdout().lock();
    let path = args.path.display();
    if let Some(status) = &findings.status {
        tell_checked(&mut out, status, args.deep)?;
    }
    for fault in &findings.faults {
        writeln!(out, "fault: {fault}")?;
    }
    match findings.faults.len() {
        0 => writeln!(out, "{path}: no faults")?,
        1 => bail!("{path}: 1 fault; copy off what can be read, and make the drive anew"),
        count => bail!("{path}: {count} faults; copy off what can be read, and make the drive anew"),
    }
    Ok(())
}

async fn check(drive: &Drive<AnyMedia>, deep: bool) -> Result<Findings> {
    let before = drive.status();
    let bar = if deep { ProgressBar::new(before.physical_used_bytes) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left")
    {
        bar.set_style(style);
    }
    let mut faults = Vec::new();
    if let drive::State::ReadOnly(why) = &before.state
        && why.contains("damaged")
    {
        faults.push(why.clone());
    }
    let progress = async {
        loop {
            tokio::time::sleep(PROGRESS_INTERVAL).await;
            let read = drive.status().counters.physical_read_bytes - before.counters.physical_read_bytes;
            bar.set_position(read.min(before.physical_used_bytes));
        }
    };
    let checked = tokio::select! {
        checked = drive.check(deep) => checked,
        () = progress => unreachable!("progress ends with the check"),
    };
    bar.finish_and_clear();
    faults.extend(checked?);
    Ok(Findings { status: Some(before), faults })
}

fn tell_checked(out: &mut impl Write, status: &Status, deep: bool) -> Result<()> {
    let opened = match (status.recovered.clean, status.recovered.packs_count) {
        (true, _) => "closed properly".to_string(),
        (false, packs) => {
            format!(
                "not closed properly; {packs} packs ({}) after it",
                human::bytes(status.recovered.log_bytes)
            )
        }
    };
    writeln!(out, "checked: superblock, checkpoint {} ({opened})", status.checkpoint_number)?;
    let records = (status.logical_used_bytes - status.logical_fill_bytes) / layout::BLOCK_BYTES as u64;
    writeln!(out, "checked: map of {records} blocks with data, usage of {} segments", status.segments_count)?;
    match deep {
        true => writeln!(out, "checked: every record read, its checksum verified, decompressed")?,
        false => writeln!(out, "not checked: the records themselves; --deep does")?,
    }
    Ok(())
}
