//! The table of results, used for every output format: inputs and outputs of all columns in the order of the
//! SNIA document.

use crate::field::{Field, Kind};
use crate::metric::{Metric as M, Results};
use crate::model::evaluate;
use crate::scenario::{Origin, Scenario};
use crate::show::Show;

/// A part of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Heading of the group.
    pub title: &'static str,
    /// Rows of the group, at least one.
    pub rows: Vec<Row>,
}

/// A row: one input or output, with a cell for every column.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Full name of the field, or key of the output.
    pub key: &'static str,
    /// Short text.
    pub label: &'static str,
    /// Unit; empty if there is none.
    pub unit: &'static str,
    /// Format of the values.
    pub show: Show,
    /// A cell for each column.
    pub cells: Vec<Cell>,
}

/// The value of a row in one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The value; `None` where it does not apply.
    pub value: Option<f64>,
    /// True if the value was measured. Always false for outputs.
    pub measured: bool,
    /// True if the value is an assumption, of the scenario or of the model. Always false for outputs.
    pub assumed: bool,
}

impl Row {
    /// Returns the label, followed by the unit unless the printed values show it already.
    pub fn full_label(&self) -> String {
        let shown = matches!(self.show, Show::Usd(_) | Show::UsdInput(_)) && self.unit == "US$";
        let shown = shown || self.unit.is_empty() || self.unit == ":1";
        if shown { self.label.to_string() } else { format!("{}, {}", self.label, self.unit) }
    }

    /// Returns the cells as text.
    pub fn texts(&self) -> Vec<String> {
        let text = |cell: &Cell| match cell.value {
            None => "-".to_string(),
            Some(value) if cell.measured => format!("{} measured", self.show.text(value)),
            Some(value) if cell.assumed => format!("{} assumed", self.show.text(value)),
            Some(value) => self.show.text(value),
        };
        self.cells.iter().map(text).collect()
    }
}

/// Sections of the table: title, scenario sections whose fields it shows, and outputs that follow them.
const LAYOUT: &[(&str, &[&str], &[M])] = &[
    ("Drive", &["drive"], &[M::DrivePrice]),
    ("Rack", &["rack", "energy"], &[M::SizeRu, M::PowerRack]),
    ("Cloud", &["cloud"], &[]),
    ("CPU for storage", &["cpu"], &[M::CoresBusy]),
    ("Workload", &["workload"], &[M::ReducedTo]),
    (
        "CapEx",
        &[],
        &[
            M::RawTb,
            M::CapexStorage,
            M::CapexRack,
            M::CapexCpu,
            M::CapexTotal,
            M::CapexPerTb,
            M::CapexPerTbe,
            M::CapexPerTbeMonth,
        ],
    ),
    (
        "OpEx over the term",
        &[],
        &[
            M::PowerStorage,
            M::PowerCpu,
            M::PowerMax,
            M::EnergyKwh,
            M::OpexStorage,
            M::OpexRack,
            M::OpexCpu,
            M::OpexReplacements,
            M::OpexSpace,
            M::OpexVolumes,
            M::OpexThroughput,
            M::OpexIops,
            M::OpexTotal,
            M::OpexPerTb,
            M::OpexPerTbe,
            M::OpexPerTbeMonth,
        ],
    ),
    (
        "Total cost of ownership",
        &[],
        &[
            M::Tco,
            M::EffectiveTbe,
            M::TcoPerTbe,
            M::TcoPerTbeMonth,
            M::PresentPerTbe,
            M::CarbonKg,
            M::CarbonPerTbe,
            M::RawPb,
            M::EffectivePbe,
        ],
    ),
    (
        "For the wanted capacity",
        &[],
        &[
            M::WantedRacks,
            M::WantedDrives,
            M::WantedPowerMaxKw,
            M::WantedCapex,
            M::WantedTco,
            M::WantedCarbonKg,
        ],
    ),
];

/// Returns the table of a scenario. Inputs that no column gives or assumes and outputs that apply to no
/// column are omitted.
pub fn table(scenario: &Scenario) -> Vec<Section> {
    let results: Vec<Results> = scenario.columns.iter().map(evaluate).collect();
    let mut sections = Vec::new();
    for (title, fields, metrics) in LAYOUT {
        let of_section = Field::ALL.iter().copied().filter(|field| fields.contains(&field.section()));
        let rows: Vec<Row> = of_section
            .filter_map(|field| field_row(scenario, field))
            .chain(metrics.iter().filter_map(|metric| metric_row(&results, *metric)))
            .collect();
        // Omits a section without values.
        if rows.iter().any(|row| row.cells.iter().any(|cell| cell.value.is_some())) {
            sections.push(Section { title, rows });
        }
    }
    sections
}

fn field_row(scenario: &Scenario, field: Field) -> Option<Row> {
    let info = field.info();
    let inputs: Vec<_> = scenario.columns.iter().map(|column| column.input(field)).collect();
    let given = inputs.iter().flatten().any(|input| input.origin != Origin::Default);
    let assumed = scenario.columns.iter().any(|column| column.is_assumed(field));
    if !given && !assumed {
        return None;
    }
    let cells = scenario.columns.iter().zip(&inputs).map(|(column, input)| Cell {
        value: input.map(|input| input.value),
        measured: input.is_some_and(|input| matches!(input.origin, Origin::Measured(_))),
        assumed: column.is_assumed(field),
    });
    Some(Row { key: info.name, label: info.label, unit: info.unit, show: info.show, cells: cells.collect() })
}

fn metric_row(results: &[Results], metric: M) -> Option<Row> {
    let info = metric.info();
    let values: Vec<_> = results.iter().map(|result| result.get(metric)).collect();
    let worth = |value: &f64| !info.optional || *value != 0.0;
    if !values.iter().flatten().any(worth) {
        return None;
    }
    let cells = values.into_iter().map(|value| Cell { value, measured: false, assumed: false }).collect();
    Some(Row { key: info.key, label: info.label, unit: info.unit, show: info.show, cells })
}

/// Returns the table of fields in `docs/reference/tco.md` as Markdown: everything that a scenario can
/// contain.
pub fn fields_markdown() -> String {
    let mut text =
        "| field | unit | allowed | default | columns | what |\n| --- | --- | --- | --- | --- | --- |\n"
            .to_string();
    for field in Field::ALL {
        let info = field.info();
        let default = field.default_text();
        let kind = info.kind.map_or("both", Kind::name);
        let allowed = info.limit.expected();
        let unit = if info.unit == ":1" { "" } else { info.unit };
        text += &format!("| `{}` | {unit} | {allowed} | {default} | {kind} | {} |\n", info.name, info.what);
    }
    text
}
