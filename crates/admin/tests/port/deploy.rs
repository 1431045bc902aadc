//! Files of `deploy` for Prometheus and Grafana: every metric they name is exported, every alert is tested,
//! and the tools that it is for accept it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::common::{full_report, monitored, named, needs, project, series};
use serde_json::Value;

type Outcome = Result<(), Box<dyn std::error::Error>>;

const RULES: &str = "deploy/prometheus/pumice.rules.yml";
const TESTS: &str = "deploy/prometheus/pumice.test.yml";
const DASHBOARD: &str = "deploy/grafana/pumice.json";

/// Runs promtool; answers what it says if it is not content.
fn promtool(arguments: &[&str], file: &Path) -> Result<Option<String>, std::io::Error> {
    let output = Command::new("promtool").args(arguments).arg(file).output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((!output.status.success()).then_some(said))
}

fn assert_all_exported(named: &BTreeSet<String>) {
    let exported = series(&admin::render(&monitored(vec![full_report("/srv/a")])));
    let missing: Vec<&String> = named.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

/// The expressions of the dashboard, by panel.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().unwrap_or_default().to_string();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let expressions =
            targets.into_iter().map(|target| target["expr"].as_str().expect("an expression").to_string());
        expressions.map(|expression| (title.clone(), expression)).collect::<Vec<_>>()
    };
    panels.iter().flat_map(of_panel).collect()
}

fn dashboard() -> Result<Value, Box<dyn std::error::Error>> {
    Ok(serde_json::from_str(&std::fs::read_to_string(project(DASHBOARD))?)?)
}

#[test]
fn alerts_name_metrics_that_there_are() -> Outcome {
    let rules = std::fs::read_to_string(project(RULES))?;
    // Comments and names of groups are no expressions; groups have a dash in their names.
    let found = named(&rules);
    assert!(found.len() > 15, "{found:?}");
    assert_all_exported(&found);
    Ok(())
}

#[test]
fn every_alert_is_tested_both_ways() -> Outcome {
    let rules = std::fs::read_to_string(project(RULES))?;
    let tests = std::fs::read_to_string(project(TESTS))?;
    let alerts: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    // For each, whether silence and an alarm are expected somewhere.
    let mut tested: BTreeMap<&str, [bool; 2]> = BTreeMap::new();
    let mut lines = tests.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(alert) = line.strip_prefix("alertname: ") else { continue };
        let fires = lines.peek().is_some_and(|line| *line == "exp_alerts:");
        tested.entry(alert).or_default()[usize::from(fires)] = true;
    }
    assert!(alerts.len() > 15, "{alerts:?}");
    for alert in &alerts {
        assert_eq!(tested.get(alert), Some(&[true, true]), "{alert}: [silent, fired]");
    }
    assert!(tested.keys().all(|alert| alerts.contains(alert)), "a test of an alert that does not exist");
    assert_all_exported(&named(&tests));
    Ok(())
}

#[test]
fn promtool_accepts_and_tests_the_alerts() -> Outcome {
    if !needs("promtool") {
        return Ok(());
    }
    assert_eq!(promtool(&["check", "rules"], &project(RULES))?, None);
    assert_eq!(promtool(&["test", "rules"], &project(TESTS))?, None);
    Ok(())
}

#[test]
fn the_dashboard_names_metrics_that_there_are() -> Outcome {
    let dashboard = dashboard()?;
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 30, "{}", expressions.len());
    let variables = dashboard["templating"]["list"].to_string();
    let text: Vec<String> = expressions.into_iter().map(|(_, expression)| expression).collect();
    assert_all_exported(&named(&(text.join("\n") + &variables)));
    Ok(())
}

#[test]
fn every_expression_of_the_dashboard_is_one() -> Outcome {
    if !needs("promtool") {
        return Ok(());
    }
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (i, (_, expression)) in expressions(&dashboard()?).iter().enumerate() {
        // As Grafana fills them in.
        let filled =
            expression.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$drive", ".*");
        assert!(!filled.contains('$'), "{expression}: a variable that the dashboard does not have");
        rules += &format!("      - record: test:expression:{i}\n        expr: {}\n", Value::from(filled));
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), rules)?;
    assert_eq!(promtool(&["check", "rules"], file.path())?, None);
    Ok(())
}

#[test]
fn panels_have_distinct_titles_and_do_not_overlap() -> Outcome {
    let dashboard = dashboard()?;
    let panels = dashboard["panels"].as_array().ok_or("no panels")?;
    let ids: BTreeSet<Option<u64>> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "an id stands twice");
    let mut taken = BTreeMap::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for (x, y) in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            if let Some(other) = taken.insert((x, y), panel["title"].clone()) {
                panic!("{} lies over {other}", panel["title"]);
            }
        }
        let described =
            panel["type"] == "row" || panel["description"].as_str().is_some_and(|text| !text.is_empty());
        assert!(described, "{} says nothing of itself", panel["title"]);
    }
    Ok(())
}
