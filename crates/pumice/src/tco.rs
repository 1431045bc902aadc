//! `pumice tco`: total cost of ownership of storage, per TB that users can store.

mod csv;
mod html;
mod json;
mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::PossibleValuesParser;
use tco::{Applied, Comparison, Field, Influence, Origin, PRESETS, Scenario, Sweep, SweepRange};

use crate::input::{text_in, text_of};
use crate::output::Output;
use crate::usage::whole_number;

/// Total cost of ownership with the SNIA storage TCO model and extensions, described in docs/reference/tco.md
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    pumice tco --preset snia-2023\n  \
    pumice tco --preset four-ways --print > mine.toml\n  \
    pumice tco mine.toml --from-scan scan.json --html tco.html")]
pub(crate) struct Args {
    /// Scenario in TOML; `-` reads standard input
    #[arg(required_unless_present_any = ["preset", "fields"], conflicts_with_all = ["preset", "fields"])]
    file: Option<PathBuf>,
    /// Built-in scenario
    #[arg(long, value_parser = PossibleValuesParser::new(PRESETS.iter().map(|preset| preset.name)))]
    preset: Option<String>,
    /// Print the TOML of the preset, as a template
    #[arg(long, requires = "preset", conflicts_with_all = ["json", "csv", "html"])]
    print: bool,
    /// List all scenario fields with units and defaults
    #[arg(long, exclusive = true)]
    fields: bool,
    /// Use the compression ratio from `pumice scan --json` (lower bound) instead of the assumed one
    #[arg(long, value_name = "FILE")]
    from_scan: Option<PathBuf>,
    /// Use results of `pumice bench --json` (docs/reference/tco.md): throughput, ratio and CPU time instead
    /// of assumed values
    #[arg(long, value_name = "FILE")]
    from_bench: Option<PathBuf>,
    /// Set a field in all columns or in one: `ratio=2.4`, `Pumice:workload.ratio=2.4`
    #[arg(long, value_name = "[COLUMN:]FIELD=VALUE")]
    set: Vec<Setting>,
    /// Vary a field over a range: `ratio=1.0..4.0`, `drive.capacity_gb=3840..30720:8` for eight values
    #[arg(long, value_name = "FIELD=LOW..HIGH[:POINTS]")]
    sweep: Vec<SweepRange>,
    /// Show which inputs matter most (one-at-a-time sensitivity)
    #[arg(long)]
    tornado: bool,
    /// Variation of each input for --tornado, in percent of its value
    #[arg(long, value_name = "PERCENT", default_value = "20", value_parser = whole_number(1..=99_u8))]
    vary: u8,
    /// Print JSON (stable interface)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long)]
    csv: bool,
    /// Write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A field to set.
#[derive(Clone, Debug, PartialEq)]
struct Setting {
    column: Option<String>,
    field: Field,
    value: f64,
}

impl FromStr for Setting {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Setting> {
        let form =
            || anyhow!("{text:?} sets nothing: write FIELD=VALUE or COLUMN:FIELD=VALUE, such as ratio=2.4");
        let (name, value) = text.rsplit_once('=').ok_or_else(form)?;
        let (column, name) = match name.rsplit_once(':') {
            Some((column, name)) => (Some(column.to_string()), name),
            None => (None, name),
        };
        let field = Field::resolve(name.trim()).ok_or_else(|| {
            anyhow!("there is no field {:?}; `pumice tco --fields` lists them", name.trim())
        })?;
        Ok(Setting { column, field, value: value.trim().parse().map_err(|_| form())? })
    }
}

/// Contents of the report in every format.
struct Report {
    scenario: Scenario,
    measured: Vec<Applied>,
    /// What a reader must know of the measurements.
    cautions: Vec<String>,
    compared: Vec<Comparison>,
    sweeps: Vec<Sweep>,
    /// Influences of the inputs, for each column.
    tornados: Vec<Vec<Influence>>,
    vary_percent: u8,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.fields {
        return Ok(crate::output::stdout().write_all(text::fields().as_bytes())?);
    }
    let preset = args.preset.as_deref().and_then(tco::preset);
    if let Some(preset) = preset.filter(|_| args.print) {
        return Ok(crate::output::stdout().write_all(preset.text.as_bytes())?);
    }
    let page = args.html.as_deref().map(Output::check).transpose()?;
    let report = report(args, preset)?;
    if let Some(page) = page {
        page.write(&html::page(&report, &::report::utc(status::unix_seconds_now())).to_html())?;
    }
    let out = if args.json {
        json::json(&report)?
    } else if args.csv {
        csv::csv(&report)?
    } else {
        text::text(&report, args.tornado)
    };
    Ok(crate::output::stdout().write_all(out.as_bytes())?)
}

fn report(args: &Args, preset: Option<&tco::Preset>) -> Result<Report> {
    let mut scenario = match (preset, &args.file) {
        (Some(preset), _) => tco::parse(preset.name, preset.text)?,
        (None, Some(file)) => tco::parse(&file.display().to_string(), &read(file)?)?,
        (None, None) => bail!("no scenario given"),
    };
    // Set twice: a measurement may depend on a setting, and a setting overrides measurements.
    set(&mut scenario, &args.set)?;
    let (mut measured, mut cautions) = (Vec::new(), Vec::new());
    let mut take = |from: tco::Measured| {
        measured.extend(from.applied);
        cautions.extend(from.cautions);
    };
    if let Some(file) = &args.from_scan {
        take(tco::use_scan(&mut scenario, &file.display().to_string(), &read(file)?)?);
    }
    if let Some(file) = &args.from_bench {
        take(tco::use_bench(&mut scenario, &file.display().to_string(), &read(file)?)?);
    }
    set(&mut scenario, &args.set)?;
    if let Some(free) = scenario.columns.iter().find(|column| tco::evaluate(column).tco_per_tbe() <= 0.0) {
        bail!("{}: column {:?} costs nothing: expected prices above 0", scenario.file, free.name);
    }
    // Measurements that a benchmark or a setting replaced are not reported.
    measured.retain(|applied: &Applied| {
        let column = scenario.columns.iter().find(|column| column.name == applied.column);
        let origin = column.and_then(|column| column.input(applied.field)).map(|input| &input.origin);
        origin == Some(&Origin::Measured(applied.detail.clone()))
    });
    let compared = tco::compare(&scenario);
    let sweeps = args.sweep.iter().map(|range| tco::sweep(&scenario, range)).collect();
    let share = f64::from(args.vary) / 100.0;
    let tornados = scenario.columns.iter().map(|column| tco::tornado(column, share)).collect();
    Ok(Report { scenario, measured, cautions, compared, sweeps, tornados, vary_percent: args.vary })
}

fn set(scenario: &mut Scenario, settings: &[Setting]) -> Result<()> {
    for setting in settings {
        scenario.set(setting.column.as_deref(), setting.field, setting.value).context("--set")?;
    }
    Ok(())
}

/// Reads a text file, or standard input.
fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") { text_of(io::stdin().lock(), path) } else { text_in(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let of = |text: &str| text.parse::<Setting>();
        assert_eq!(of("ratio=2.4").ok(), Some(Setting { column: None, field: Field::Ratio, value: 2.4 }));
        let named = Setting { column: Some("a=b: c".to_string()), field: Field::Servers, value: 3.0 };
        assert_eq!(of("a=b: c:rack.servers= 3").ok(), Some(named));
        for bad in ["", "ratio", "ratio=", "ratio=x", "nothing=1", "a:nothing=1"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
