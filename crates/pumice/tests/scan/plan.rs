//! `pumice plan`

use std::fs;

use serde_json::{Value, json};

use crate::common::server::text;
use crate::common::{Drive, pumice};

fn plan(arguments: &[&str]) -> Value {
    let run = pumice(&[&["plan", "--json"], arguments].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).expect("JSON")
}

#[test]
fn the_document_s_example() {
    let plans = plan(&["--ratio", "3:1", "--physical", "7680GB"]);
    let advertised = |at: usize| plans["plans"][at]["document"]["advertised_bytes"].as_u64();
    assert_eq!(advertised(0), Some(9_600_000_000_000));
    assert_eq!(advertised(1), Some(19_200_000_000_000));
    assert_eq!(advertised(2), Some(23_040_000_000_000));
    assert_eq!(plans["plans"][0]["logical_capacity_bytes"].as_u64(), Some(9_600_000_000_000 / 4096 * 4096));
    assert_eq!(plans["plans"][0]["differs_because"], Value::Null);
    for at in [1, 2] {
        let plan = &plans["plans"][at];
        assert!(plan["logical_capacity_bytes"].as_u64() < advertised(at));
        assert!(plan["differs_because"].as_str().is_some_and(|why| why.contains("physical size")));
    }
    let text = pumice(&["plan", "--ratio", "3", "--physical", "7680GB"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    for words in ["performance", "balanced", "capacity", "20 % worse", "write amplification", "because"] {
        assert!(text.stdout.contains(words), "{words}: {}", text.stdout);
    }
}

#[test]
fn a_scan_is_planned_for_by_its_lower_end() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("scan.json");
    let ratio = json!({"estimate": 2.4, "low": 2.2, "high": 2.6});
    fs::write(&path, json!({"predicted_drive": {"ratio": ratio}}).to_string()).expect("written");
    let plans = plan(&["--scan", &text(&path), "--physical", "1T", "--policy", "balanced"]);
    assert_eq!(plans["ratio"], 2.2);
    assert_eq!(plans["plans"].as_array().map(Vec::len), Some(1));
    assert!(plans["ratio_source"].as_str().is_some_and(|said| said.contains("lower end")), "{plans}");
    // Zeros promise nothing.
    let rest = json!({"estimate": 1.4, "low": 1.3, "high": 1.5});
    let found = json!({"predicted_drive": {"ratio": {"estimate": 30, "low": 29, "high": 31},
        "ratio_without_fills": rest}});
    fs::write(&path, found.to_string()).expect("written");
    assert_eq!(plan(&["--scan", &text(&path), "--physical", "1T"])["ratio"], 1.3);
    fs::write(&path, "{\"predicted_drive\": {\"ratio_without_fills\": null}}").expect("written");
    let run = pumice(&["plan", "--scan", &text(&path), "--physical", "1T"]);
    assert!(run.code == Some(1) && run.stderr.contains("nothing but zeros"), "{run:?}");
    for bad in ["", "{}", "{\"predicted_drive\": {\"ratio\": 2}}", "[1"] {
        fs::write(&path, bad).expect("written");
        let run = pumice(&["plan", "--scan", &text(&path), "--physical", "1T"]);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("pumice scan --json") && run.stderr.lines().count() == 1, "{run:?}");
    }
    for ratio in [
        json!({"estimate": 2.4, "low": 1e308, "high": -2.49}),
        json!({"estimate": 2.4, "low": 2.5, "high": 2.6}),
        json!({"estimate": 2.4, "low": 2.2, "high": 2.3}),
        json!({"estimate": 2.4, "low": 0, "high": 2.6}),
    ] {
        fs::write(&path, json!({"predicted_drive": {"ratio": ratio}}).to_string()).expect("written");
        let run = pumice(&["plan", "--scan", &text(&path), "--physical", "1T"]);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("invalid ratio") && run.stderr.lines().count() == 1, "{run:?}");
    }
}

#[test]
fn a_drive_of_that_capacity_can_be_made() {
    let plans = plan(&["--ratio", "2", "--physical", "256M"]);
    for at in 0..3 {
        let capacity = plans["plans"][at]["logical_capacity_bytes"].to_string();
        let drive = Drive::create(&["--size", "256M", "--capacity", &capacity]);
        let status = drive.status();
        assert_eq!(status["logical_capacity_bytes"].to_string(), capacity);
        let limit = status["physical_free_bytes"].as_u64().expect("bytes")
            + status["physical_used_bytes"].as_u64().expect("bytes");
        assert_eq!(plans["plans"][at]["physical_limit_bytes"].as_u64(), Some(limit), "{status}");
    }
}

#[test]
fn refusals() {
    for (arguments, code, word) in [
        (&["--physical", "1T"][..], 2, "--ratio"),
        (&["--ratio", "2"], 2, "--physical"),
        (&["--ratio", "2", "--scan", "x", "--physical", "1T"], 2, "--scan"),
        (&["--ratio", "0.5", "--physical", "1T"], 2, "0.9"),
        (&["--ratio", "much", "--physical", "1T"], 2, "ratio"),
        (&["--ratio", "2:1:1", "--physical", "1T"], 2, "expected a ratio from 0.9 to 1000"),
        (&["--ratio", "nan", "--physical", "1T"], 2, "0.9 to 1000"),
        (&["--ratio", "1e999", "--physical", "1T"], 2, "0.9 to 1000"),
        (&["--ratio", "2", "--physical", "0"], 2, "--physical 0"),
        (&["--ratio", "2", "--physical", "9000P"], 2, "too many segments"),
        (&["--ratio", "2", "--physical", "9000000P"], 2, "expected a size"),
        (&["--scan", "/", "--physical", "1T"], 1, "irectory"),
        (&["--scan", "/dev/zero", "--physical", "1T"], 1, "/dev/zero"),
        (&["--ratio", "2", "--physical", "1T", "--policy", "greedy"], 2, "balanced"),
        (&["--ratio", "2", "--physical", "1M"], 2, "at least 25 MiB"),
        (&["--scan", "/nonexistent", "--physical", "1T"], 1, "/nonexistent"),
    ] {
        let run = pumice(&[&["plan"], arguments].concat());
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(word) && run.stderr.lines().count() == 1, "{arguments:?}: {run:?}");
    }
}
