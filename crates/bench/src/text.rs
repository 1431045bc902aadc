//! A run as tables for the terminal.

use std::fmt::Write as _;

use report::Table;

use crate::compare::{figure_text, number_text};
use crate::finding::Finding;
use crate::run::Run;
use crate::stats::Figure;

/// The head of a report: machine, versions, time.
pub(crate) fn head(run: &Run) -> Vec<String> {
    let machine = &run.machine;
    let mut lines = vec![
        format!("{}, {}", run.suite, run.date),
        format!(
            "{}, {} processors, {} GiB; {}",
            machine.processor,
            machine.cores_count,
            machine.memory_bytes >> 30,
            machine.kernel
        ),
        format!("pumice {}, {}", run.program_version, run.fio_version),
        format!(
            "{} rounds in {:.0} s, stores of {} MiB, timed jobs of {} s",
            run.rounds_count,
            run.seconds,
            run.size_bytes >> 20,
            run.job_seconds
        ),
    ];
    lines.extend(run.s3_client.iter().map(|client| format!("objects put and got by the client: {client}")));
    if let Some(share) = run.busy_share() {
        lines.push(format!(
            "This machine was not quiet: {:.0} % of its processors were busy with other work. Ratios hold, speeds \
             do not.",
            share * 100.0
        ));
    }
    if !run.complete {
        lines.push("This run is not complete: see what was left out.".to_string());
    }
    lines
}

/// Everything measured, one row for each step on each target.
pub(crate) fn measured(run: &Run) -> Table {
    let head =
        ["scene", "step", "target", "MB/s", "IOPS", "p99 us", "client s/GB", "server s/GB", "ratio", "WAF"];
    let mut table = Table::new(head).right_from(3);
    let mut last = (String::new(), String::new());
    for series in &run.series {
        let cell = |figure: Option<Figure>| figure.map_or(String::new(), |figure| figure_text(&figure));
        let brief = |figure: Option<Figure>| figure.map_or(String::new(), |it| number_text(it.median));
        let now = (series.scene.clone(), format!("{} ({})", series.step, series.job));
        let same_scene = now.0 == last.0;
        table.row([
            if same_scene { String::new() } else { now.0.clone() },
            if same_scene && now.1 == last.1 { String::new() } else { now.1.clone() },
            series.target.clone(),
            cell(series.mb_per_s),
            brief(series.requests_per_second),
            brief(series.p99_us),
            brief(series.client_cpu_seconds_per_gb),
            brief(series.server_cpu_seconds_per_gb),
            brief(series.ratio),
            brief(series.write_amplification),
        ]);
        last = now;
    }
    table
}

/// What was predicted and measured.
pub(crate) fn predictions(run: &Run) -> Table {
    let mut table = Table::new(["", "predicted", "measured", "by"]);
    for it in &run.predictions {
        let measured = it.measured.map_or("-".to_string(), number_text);
        table.row([it.subject.clone(), number_text(it.predicted), measured, it.model.clone()]);
    }
    table
}

/// Notes of a run, and how steady its jobs were.
pub(crate) fn notes(run: &Run) -> Vec<String> {
    let steady = run.series.iter().flat_map(|series| {
        let states = series.samples.iter().filter_map(|sample| sample.steady);
        states.map(move |it| {
            format!(
                "{}: {} on {}: {} after {} rounds: range {:.0} %, slope {:.0} % of the mean of the last five",
                series.scene,
                series.step,
                series.target,
                if it.is_steady { "steady" } else { "not steady" },
                it.rounds_count,
                it.range_share * 100.0,
                it.slope_share * 100.0
            )
        })
    });
    run.notes.iter().cloned().chain(steady).collect()
}

/// Findings, those that do not hold first.
fn sorted(run: &Run) -> Vec<&Finding> {
    let mut findings: Vec<_> = run.findings.iter().collect();
    findings.sort_by_key(|finding| finding.verdict);
    findings
}

/// A finding in lines: a table of seven columns is wider than a terminal.
fn finding_text(it: &Finding) -> String {
    let ours = if it.ours.is_empty() { String::new() } else { format!("; here: {}", it.ours) };
    let why = if it.why.is_empty() { String::new() } else { format!("\n      {}", it.why) };
    format!(
        "  {}: {} ({}, {})\n      says: {}{ours}{why}\n",
        it.verdict.text(),
        it.subject,
        it.document,
        it.place,
        it.says
    )
}

/// What the run says about statements of documents.
pub(crate) fn findings(run: &Run) -> Table {
    let mut table = Table::new(["verdict", "about", "it says", "here", "why", "document"]);
    for it in sorted(run) {
        table.row([
            it.verdict.text().to_string(),
            it.subject.clone(),
            it.says.clone(),
            it.ours.clone(),
            it.why.clone(),
            format!("{}, {}", it.document, it.place),
        ]);
    }
    table
}

/// Shows a run as text.
pub fn text(run: &Run) -> String {
    let mut out = head(run).join("\n");
    // Writing to a string cannot fail.
    let _ = write!(out, "\n\n{}", measured(run).to_text());
    out.push_str("\nMedians of the rounds; ± is half of the distance from the lowest to the highest.\n");
    if !run.predictions.is_empty() {
        let _ = write!(out, "\nPredictions\n\n{}", predictions(run).to_text());
    }
    if !run.findings.is_empty() {
        out.push_str("\nWhat the documents say\n");
        sorted(run).into_iter().for_each(|finding| out.push_str(&finding_text(finding)));
    }
    let notes = notes(run);
    if !notes.is_empty() {
        let _ = write!(out, "\nNotes\n  {}\n", notes.join("\n  "));
    }
    if !run.left_out.is_empty() {
        let _ = write!(out, "\nLeft out\n  {}\n", run.left_out.join("\n  "));
    }
    out
}
