//! The report as text for the terminal.

use std::fmt::Write as _;

use report::Table;
use tco::{Applied, BreakEven, Column, Comparison, Field, Influence, Metric, Origin, Scenario, Show, Sweep};

use super::Report;

/// Number of tornado rows on the terminal. Further inputs have little influence.
const TORNADO_ROWS_MAX: usize = 10;
/// Length of the longest bar of the tornado, in characters.
const BAR_CHARS: f64 = 24.0;

const USD: Show = Show::Usd(2);

/// How inputs are named: on the terminal as `--set` takes them, in a page by their labels.
pub(crate) type Naming = fn(Field) -> &'static str;

/// Names an input as `--set` takes it.
fn as_set(field: Field) -> &'static str {
    field.info().name
}

/// Names an input by its label.
pub(crate) fn as_label(field: Field) -> &'static str {
    field.info().label
}

/// Returns the whole report.
pub(crate) fn text(report: &Report, tornado: bool) -> String {
    let scenario = &report.scenario;
    let mut out = format!("{}\n{}\n", scenario.title, verdict(report, as_set));
    for caution in &report.cautions {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Caution: {caution}");
    }
    let _ = write!(out, "\n{}", main_table(report).to_text());
    for sweep in &report.sweeps {
        let _ = write!(out, "\n{}", sweep_table(scenario, sweep, as_set).to_text());
    }
    if tornado {
        for (column, influences) in scenario.columns.iter().zip(&report.tornados) {
            let shown = &influences[..influences.len().min(TORNADO_ROWS_MAX)];
            let _ = write!(
                out,
                "\n{}: {}\n{}",
                column.name,
                tornado_title(report),
                tornado_table(shown, true).to_text()
            );
        }
    }
    for (heading, lines) in remarks(report, as_set) {
        let _ = writeln!(out, "\n{heading}");
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
    }
    // Texts of files must not control the terminal.
    out.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

/// Returns the list of fields, for `--fields`.
pub(crate) fn fields() -> String {
    let mut table = Table::new(["field", "unit", "allowed", "default", "what"]);
    for field in Field::ALL {
        let info = field.info();
        let default = field.default_text();
        let kind = info.kind.map_or(String::new(), |kind| format!(" ({} columns)", kind.name()));
        let what = format!("{}{kind}", info.what);
        table.row([
            info.name.to_string(),
            info.unit.to_string(),
            info.limit.expected().to_string(),
            default,
            what,
        ]);
    }
    table.to_text()
}

/// Returns the header of a table with one column per scenario column.
fn head(scenario: &Scenario, first: &str) -> Vec<String> {
    let names = scenario.columns.iter().map(|column| column.name.clone());
    [first.to_string()].into_iter().chain(names).collect()
}

/// Returns all sections and the comparison as one table, so that the columns line up.
fn main_table(report: &Report) -> Table {
    let scenario = &report.scenario;
    let mut table = Table::new(head(scenario, "")).right_from(1);
    let indented = |label: &str| format!("  {label}");
    for section in tco::table(scenario) {
        table.row([section.title]);
        for row in &section.rows {
            table.row([indented(&row.full_label())].into_iter().chain(row.texts()));
        }
    }
    for (at, row) in comparison_rows(report).into_iter().enumerate() {
        if at == 0 {
            table.row([against(report)]);
        }
        table.row(row.into_iter().enumerate().map(|(at, cell)| if at == 0 { indented(&cell) } else { cell }));
    }
    table
}

/// Returns a section of the main table.
pub(crate) fn section_table(scenario: &Scenario, section: &tco::Section) -> Table {
    let mut table = Table::new(head(scenario, section.title)).right_from(1);
    for row in &section.rows {
        table.row([row.full_label()].into_iter().chain(row.texts()));
    }
    table
}

/// Formats a break-even ratio.
pub(crate) fn break_even_text(break_even: BreakEven) -> String {
    match break_even {
        BreakEven::At(ratio) => Show::Number(2).text(ratio) + ":1",
        BreakEven::Always => "any".to_string(),
        BreakEven::Never => format!("none up to {}:1", tco::BREAK_EVEN_RATIO_MAX),
        BreakEven::None => "-".to_string(),
    }
}

/// Returns the comparison of the columns with the baseline; `None` if there is only one column.
pub(crate) fn comparison_table(report: &Report) -> Option<Table> {
    let rows = comparison_rows(report);
    let mut table = Table::new(head(&report.scenario, &against(report))).right_from(1);
    for row in rows {
        table.row(row);
    }
    (!table.is_empty()).then_some(table)
}

fn against(report: &Report) -> String {
    format!("Against {}", report.scenario.baseline().name)
}

fn comparison_rows(report: &Report) -> Vec<Vec<String>> {
    let scenario = &report.scenario;
    let mut rows = Vec::new();
    if scenario.columns.len() < 2 {
        return rows;
    }
    let mut row = |label: String, cell: &dyn Fn(&Comparison) -> String| {
        rows.push([label].into_iter().chain(report.compared.iter().map(cell)).collect());
    };
    let percent = Show::Percent(0);
    row("Saving of TCO per TBe".to_string(), &|compared| percent.text(compared.saving));
    if scenario.columns.iter().any(is_multiplied) {
        let cell = |compared: &Comparison| percent.text(compared.saving_without_performance);
        row("Saving without performance multiplier".to_string(), &cell);
        for (at, factor) in tco::MULTIPLIER_FACTORS.iter().enumerate() {
            let cell = |compared: &Comparison| {
                let savings = compared.saving_at_multipliers;
                savings.map_or("-".to_string(), |savings| percent.text(savings[at]))
            };
            row(format!("Saving if its multiplier is {factor} times as high"), &cell);
        }
        let multiplier = |compared: &Comparison| {
            compared.break_even_multiplier.map_or("-".to_string(), |it| Show::Number(2).text(it))
        };
        row("Break-even performance multiplier".to_string(), &multiplier);
    }
    row("Break-even ratio".to_string(), &|compared| break_even_text(compared.break_even));
    if let Some(ratio) = scenario.equal_ratio {
        let cell =
            |compared: &Comparison| compared.at_equal_ratio.map_or("-".to_string(), |tco| USD.text(tco));
        row(format!("TCO per TBe at {} for all", Show::Ratio.text(ratio)), &cell);
    }
    rows
}

/// Returns whether the performance multiplier of a column matters, or is not known.
fn is_multiplied(column: &Column) -> bool {
    column.get(Field::PerformanceMultiplier) != 1.0 || column.is_assumed(Field::PerformanceMultiplier)
}

/// Returns the inputs that are assumed, each with its columns.
fn assumed(scenario: &Scenario, name: Naming) -> Vec<String> {
    let of = |field: &Field| {
        let columns = scenario.columns.iter().filter(|column| column.is_assumed(*field));
        let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let all = names.len() == scenario.columns.len() && names.len() > 1;
        let of = if all { "all columns".to_string() } else { names.join(", ") };
        (!names.is_empty()).then(|| format!("{} of {of}", name(*field)))
    };
    Field::ALL.iter().filter_map(of).collect()
}

/// Returns a sweep: TCO per TBe of each column at each value.
pub(crate) fn sweep_table(scenario: &Scenario, sweep: &Sweep, name: Naming) -> Table {
    let info = sweep.field.info();
    let first = format!("TCO per TBe by {}", name(sweep.field));
    let mut table = Table::new(head(scenario, &first)).right_from(0);
    for (at, value) in sweep.values.iter().enumerate() {
        let costs = sweep.tco_per_tbe.iter().map(|line| USD.text(line[at]));
        table.row([info.show.text(*value)].into_iter().chain(costs));
    }
    table
}

/// Returns the title of the tornado.
pub(crate) fn tornado_title(report: &Report) -> String {
    format!("TCO per TBe as each input moves {} % down and up", report.vary_percent)
}

/// Returns a column's tornado, optionally with bars of characters.
pub(crate) fn tornado_table(influences: &[Influence], bars: bool) -> Table {
    let mut head = vec!["input", "from", "to", "TCO at from", "TCO at to", "swing"];
    if bars {
        head.push("");
    }
    let mut table = Table::new(head);
    let widest = influences.first().map_or(1.0, Influence::swing);
    for influence in influences {
        let show = influence.field.info().show;
        let mut row = vec![
            influence.field.info().name.to_string(),
            show.text(influence.low),
            show.text(influence.high),
            USD.text(influence.tco_at_low),
            USD.text(influence.tco_at_high),
            USD.text(influence.swing()),
        ];
        if bars {
            row.push("#".repeat((influence.swing() / widest * BAR_CHARS).ceil() as usize));
        }
        table.row(row);
    }
    table
}

/// Describes a measured value.
fn measured_line(applied: &Applied, name: Naming) -> String {
    let show = applied.field.info().show;
    let (value, before) = (show.text(applied.value), show.text(applied.before));
    format!("{}, {}: {value} instead of {before} ({})", applied.column, name(applied.field), applied.detail)
}

/// Returns the remarks below the tables: measured and assumed values, notes on columns, sources.
pub(crate) fn remarks(report: &Report, name: Naming) -> Vec<(String, Vec<String>)> {
    let scenario = &report.scenario;
    let mut all = Vec::new();
    if !report.measured.is_empty() {
        let lines = report.measured.iter().map(|applied| measured_line(applied, name));
        all.push(("Measured here".to_string(), lines.collect()));
        all.push((
            "Not measured here".to_string(),
            vec![format!("all other inputs, as {} has them", scenario.file)],
        ));
    }
    all.push(("Assumed, neither measured nor quoted".to_string(), assumed(scenario, name)));
    let set = scenario.columns.iter().flat_map(|column| {
        let of = |field: &Field| {
            column
                .input(*field)
                .filter(|input| input.origin == Origin::Set)
                .map(|input| (*field, input.value))
        };
        let line = |(field, value): (Field, f64)| {
            format!("{}, {}: {}", column.name, name(field), field.info().show.text(value))
        };
        Field::ALL.iter().filter_map(of).map(line).collect::<Vec<_>>()
    });
    all.push(("Set on the command line".to_string(), set.collect()));
    let notes = scenario
        .columns
        .iter()
        .filter_map(|column| Some(format!("{}: {}", column.name, column.note.as_ref()?)));
    all.push(("Columns".to_string(), notes.collect()));
    all.push((format!("Sources, as {} gives them", scenario.file), sources(scenario, name)));
    all.retain(|(_, lines)| !lines.is_empty());
    all
}

/// Returns the sources of values that are still in use. A source shared by all columns is listed once.
fn sources(scenario: &Scenario, name: Naming) -> Vec<String> {
    let mut lines = Vec::new();
    for field in Field::ALL {
        let given = scenario.columns.iter().filter_map(|column| {
            let own = matches!(
                column.input(*field).map(|input| &input.origin),
                Some(Origin::Column | Origin::Common | Origin::Default)
            );
            let source = column.sources.get(field).filter(|_| own && field.applies_to(column.kind))?;
            Some((column.name.as_str(), source.as_str()))
        });
        let given: Vec<(&str, &str)> = given.collect();
        let name = name(*field);
        let shared =
            given.len() == scenario.columns.len() && given.iter().all(|(_, source)| *source == given[0].1);
        if shared {
            lines.push(format!("{name}: {}", given[0].1));
        } else {
            lines.extend(given.iter().map(|(column, source)| format!("{name}, {column}: {source}")));
        }
    }
    lines
}

/// Returns the cheapest column and its cost in one sentence, with what of it is assumed.
pub(crate) fn verdict(report: &Report, name: Naming) -> String {
    let scenario = &report.scenario;
    let costs: Vec<f64> = scenario.columns.iter().map(|column| tco::evaluate(column).tco_per_tbe()).collect();
    let cheapest = (0..costs.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0);
    let label = Metric::TcoPerTbe.info().label;
    let base = &scenario.baseline().name;
    let saving = report.compared[cheapest].saving;
    let against = if cheapest == scenario.baseline {
        String::new()
    } else {
        format!(
            ", {} less than {base} at {}",
            Show::Percent(0).text(saving),
            USD.text(costs[scenario.baseline])
        )
    };
    let assumed = assumed(scenario, name);
    let assumed = match assumed.is_empty() {
        true => String::new(),
        false => format!(" Assumed: {}.", assumed.join("; ")),
    };
    let name = &scenario.columns[cheapest].name;
    format!("Lowest {label}: {name} at {}{against}.{assumed}", USD.text(costs[cheapest]))
}
