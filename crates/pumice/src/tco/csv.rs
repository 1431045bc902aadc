//! The report as CSV: one line per row of the table, in full precision, with the columns of the scenario.

use std::borrow::Cow;

use anyhow::Result;
use tco::BreakEven;

use super::Report;

/// Returns a cell with text from outside. A spreadsheet would take some beginnings for those of a formula.
fn text(cell: &str) -> Cow<'_, str> {
    match cell.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => Cow::Owned(format!("'{cell}")),
        false => Cow::Borrowed(cell),
    }
}

/// Returns the CSV with a header line. A value that does not apply is an empty cell.
pub(crate) fn csv(report: &Report) -> Result<String> {
    let scenario = &report.scenario;
    let mut out = ::csv::Writer::from_writer(Vec::new());
    let names = scenario.columns.iter().map(|column| text(&column.name));
    let head = ["section", "key", "label", "unit"].map(Cow::Borrowed);
    out.write_record(head.iter().chain(&names.collect::<Vec<_>>()).map(|cell| cell.as_bytes()))?;
    let mut line = |section: &str, key: &str, label: &str, unit: &str, cells: Vec<Option<f64>>| {
        let cells = cells.into_iter().map(|cell| cell.map_or(String::new(), |value| value.to_string()));
        out.write_record([section, key, label, unit].map(str::to_string).into_iter().chain(cells))
    };
    for caution in &report.cautions {
        line("Caution", "", &text(caution), "", vec![None; scenario.columns.len()])?;
    }
    for section in tco::table(scenario) {
        for row in &section.rows {
            let cells = row.cells.iter().map(|cell| cell.value).collect();
            line(section.title, row.key, row.label, row.unit, cells)?;
        }
    }
    let compared = &report.compared;
    let against = "Against the baseline";
    line(against, "saving", "Saving of TCO per TBe", "", compared.iter().map(|c| Some(c.saving)).collect())?;
    let alike = compared.iter().map(|c| Some(c.saving_without_performance)).collect();
    line(against, "saving_without_performance", "Saving without performance multiplier", "", alike)?;
    let ratio = |break_even| match break_even {
        BreakEven::At(ratio) => Some(ratio),
        BreakEven::Always => Some(1.0),
        BreakEven::Never | BreakEven::None => None,
    };
    line(
        against,
        "break_even_ratio",
        "Break-even ratio",
        ":1",
        compared.iter().map(|c| ratio(c.break_even)).collect(),
    )?;
    for (at, factor) in tco::MULTIPLIER_FACTORS.iter().enumerate() {
        let cells = compared.iter().map(|c| c.saving_at_multipliers.map(|savings| savings[at])).collect();
        let label = format!("Saving if its multiplier is {factor} times as high");
        line(against, &format!("saving_at_multiplier_times_{factor}"), &label, "", cells)?;
    }
    let cells = compared.iter().map(|c| c.break_even_multiplier).collect();
    line(against, "break_even_multiplier", "Break-even performance multiplier", "", cells)?;
    if scenario.equal_ratio.is_some() {
        let cells = compared.iter().map(|c| c.at_equal_ratio).collect();
        line(against, "tco_per_tbe_usd_at_equal_ratio", "TCO per TBe at an equal ratio", "US$/TBe", cells)?;
    }
    for sweep in &report.sweeps {
        let name = sweep.field.info().name;
        for (at, value) in sweep.values.iter().enumerate() {
            let cells = sweep.tco_per_tbe.iter().map(|costs| Some(costs[at])).collect();
            line("Sweep", &format!("{name}={value}"), "TCO per TBe", "US$/TBe", cells)?;
        }
    }
    Ok(String::from_utf8(out.into_inner().map_err(|error| error.into_error())?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_formula() {
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"] {
            assert_eq!(text(formula), format!("'{formula}"));
        }
        assert_eq!(text("CSD 2000 - 3.2 TB"), "CSD 2000 - 3.2 TB");
    }
}
