//! A few power cuts under the program; `make power-cuts` runs hundreds.

use std::path::Path;

use powercut::{Error, Mode, Options, Report, attachment, run, why_not};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs until `cuts` power cuts were made, in a folder. Returns `None` if FUSE or fio is missing.
fn cut(folder: &Path, cuts: u64, modes: &[Mode], lies: bool) -> std::io::Result<Option<Report>> {
    run_here(Options { lies, ..options(folder, cuts, modes) })
}

fn run_here(options: Options) -> std::io::Result<Option<Report>> {
    if let Some(why) = why_not(&options.folder, options.fio) {
        eprintln!("skipped: {why}");
        return Ok(None);
    }
    run(&options, |_| {}).map(Some)
}

fn options(folder: &Path, cuts: u64, modes: &[Mode]) -> Options {
    Options {
        program: env!("CARGO_BIN_EXE_pumice").into(),
        seed: 1,
        cuts,
        stories: u64::MAX,
        modes: modes.to_vec(),
        jobs: 1,
        failures_max: 1,
        io: None,
        fio: true,
        lies: false,
        planted: None,
        strict: false,
        verbose: false,
        folder: folder.to_path_buf(),
    }
}

fn five_cuts(mode: Mode) -> Outcome {
    let folder = tempfile::tempdir()?;
    let Some(report) = cut(folder.path(), 5, &[mode], false)? else { return Ok(()) };
    eprintln!("{}", report.counts);
    if let Some(failure) = report.failures.first() {
        let kept = folder.keep();
        panic!("seed {}, mode {mode}: {}\nkept: {}", failure.seed, failure.why, kept.display());
    }
    assert!(report.counts.cuts >= 5 && report.counts.recoveries >= 2, "{:?}", report.counts);
    Ok(())
}

#[test]
fn nothing_durable_is_lost_with_direct_io() -> Outcome {
    five_cuts(Mode::Direct)
}

#[test]
fn nothing_durable_is_lost_through_the_page_cache() -> Outcome {
    five_cuts(Mode::Cache)
}

#[test]
fn nothing_durable_is_lost_where_a_cache_shows_what_a_failed_sync_lost() -> Outcome {
    five_cuts(Mode::Fsyncgate)
}

#[test]
fn nothing_durable_is_lost_on_a_disk_that_shows_what_a_failed_sync_lost() -> Outcome {
    five_cuts(Mode::StaleDisk)
}

#[test]
fn nothing_durable_is_lost_where_the_disk_loses_pages_that_parity_covers() -> Outcome {
    let folder = tempfile::tempdir()?;
    let Some(report) = cut(folder.path(), 5, &[Mode::Parity], false)? else { return Ok(()) };
    eprintln!("{}", report.counts);
    if let Some(failure) = report.failures.first() {
        let kept = folder.keep();
        panic!("seed {}: {}\nkept: {}", failure.seed, failure.why, kept.display());
    }
    assert!(report.counts.losses.pages() > 0 && report.counts.repaired_pages > 0, "{:?}", report.counts);
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() -> Outcome {
    let folder = tempfile::tempdir()?;
    let Some(report) = cut(folder.path(), 12, &[Mode::Kills], false)? else { return Ok(()) };
    eprintln!("{}", report.counts);
    if let Some(failure) = report.failures.first() {
        let kept = folder.keep();
        panic!("seed {}: {}\nkept: {}", failure.seed, failure.why, kept.display());
    }
    assert!(report.counts.cuts + report.counts.kills >= 12, "{:?}", report.counts);
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_below_a_device() -> Outcome {
    if let Some(why) = attachment::why_not() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let Some(report) = cut(folder.path(), 10, &[Mode::Attached], false)? else { return Ok(()) };
    eprintln!("{}", report.counts);
    if let Some(failure) = report.failures.first() {
        let kept = folder.keep();
        panic!("seed {}: {}\nkept: {}", failure.seed, failure.why, kept.display());
    }
    assert!(report.counts.cuts + report.counts.kills >= 10, "{:?}", report.counts);
    assert!(report.counts.rewrites > 0, "{:?}", report.counts);
    Ok(())
}

#[test]
fn a_disk_that_forgets_what_was_synced_is_noticed() -> Outcome {
    let folder = tempfile::tempdir()?;
    let Some(report) = cut(folder.path(), 40, &[Mode::Direct], true)? else { return Ok(()) };
    assert_eq!(report.failures.len(), 1, "{:?}", report.counts);
    Ok(())
}

/// Runs servers that make a mistake below a device, until that shows.
fn is_noticed(mistake: &str) -> Outcome {
    if let Some(why) = attachment::why_not() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    if !cfg!(debug_assertions) {
        eprintln!("skipped: mistakes are planted in programs with debug assertions only");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let planted = Some(mistake.to_string());
    let options = Options { planted, fio: false, ..options(folder.path(), 1000, &[Mode::Attached]) };
    let Some(report) = run_here(options)? else { return Ok(()) };
    let [failure] = &report.failures[..] else { panic!("not noticed: {:?}", report.counts) };
    assert!(is_violation(&failure.why), "something else failed: {}", failure.why);
    eprintln!("{}\n{}", failure.why, report.counts);
    Ok(())
}

/// Returns whether the contents were wrong.
fn is_violation(error: &Error) -> bool {
    match error {
        Error::Violation(_) => true,
        Error::At { source, .. } => is_violation(source),
        _ => false,
    }
}

#[test]
fn a_change_that_is_marked_after_its_answer_is_noticed() -> Outcome {
    is_noticed("done-late")
}

#[test]
fn a_change_that_is_marked_before_its_execution_is_noticed() -> Outcome {
    is_noticed("done-early")
}
