//! The report as an HTML page with charts.

use report::{BarChart, LineChart, Page, Tornado};
use tco::{BreakEven, Field, Metric, Scenario, Sweep, SweepRange};

use super::{Report, text};

/// Number of inputs in a tornado chart of the page.
const TORNADO_ROWS_MAX: usize = 12;
/// Number of points of a line: enough to look smooth.
const LINE_POINTS: usize = 61;
/// Range of the ratio sweep that the page shows by default.
const RATIO_LOW: f64 = 1.0;
const RATIO_HIGH: f64 = 4.0;

const COST_AXIS: &str = "US$ per TBe";

/// Returns the page. `date` is the time of the calculation.
pub(crate) fn page(report: &Report, date: &str) -> Page {
    let scenario = &report.scenario;
    let years = scenario.baseline().get(Field::Years);
    let term = if scenario.columns.iter().all(|column| column.get(Field::Years) == years) {
        format!("over {years} years")
    } else {
        "over each column's term".to_string()
    };
    let mut page = Page::new(&scenario.title)
        .made(date, concat!("pumice tco ", env!("CARGO_PKG_VERSION")))
        .paragraph(&format!(
            "{} All costs in US$ {term}. TBe: effective TB, what users can store of 10^12 bytes after redundancy, \
             free space and compression.",
            text::verdict(report, text::as_label)
        ));
    if !report.cautions.is_empty() {
        page = page.heading("Caution").list(&report.cautions);
    }
    page = page.chart(&cost_bars(scenario).draw());
    if let Some(table) = text::comparison_table(report) {
        page = page.table(&table);
    }
    if let Some(marks) = marks(report) {
        page = page.paragraph(marks);
    }
    page = page.heading("By compression ratio");
    let asked = report.sweeps.iter().any(|sweep| sweep.field == Field::Ratio);
    if !asked {
        let range = SweepRange { field: Field::Ratio, low: RATIO_LOW, high: RATIO_HIGH, points: LINE_POINTS };
        page = page.chart(&sweep_lines(report, &tco::sweep(scenario, &range)).draw());
    }
    for sweep in report.sweeps.iter().filter(|sweep| sweep.field == Field::Ratio) {
        page = page.chart(&sweep_lines(report, &smooth(scenario, sweep)).draw()).table(&text::sweep_table(
            scenario,
            sweep,
            text::as_label,
        ));
    }
    for sweep in report.sweeps.iter().filter(|sweep| sweep.field != Field::Ratio) {
        page = page
            .heading(&format!("By {}", in_text(sweep.field.info().label)))
            .chart(&sweep_lines(report, &smooth(scenario, sweep)).draw())
            .table(&text::sweep_table(scenario, sweep, text::as_label));
    }
    page = page.heading("What matters most").paragraph(&format!("{}.", text::tornado_title(report)));
    for (column, influences) in scenario.columns.iter().zip(&report.tornados) {
        let mut chart = Tornado::new(&column.name, COST_AXIS, tco::evaluate(column).tco_per_tbe());
        for influence in influences.iter().take(TORNADO_ROWS_MAX) {
            let info = influence.field.info();
            let name = format!(
                "{}: {} to {}",
                info.label,
                info.show.text(influence.low),
                info.show.text(influence.high)
            );
            chart = chart.input(&name, influence.tco_at_low, influence.tco_at_high);
        }
        page = page.chart(&chart.draw());
    }
    page = page.heading("All numbers");
    for section in tco::table(scenario) {
        page = page.table(&text::section_table(scenario, &section));
    }
    for (heading, lines) in text::remarks(report, text::as_label) {
        page = page.heading(&heading).list(lines);
    }
    page
}

/// Explains the marks in the tables, if there are any.
fn marks(report: &Report) -> Option<&'static str> {
    let sections = tco::table(&report.scenario);
    let cells = || sections.iter().flat_map(|section| &section.rows).flat_map(|row| &row.cells);
    let (measured, assumed) = (cells().any(|cell| cell.measured), cells().any(|cell| cell.assumed));
    match (measured, assumed) {
        (true, true) => Some(
            "Inputs marked \"measured\" were measured, those marked \"assumed\" are assumptions. All others are as the \
             scenario has them; its sources are at the end.",
        ),
        (true, false) => Some(
            "Inputs marked \"measured\" were measured. All others are as the scenario has them; its sources are at the \
             end.",
        ),
        (false, true) => Some(
            "Inputs marked \"assumed\" are assumptions. All others are as the scenario has them; its sources are at \
             the end.",
        ),
        (false, false) => None,
    }
}

