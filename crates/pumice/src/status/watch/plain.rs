//! Reports one after the other, as `pumice status` prints them.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Result;
use ask::{DriveSearch, find_drives};
use signal_hook::consts::SIGINT;
use status::{StatusReport, shown};

use crate::output::coloured_stdout;
use crate::served;
use crate::status::table;
use crate::usage::{complain, printable};

/// Prints `first`, and then a report every `interval`, until the output is closed or SIGINT arrives. The
/// second of `first` is whether all servers answered.
pub(super) fn run(first: (Vec<StatusReport>, bool), path: Option<&Path>, interval: Duration) -> Result<()> {
    // A success, as Ctrl-C is in the live view, also while a server is asked.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 0, Arc::new(AtomicBool::new(true)))?;
    let search = path.map(DriveSearch::new);
    // The server that has the drive now is shown to its end.
    let _ = search.as_ref().map(DriveSearch::find_exactly);
    let (mut drives, mut all_answered) = first;
    loop {
        let since = Instant::now();
        print(&drives, none(path, all_answered).as_deref())?;
        std::thread::sleep(interval.saturating_sub(since.elapsed()));
        let found = search.as_ref().map_or_else(|| find_drives(None), DriveSearch::search_again);
        all_answered = found.silent.is_empty();
        served::warnings(&found, path.is_some()).iter().for_each(|line| complain(line));
        drives = found.drives;
    }
}

/// Returns the line in place of drives. `None` if a server that did not answer may have some.
fn none(path: Option<&Path>, all_answered: bool) -> Option<String> {
    all_answered.then(|| match path {
        Some(path) => printable(&format!("{}: no server has it", shown(path))),
        None => served::none(),
    })
}

fn print(drives: &[StatusReport], none: Option<&str>) -> Result<()> {
    let mut out = coloured_stdout();
    writeln!(out, "{}", report::utc(status::unix_seconds_now()))?;
    if let Some(none) = none.filter(|_| drives.is_empty()) {
        writeln!(out, "{none}")?;
    }
    for (index, drive) in drives.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        write!(out, "{gap}{}", table::render(drive, false))?;
    }
    writeln!(out)?;
    Ok(out.flush()?)
}
