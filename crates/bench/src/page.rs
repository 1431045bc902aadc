//! A run as one HTML file with charts.

use report::{Bar, BarChart, Page};

use crate::compare::number_text;
use crate::run::{Run, Series};
use crate::stats::Figure;
use crate::text::{findings, head, measured, notes, predictions};

/// Most groups of a chart. More do not fit a page of paper.
const GROUPS_MAX: usize = 24;

/// Returns the HTML page of a run.
pub fn page(run: &Run) -> String {
    let mut page = Page::new(&format!("pumice bench {}", run.suite))
        .made(&run.date, &format!("pumice {}", run.program_version))
        .list(head(run))
        .preformatted(&run.command);
    if !run.findings.is_empty() {
        page = page
            .heading("What the documents say, and what was measured")
            .paragraph("What does not hold stands first. A number may miss that of the document by 5 %.")
            .table(&findings(run).right_from(usize::MAX));
    }
    if !run.predictions.is_empty() {
        page = page.heading("Predictions").table(&predictions(run));
    }
    page = page.heading("Charts");
    for (title, axis, figure) in CHARTS {
        if let Some(chart) = chart(run, title, axis, figure) {
            page = page.chart(&chart.draw());
        }
    }
    page = page
        .heading("Everything measured")
        .paragraph("Medians of the rounds; ± is half of the distance from the lowest to the highest.")
        .table(&measured(run));
    let notes = notes(run);
    if !notes.is_empty() {
        page = page.heading("Notes").list(notes);
    }
    if !run.left_out.is_empty() {
        page = page.heading("Left out").list(run.left_out.iter().cloned());
    }
    page.to_html()
}

type Quantity = fn(&Series) -> Option<Figure>;

const CHARTS: [(&str, &str, Quantity); 6] = [
    ("Sequential throughput", "MB/s", |it| {
        it.mb_per_s.filter(|_| it.job.contains("128K") || it.job == "copy" || it.job.contains("objects"))
    }),
    ("Random requests", "requests per second", |it| {
        it.requests_per_second.filter(|_| it.job.starts_with("4K"))
    }),
    ("CPU of the server", "seconds per GB", |it| it.server_cpu_seconds_per_gb),
    ("CPU of the client", "seconds per GB", |it| it.client_cpu_seconds_per_gb),
    ("Compression ratio after the step", "logical / physical bytes", |it| it.ratio),
    ("Write amplification", "physical / host bytes", |it| it.write_amplification),
];

/// Draws a quantity: a group for each step, a bar for each target. `None` if nobody has it.
fn chart(run: &Run, title: &str, axis: &str, figure: Quantity) -> Option<BarChart> {
    let mut steps: Vec<(&str, &str)> = Vec::new();
    for series in run.series.iter().filter(|series| figure(series).is_some()) {
        if !steps.contains(&(&series.scene, &series.step)) {
            steps.push((&series.scene, &series.step));
        }
    }
    if steps.is_empty() {
        return None;
    }
    let has = |target: &str| run.series.iter().any(|it| it.target == target && figure(it).is_some());
    let targets: Vec<&str> =
        run.targets.iter().map(|target| target.name.as_str()).filter(|target| has(target)).collect();
    let chart = BarChart::new(title, axis).series(targets.iter().copied()).shown(number_text);
    Some(steps.into_iter().take(GROUPS_MAX).fold(chart, |chart, (scene, step)| {
        let bars = targets.iter().map(|target| match run.series(scene, step, target) {
            Some(series) => match figure(series) {
                Some(it) if it.count == 1 => Bar::from(it.median),
                Some(it) => Bar::within(it.median, it.low, it.high),
                None => Bar::Unknown,
            },
            None => Bar::Missing,
        });
        chart.group(&format!("{scene}: {step}"), bars.collect::<Vec<_>>())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunTarget;
    use crate::sample::Sample;

    #[test]
    fn a_page_has_charts_of_what_was_measured() {
        let mut series = Series {
            scene: "zeros".to_string(),
            step: "write".to_string(),
            job: "128K write, depth 16".to_string(),
            target: "pumice".to_string(),
            samples: vec![Sample { bytes: 1 << 30, seconds: 2.0, ratio: Some(2.0), ..Sample::default() }],
            ..Series::default()
        };
        series.summarize();
        // Of zeros there is no ratio, because nothing is stored.
        let mut zeros = Series { step: "zeros".to_string(), ..series.clone() };
        zeros.samples[0].ratio = None;
        zeros.summarize();
        let raw = Series { target: "raw".to_string(), ..series.clone() };
        let zeros_on_raw = Series { step: "zeros".to_string(), ..raw.clone() };
        let raw_target = RunTarget { name: "raw".to_string(), ..RunTarget::default() };
        let target = RunTarget { name: "pumice".to_string(), ..RunTarget::default() };
        let run = Run {
            suite: "quick".to_string(),
            series: vec![series, raw, zeros, zeros_on_raw],
            targets: vec![target, raw_target],
            left_out: vec!["<this>".to_string()],
            notes: vec!["of <memory>".to_string()],
            ..Run::default()
        };
        let html = page(&run);
        assert!(html.contains("Sequential throughput") && html.contains("Compression ratio"), "{html}");
        assert!(!html.contains("Random requests") && !html.contains("<this>"), "{html}");
        let (_, ratios) = html.split_once("Compression ratio after the step <small>").expect("a chart");
        assert_eq!(ratios.matches("unknown").count(), 2, "its class and its text: {ratios}");
        assert_eq!(ratios.matches("<i class=\"s0\"").count(), 1, "of the step that has a ratio: {ratios}");
        assert_eq!(ratios.matches("<i class=\"s1\"").count(), 2, "of raw: {ratios}");
        let text = crate::text(&run);
        assert!(
            text.contains("128K write") && text.contains("<this>") && text.contains("of <memory>"),
            "{text}"
        );
        assert!(html.contains("of &lt;memory&gt;") || html.contains("of &#60;memory&#62;"), "{html}");
    }
}
