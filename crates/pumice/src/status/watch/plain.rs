//! Reports one after the other, as `pumice status` prints them.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use ask::{DriveSearch, find_drives};
use status::StatusReport;

use crate::output::coloured_stdout;
use crate::status::table;
use crate::usage::complain;

/// Prints `drives`, and then a report every `interval`, until the output is closed.
pub(super) fn run(mut drives: Vec<StatusReport>, path: Option<&Path>, interval: Duration) -> Result<()> {
    let search = path.map(DriveSearch::new);
    // The server that has the drive now is shown to its end.
    let _ = search.as_ref().map(DriveSearch::find_exactly);
    loop {
        let since = Instant::now();
        print(&drives)?;
        std::thread::sleep(interval.saturating_sub(since.elapsed()));
        let found = search.as_ref().map_or_else(|| find_drives(None), DriveSearch::search_again);
        crate::served::lines(&found.silent, path.is_some()).iter().for_each(|line| complain(line));
        drives = found.drives;
    }
}

fn print(drives: &[StatusReport]) -> Result<()> {
    let mut out = coloured_stdout();
    writeln!(out, "{}", report::utc(status::unix_seconds_now()))?;
    if drives.is_empty() {
        writeln!(out, "no drive is being served")?;
    }
    for drive in drives {
        write!(out, "{}", table::render(drive, false))?;
    }
    writeln!(out)?;
    Ok(out.flush()?)
}
