//! `pumice check` of a drive that is being served: the server scrubs it.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use ask::{Change, change};
use status::{ScrubReport, ScrubState, StatusReport, path_text};

use super::{Args, Faults, faults_text, files};
use crate::human;
use crate::output::print_json;
use crate::progress;
use crate::usage;

/// Advice on faults of any kind.
const RESTORE: &str = "restore the data that is named here from a backup, while the drive is served \
                       (docs/how-to/backing-trouble.md)";
/// Interval between progress requests to the server.
const POLL: Duration = Duration::from_millis(250);

/// Starts a scrub, or takes the last one, and reports its faults and their files; or stops a running scrub.
pub(super) fn run(args: &Args, drive: &StatusReport) -> Result<()> {
    let path = &args.path;
    if args.stop {
        ask(path, &Change::StopScrub)?;
        return Ok(writeln!(crate::output::stdout(), "{}: stopped", path.display())?);
    }
    // Refused now rather than after the scrub.
    let search = match &args.files {
        Some(point) => Some(files::find(drive, point.as_deref())?),
        None => None,
    };
    let report = match (args.deep, &search) {
        (true, _) => scrub(args)?,
        (false, Some(_)) => {
            let report = drive.server.as_ref().and_then(|server| server.scrub.clone());
            report.ok_or_else(|| {
                anyhow!("{}: not scrubbed since it was opened; --deep scrubs it now", path.display())
            })?
        }
        (false, None) => bail!(
            "{}: process {} serves it; --deep verifies its records while it is served, for the rest stop the server",
            path.display(),
            drive.server.as_ref().map_or(0, |server| server.pid)
        ),
    };
    let found = search.filter(|_| report.faults_count > 0).and_then(|file_systems| {
        // The faults are reported in any case.
        let found = files::search(file_systems, &report);
        found.map_err(|why| usage::complain(&format!("warning: no files are named: {why:#}"))).ok()
    });
    report_end(args, &report, found.as_ref())
}

/// Starts a scrub and shows its progress until it ends.
fn scrub(args: &Args) -> Result<ScrubReport> {
    let path = &args.path;
    let mut report = ask(path, &Change::StartScrub { bytes_per_second: args.rate.0 })?;
    let bar = progress::bar(report.total_bytes, progress::BYTES);
    let search = ask::DriveSearch::new(path);
    // The server that was asked, from now on.
    search.find_exactly_patiently()?;
    while report.state == ScrubState::Running {
        bar.set_length(report.total_bytes);
        bar.set_position(report.read_bytes);
        std::thread::sleep(POLL);
        report = search.find_again().and_then(|drive| drive.server?.scrub).ok_or_else(|| {
            anyhow!("{}: its server is gone; nothing more is known of the scrub", path.display())
        })?;
    }
    bar.finish_and_clear();
    Ok(report)
}

fn ask(path: &Path, what: &Change) -> Result<ScrubReport> {
    let answer = change(path, what)?.and_then(|drive| drive.server?.scrub);
    match answer {
        Some(report) => Ok(report),
        None if matches!(what, Change::StopScrub) => bail!("{}: no scrub was running", path.display()),
        None => bail!("{}: its server is gone", path.display()),
    }
}

fn report_end(args: &Args, report: &ScrubReport, files: Option<&files::Found>) -> Result<()> {
    let mut out = crate::output::stdout();
    let path = args.path.display();
    let mut print = || {
        if args.json {
            let files = files.map(files::Found::json);
            let path = path_text(&args.path);
            return print_json(&serde_json::json!({ "path": path, "scrub": report, "files": files }));
        }
        let (records, bytes) = (report.records_verified_count, human::bytes(report.read_bytes));
        writeln!(out, "verified: {records} records, {bytes} read while it was served")?;
        for fault in &report.faults {
            writeln!(out, "fault: {fault}")?;
        }
        files.map_or(Ok(()), |files| Ok(files.print(&mut out)?))
    };
    let printed = print();
    let faults = faults_text(report.faults_count);
    match (report.state, report.faults_count) {
        (ScrubState::Finished, 0) if args.json => printed,
        (ScrubState::Finished, 0) => printed.and_then(|()| Ok(writeln!(out, "{path}: no faults")?)),
        (ScrubState::Finished, _) => Err(Faults(format!("{path}: {faults}; {RESTORE}")).into()),
        (ScrubState::Running, 0) => bail!("{path}: the scrub is running; no faults so far"),
        (ScrubState::Running, _) => {
            Err(Faults(format!("{path}: the scrub is running; {faults} so far")).into())
        }
        (state, 0) => bail!("{path}: the scrub was {state} before its end; no faults until then"),
        (state, _) => {
            Err(Faults(format!("{path}: the scrub was {state} before its end; {faults} until then")).into())
        }
    }
}
