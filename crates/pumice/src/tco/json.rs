//! The report as JSON: a stable interface, described in `docs/reference/tco.md`.

use anyhow::Result;
use serde_json::{Map, Value, json};
use tco::{BreakEven, Column, Comparison, Field, Influence, Metric, Origin};

use super::Report;

/// Returns one JSON document with a newline at the end.
pub(crate) fn json(report: &Report) -> Result<String> {
    let scenario = &report.scenario;
    let columns = scenario.columns.iter().zip(&report.compared).zip(&report.tornados);
    let columns: Vec<Value> =
        columns.map(|((column, compared), influences)| column_json(column, compared, influences)).collect();
    let sweeps: Vec<Value> = report
        .sweeps
        .iter()
        .map(|sweep| {
            let lines = scenario.columns.iter().zip(&sweep.tco_per_tbe);
            let lines: Vec<Value> =
                lines.map(|(column, line)| json!({"name": column.name, "tco_per_tbe_usd": line})).collect();
            json!({"field": sweep.field.info().name, "values": sweep.values, "columns": lines})
        })
        .collect();
    let measured: Vec<Value> = report
        .measured
        .iter()
        .map(|applied| {
            json!({
                "column": applied.column,
                "field": applied.field.info().name,
                "value": applied.value,
                "assumed_before": applied.before,
                "detail": applied.detail,
            })
        })
        .collect();
    let document = json!({
        "title": scenario.title,
        "scenario": scenario.file,
        "currency": "USD",
        "baseline": scenario.baseline().name,
        "equal_ratio": scenario.equal_ratio,
        "columns": columns,
        "sweeps": sweeps,
        "measured": measured,
        "cautions": report.cautions,
        "tornado_percent": report.vary_percent,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn column_json(column: &Column, compared: &Comparison, influences: &[Influence]) -> Value {
    let mut inputs = Map::new();
    for field in Field::ALL {
        if let Some(input) = column.input(*field) {
            let measured = matches!(input.origin, Origin::Measured(_));
            let source = match &input.origin {
                Origin::Measured(detail) => Some(detail),
                Origin::Set => None,
                _ => column.sources.get(field),
            };
            let value = json!({
                "value": input.value,
                "unit": field.info().unit,
                "from": input.origin.name(),
                "measured": measured,
                "assumed": column.is_assumed(*field),
                "source": source,
            });
            inputs.insert(field.info().name.to_string(), value);
        }
    }
    let results = tco::evaluate(column);
    let of = |metric: &Metric| Some((metric.info().key.to_string(), json!(results.get(*metric)?)));
    let results: Map<String, Value> = Metric::ALL.iter().filter_map(of).collect();
    let (break_even, ratio) = match compared.break_even {
        BreakEven::At(ratio) => ("at", Some(ratio)),
        BreakEven::Always => ("any", None),
        BreakEven::Never => ("none", None),
        BreakEven::None => ("not applicable", None),
    };
    let tornado: Vec<Value> = influences
        .iter()
        .map(|influence| {
            json!({
                "field": influence.field.info().name,
                "low": influence.low,
                "high": influence.high,
                "tco_per_tbe_usd_at_low": influence.tco_at_low,
                "tco_per_tbe_usd_at_high": influence.tco_at_high,
            })
        })
        .collect();
    let mut comparison = json!({
        "saving": compared.saving,
        "saving_without_performance": compared.saving_without_performance,
        "break_even_multiplier": compared.break_even_multiplier,
        "break_even": break_even,
        "break_even_ratio": ratio,
        "tco_per_tbe_usd_at_equal_ratio": compared.at_equal_ratio,
    });
    // The baseline has none: its own multiplier stays.
    if let Some(savings) = compared.saving_at_multipliers {
        let of = |(factor, saving): (&f64, f64)| json!({"factor": factor, "saving": saving});
        comparison["saving_at_multipliers"] = tco::MULTIPLIER_FACTORS.iter().zip(savings).map(of).collect();
    }
    json!({
        "name": column.name,
        "kind": column.kind.name(),
        "note": column.note,
        "compresses": column.compresses,
        "codec": column.codec,
        "inputs": inputs,
        "results": results,
        "compared": comparison,
        "tornado": tornado,
    })
}