/// Returns a label as it is written within a sentence: with a small letter, except for an abbreviation.
fn in_text(label: &str) -> String {
    let mut letters = label.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(label.chars().skip(1)).collect()
        }
        _ => label.to_string(),
    }
}

/// CapEx and OpEx of each column by kind, per TBe.
fn cost_bars(scenario: &Scenario) -> BarChart {
    let parts: [(&str, &[Metric]); 6] = [
        ("drives", &[Metric::CapexStorage]),
        ("servers, rack, switch", &[Metric::CapexRack]),
        ("cores for storage", &[Metric::CapexCpu, Metric::OpexCpu]),
        ("energy", &[Metric::OpexStorage, Metric::OpexRack]),
        ("space, failures", &[Metric::OpexSpace, Metric::OpexReplacements]),
        ("cloud volumes", &[Metric::OpexVolumes, Metric::OpexThroughput, Metric::OpexIops]),
    ];
    let results: Vec<_> = scenario.columns.iter().map(tco::evaluate).collect();
    let cost = |result: &tco::Results, metrics: &[Metric]| {
        let sum: f64 = metrics.iter().filter_map(|metric| result.get(*metric)).sum();
        sum / result.get(Metric::EffectiveTbe).unwrap_or(f64::NAN)
    };
    let parts: Vec<_> = parts
        .iter()
        .filter(|(_, metrics)| results.iter().any(|result| cost(result, metrics) != 0.0))
        .collect();
    let mut chart =
        BarChart::new("TCO per TBe and its parts", COST_AXIS).series(parts.iter().map(|(name, _)| *name));
    for (column, result) in scenario.columns.iter().zip(&results) {
        chart = chart.group(&column.name, parts.iter().map(|(_, metrics)| cost(result, metrics)));
    }
    chart.stacked()
}

/// Returns the same sweep with more points.
fn smooth(scenario: &Scenario, sweep: &Sweep) -> Sweep {
    let (low, high) =
        (sweep.values.first().copied().unwrap_or(0.0), sweep.values.last().copied().unwrap_or(0.0));
    tco::sweep(
        scenario,
        &SweepRange { field: sweep.field, low, high, points: LINE_POINTS.max(sweep.values.len()) },
    )
}

/// Returns a chart with a line for each column. The break-even ratio is marked if exactly one column has one
/// in the range.
fn sweep_lines(report: &Report, sweep: &Sweep) -> LineChart {
    let info = sweep.field.info();
    let unit = match info.unit {
        "" => String::new(),
        ":1" => ", N:1".to_string(),
        unit => format!(", {unit}"),
    };
    let label = in_text(info.label);
    let title = format!("TCO per TBe by {label}");
    let mut chart = LineChart::new(&title, &format!("{label}{unit}"), COST_AXIS);
    for (column, costs) in report.scenario.columns.iter().zip(&sweep.tco_per_tbe) {
        chart = chart.series(&column.name, sweep.values.iter().copied().zip(costs.iter().copied()));
    }
    // Several marks would overlap. The table lists all.
    let columns = report.scenario.columns.iter().zip(&report.compared);
    let marks: Vec<_> = columns
        .filter_map(|(column, compared)| match compared.break_even {
            BreakEven::At(ratio) => Some((ratio, column)),
            _ => None,
        })
        .collect();
    let inside = |ratio: f64| {
        sweep.values.first().zip(sweep.values.last()).is_some_and(|(low, high)| *low < ratio && ratio < *high)
    };
    if let [(ratio, column)] = marks[..]
        && sweep.field == Field::Ratio
        && inside(ratio)
    {
        chart = chart.mark(ratio, &format!("{} breaks even", column.name));
    }
    chart
}
