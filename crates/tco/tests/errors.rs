//! Errors in scenarios: each message reports the file, the line, the field and the expected value.

mod common;

use common::scenario_text;

/// Parses the small scenario with `from` replaced by `to`, and expects this error.
fn assert_refused(from: &str, to: &str, line: usize, field: &str, parts: &[&str]) {
    let text = scenario_text("");
    assert!(text.contains(from), "{from:?} is not in the scenario");
    let error = tco::parse("my.toml", &text.replacen(from, to, 1)).expect_err(to);
    let message = error.to_string();
    assert_eq!((error.line, error.field.as_str()), (line, field), "{message}");
    assert!(message.starts_with(&format!("my.toml:{line}: ")), "{message}");
    assert!(message.contains(field) && !message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn the_scenario_itself_is_fine() {
    let scenario = tco::parse("my.toml", &scenario_text("")).expect("valid");
    assert_eq!(scenario.columns[0].name, "one");
    assert_eq!(scenario.title, "small");
}

#[test]
fn what_is_no_toml() {
    assert_refused("years = 4", "years = = 4", 19, "", &["not TOML"]);
    assert_refused("[common.energy]", "[common.energy", 15, "", &["not TOML"]);
    assert_refused("pue = 1.5", "pue = 1.5\npue = 1.6", 18, "", &["not TOML", "duplicate"]);
}

#[test]
fn unknown_keys() {
    assert_refused(
        "capacity_gb",
        "capacty_gb",
        3,
        "drive.capacty_gb",
        &["unknown key", "perhaps drive.capacity_gb"],
    );
    assert_refused(
        "pue =",
        "colour =",
        17,
        "energy.colour",
        &["unknown key", "electricity_usd_per_kwh, pue"],
    );
    assert_refused(
        "[common.energy]",
        "[common.enrgy]",
        15,
        "common.enrgy",
        &["unknown key", "drive, rack, energy"],
    );
    assert_refused("title", "titel", 1, "titel", &["unknown key", "title, baseline"]);
    assert_refused(
        "name = \"one\"",
        "name = \"one\"\nnmae = 1",
        25,
        "column.nmae",
        &["unknown key", "name, kind"],
    );
    let sources = "[column.sources]\n\"workload.rati\" = \"a\"\n[column.workload]";
    assert_refused("[column.workload]", sources, 26, "column.sources.workload.rati", &["unknown key"]);
}

#[test]
fn missing_fields() {
    assert_refused(
        "capacity_gb = 1000\n",
        "",
        22,
        "drive.capacity_gb",
        &["missing", "\"one\"", "a number above 0, in GB"],
    );
    assert_refused("ratio = 2\n", "", 23, "workload.ratio", &["missing", "1 or more"]);
    assert_refused("name = \"one\"\n", "", 23, "column.name", &["missing"]);
    assert_refused("years = 4\n", "", 22, "workload.years", &["missing", "in years"]);
}

#[test]
fn impossible_values() {
    assert_refused(
        "utilization = 0.8",
        "utilization = 1.1",
        21,
        "workload.utilization",
        &["at most 1", "found 1.1"],
    );
    assert_refused(
        "utilization = 0.8",
        "utilization = 0",
        21,
        "workload.utilization",
        &["above 0", "found 0"],
    );
    assert_refused("ratio = 2", "ratio = 0.9", 26, "workload.ratio", &["1 or more", "found 0.9"]);
    assert_refused(
        "server_cost_usd = 5000",
        "server_cost_usd = -1",
        11,
        "rack.server_cost_usd",
        &["0 or more", "US$", "found -1"],
    );
    assert_refused("capacity_gb = 1000", "capacity_gb = 0", 3, "drive.capacity_gb", &["above 0", "in GB"]);
    assert_refused("pue = 1.5", "pue = 0.5", 17, "energy.pue", &["1 or more"]);
    assert_refused("afr = 0.01", "afr = 1.5", 6, "drive.afr", &["from 0 to 1"]);
    assert_refused("servers = 4", "servers = 4.5", 14, "rack.servers", &["a whole number", "found 4.5"]);
    assert_refused("years = 4", "years = inf", 19, "workload.years", &["at most 1e12", "found inf"]);
    assert_refused("years = 4", "years = nan", 19, "workload.years", &["above 0", "found NaN"]);
    assert_refused("years = 4", "years = 1e13", 19, "workload.years", &["at most 1e12"]);
    assert_refused("years = 4", "years = 1e300", 19, "workload.years", &["at most 1e12", "found 1e300"]);
    // So small that a result would not be finite.
    assert_refused("years = 4", "years = 1e-300", 19, "workload.years", &["at least 1e-12", "found 1e-300"]);
    assert_refused(
        "utilization = 0.8",
        "utilization = 1e-200",
        21,
        "workload.utilization",
        &["at least 1e-12"],
    );
    assert_refused("replication = 2", "replication = 0.5", 20, "workload.replication", &["1 or more"]);
}

#[test]
fn wrong_types() {
    assert_refused(
        "years = 4",
        "years = \"4\"",
        19,
        "workload.years",
        &["above 0, in years", "found the text \"4\""],
    );
    assert_refused("years = 4", "years = true", 19, "workload.years", &["found true"]);
    assert_refused("years = 4", "years = [4]", 19, "workload.years", &["found an array"]);
    assert_refused("name = \"one\"", "name = 1", 24, "column.name", &["expected a text", "found 1"]);
    assert_refused("name = \"one\"", "name = \" \"", 24, "column.name", &["expected a text"]);
    assert_refused("[[column]]", "[column]", 23, "column", &["[[column]], with two brackets"]);
    assert_refused(
        "name = \"one\"",
        "name = \"one\"\nkind = \"shed\"",
        25,
        "column.kind",
        &["\"rack\" or \"cloud\""],
    );
    assert_refused(
        "name = \"one\"",
        "name = \"one\"\ncompresses = 1",
        25,
        "column.compresses",
        &["true or false"],
    );
}

#[test]
fn tables_that_are_none() {
    for (text, line, field) in
        [("title = \"x\"\ncommon = 1\n", 2, "common"), ("[common]\ndrive = 1\n", 2, "common.drive")]
    {
        let error = tco::parse("f", text).expect_err(text);
        assert_eq!((error.line, error.field.as_str()), (line, field), "{error}");
        assert!(error.to_string().contains("expected a table, found 1"), "{error}");
    }
}

#[test]
fn contradictions() {
    assert_refused(
        "servers = 4",
        "servers = 0",
        13,
        "rack.drives_per_server",
        &["drives in the rack", "\"one\""],
    );
    let twice = "ratio = 2\n[[column]]\nname = \"one\"\n[column.workload]\nratio = 3";
    assert_refused("ratio = 2", twice, 28, "column.name", &["a second \"one\""]);
    assert_refused("title = \"small\"", "baseline = \"two\"", 1, "baseline", &["\"one\"", "found \"two\""]);
    assert_refused("title = \"small\"", "equal_ratio = 0.5", 1, "equal_ratio", &["1 or more", "found 0.5"]);
    assert_refused(
        "ratio = 2",
        "ratio = 2\n[column.cpu]\nshare = 0.5",
        23,
        "cpu.cores",
        &["above 0", "cpu.share"],
    );
    assert_refused(
        "ratio = 2",
        "ratio = 2\n[column.cpu]\nseconds_per_gb = 0.5",
        23,
        "cpu.gb_per_s",
        &["above 0"],
    );
    assert_refused(
        "name = \"one\"",
        "name = \"one\"\ncompresses = false",
        27,
        "workload.ratio",
        &["compresses = false"],
    );
    assert_refused(
        "ratio = 2",
        "ratio = 2\n[column.cloud]\nstored_tb = 5",
        28,
        "cloud.stored_tb",
        &["kind rack", "found 5"],
    );
}

#[test]
fn no_columns_and_too_many() {
    let none = tco::parse("f", "title = \"x\"\n").expect_err("no columns");
    assert!(none.to_string().contains("1 to 16 tables [[column]], found 0"), "{none}");
    let many: String = (0..17).map(|at| format!("[[column]]\nname = \"{at}\"\n")).collect();
    let many = tco::parse("f", &many).expect_err("too many");
    assert_eq!(many.line, 33, "{many}");
    let large = "#".repeat(tco::SCENARIO_MAX_BYTES + 1);
    assert!(tco::parse("f", &large).expect_err("too large").to_string().contains("at most 1048576 bytes"));
}

#[test]
fn no_text_makes_it_panic() {
    // Every prefix of a valid scenario, and every replacement of one byte, is parsed or refused without a
    // panic.
    let text = scenario_text("");
    for at in 0..text.len() {
        let _ = tco::parse("f", &text[..at]);
        for byte in ["\"", "[", "=", "\n", "9", "é"] {
            let _ = tco::parse("f", &format!("{}{byte}{}", &text[..at], &text[at + 1..]));
        }
    }
}
