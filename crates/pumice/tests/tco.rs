//! `pumice tco` on the command line.

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;

use common::{Outcome, Run, in_time, needs, pumice};
use serde_json::Value;

/// Runs `pumice tco`, which must succeed without messages.
fn tco<S: AsRef<str>>(arguments: &[S]) -> String {
    let run = run(arguments);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    run.stdout
}

fn run<S: AsRef<str>>(arguments: &[S]) -> Run {
    let arguments: Vec<&str> = ["tco"].into_iter().chain(arguments.iter().map(AsRef::as_ref)).collect();
    pumice(&arguments)
}

fn json<S: AsRef<str>>(arguments: &[S]) -> Value {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).chain(["--json"]).collect();
    serde_json::from_str(&tco(&arguments)).expect("JSON")
}

/// Returns the words after the label in the line that starts with it.
fn line<'a>(text: &'a str, label: &str) -> Vec<&'a str> {
    let found = text.lines().find(|line| line.trim_start().starts_with(label));
    found.unwrap_or_else(|| panic!("no line {label:?} in:\n{text}")).trim_start()[label.len()..]
        .split_whitespace()
        .collect()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// Whether two numbers are the same, but for what reading and writing them may change.
fn same(found: &Value, expected: f64) -> bool {
    found.as_f64().is_some_and(|found| (found - expected).abs() <= 1e-12 * expected.abs())
}

/// The parts of the output of `pumice scan --json` that are read.
const SCAN: &str = r#"{"predicted_drive": {"codec": "lz4", "ratio": {"estimate": 1.8, "low": 1.75, "high": 1.85}},
    "codecs": [{"codec": "deflate:1", "unit_bytes": 4096, "ratio": {"estimate": 1.9, "low": 1.85, "high": 1.95}}],
    "layouts": [
        {"layout": "sectors", "unit_bytes": 65536, "codec": "zstd:3", "ratio": {"estimate": 1.6, "low": 1.5, "high": 1.7}},
        {"layout": "sectors", "unit_bytes": 131072, "codec": "zstd:3", "ratio": {"estimate": 1.7, "low": 1.65, "high": 1.8}}]}"#;

#[test]
fn the_snia_table_on_the_terminal() {
    let text = tco(&["--preset", "snia-2023"]);
    assert_eq!(line(&text, "TCO per TBe, US$/TBe"), ["$565.09", "$389.19", "$141.05"]);
    assert_eq!(line(&text, "TCO per TBe and month"), ["$9.42", "$6.49", "$2.35"]);
    assert_eq!(line(&text, "CapEx per TBe, US$/TBe"), ["$412.55", "$276.85", "$112.96"]);
    assert_eq!(line(&text, "OpEx per TBe, US$/TBe"), ["$152.54", "$112.33", "$28.08"]);
    assert_eq!(line(&text, "Saving of TCO per TBe"), ["0%", "31%", "75%"]);
    assert_eq!(line(&text, "Saving without performance multiplier"), ["0%", "9%", "67%"]);
    assert!(text.lines().all(|line| line == line.trim_end()), "spaces at ends of lines");
    assert!(!text.contains("Measured") && !text.contains("cpu.") && !text.contains("ssumed"), "{text}");
    assert_eq!(line(&text, "Break-even performance multiplier"), ["-", "1.45", "4.01"]);
    assert_eq!(line(&text, "Saving if its multiplier is 1.25 times as high"), ["-", "14%", "69%"]);
}

#[test]
fn a_printed_preset_is_a_scenario_of_ones_own() -> Outcome {
    let folder = tempfile::tempdir()?;
    for preset in ["snia-2023", "four-ways", "cloud-volumes", "gcp-volumes", "azure-volumes"] {
        let printed = tco(&["--preset", preset, "--print"]);
        assert!(printed.starts_with("# "), "{printed}");
        let file = write(folder.path(), "mine.toml", &printed);
        assert_eq!(json(&[&file])["columns"], json(&["--preset", preset])["columns"], "{preset}");
        let from_stdin = format!("exec '{}' tco - --json < '{file}'", env!("CARGO_BIN_EXE_pumice"));
        let from_stdin: Value = serde_json::from_str(&in_time("sh", &["-c", &from_stdin]).stdout)?;
        assert_eq!(from_stdin["columns"], json(&[&file])["columns"]);
    }
    Ok(())
}

#[test]
fn json_has_inputs_results_and_comparisons() {
    let document = json(&["--preset", "snia-2023", "--sweep", "ratio=1..4:4", "--vary", "10"]);
    assert_eq!(document["currency"], "USD");
    assert_eq!(document["baseline"], "Ceph Baseline");
    let column = &document["columns"][1];
    assert_eq!(column["name"], "Ceph CS SSD 3.84TB");
    assert_eq!(column["kind"], "rack");
    let input = &column["inputs"]["drive.capacity_gb"];
    assert_eq!((input["value"].as_f64(), input["unit"].as_str()), (Some(3840.0), Some("GB")));
    assert_eq!((&input["from"], &input["measured"]), (&"common".into(), &false.into()));
    assert_eq!(column["inputs"]["rack.server_cost_usd"]["from"], "column");
    assert_eq!(column["inputs"]["workload.discount_rate"]["from"], "default");
    assert_eq!(format!("{:.2}", column["results"]["tco_per_tbe_usd"].as_f64().expect("a number")), "389.19");
    assert!(column["results"].get("wanted_racks").is_none());
    assert_eq!(format!("{:.3}", column["compared"]["saving"].as_f64().expect("a number")), "0.311");
    assert_eq!(column["compared"]["break_even"], "at");
    assert_eq!(column["compared"]["saving_at_multipliers"].as_array().map(Vec::len), Some(3));
    let baseline = &document["columns"][0]["compared"];
    assert_eq!(baseline["break_even"], "not applicable");
    assert!(baseline.get("saving_at_multipliers").is_none(), "its own multiplier stays: {baseline}");
    assert_eq!(document["cautions"], serde_json::json!([]));
    let tornado = column["tornado"].as_array().expect("an array");
    assert_eq!(document["tornado_percent"], 10);
    let ratio = tornado.iter().find(|influence| influence["field"] == "workload.ratio").expect("it matters");
    assert_eq!((ratio["low"].as_f64(), ratio["high"].as_f64()), (Some(1.8), Some(2.2)));
    let sweep = &document["sweeps"][0];
    assert_eq!(sweep["values"], serde_json::json!([1.0, 2.0, 3.0, 4.0]));
    let swept = sweep["columns"][1]["tco_per_tbe_usd"][1].as_f64().expect("a number");
    assert_eq!(format!("{swept:.2}"), "389.19");
}

#[test]
fn csv_has_full_precision() -> Outcome {
    let text = tco(&["--preset", "four-ways", "--csv", "--sweep", "ratio=1..2:2"]);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head: Vec<String> = reader.headers()?.iter().map(str::to_string).collect();
    assert_eq!(head[..4], ["section", "key", "label", "unit"]);
    assert_eq!(head[4..], ["Ceph zstd", "Hardware CSD", "Ceph with QAT", "Pumice"]);
    let records: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>()?;
    let document = json(&["--preset", "four-ways"]);
    let record = records.iter().find(|record| &record[1] == "tco_per_tbe_usd").expect("it is there");
    for column in 0..4 {
        let expected = &document["columns"][column]["results"]["tco_per_tbe_usd"];
        assert!(same(expected, record[4 + column].parse()?), "{expected}, {record:?}");
    }
    // A value that does not apply is empty, not 0.
    let share = records.iter().find(|record| &record[1] == "workload.ratio").expect("it is there");
    assert_eq!(&share[7], "2.465");
    let break_even = records.iter().find(|record| &record[1] == "break_even_ratio").expect("it is there");
    assert_eq!(&break_even[4], "");
    assert_eq!(records.iter().filter(|record| &record[0] == "Sweep").count(), 2);
    Ok(())
}

#[test]
fn the_page_is_one_file_with_charts() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("report.html").display().to_string();
    fs::write(&path, "an older report")?;
    tco(&["--preset", "four-ways", "--html", &path, "--sweep", "drive.capacity_gb=1000..30000"]);
    let html = fs::read_to_string(&path)?;
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    for link in ["<script", "href=", "src=", "@import"] {
        assert!(!html.contains(link), "{link}");
    }
    // Charts: parts of the cost, two sweeps, and a tornado for each of four columns.
    assert_eq!(html.matches("<figure ").count(), 1 + 2 + 4);
    common::readable::assert_readable(&html);
    for text in [
        "Lowest TCO per TBe: Hardware CSD",
        "Hardware CSD and Ceph with QAT coincide.",
        "Assumed: Performance multiplier of Ceph with QAT",
        "<h2>By capacity</h2>",
        "scripts/bench.sh snia",
    ] {
        assert!(html.contains(text), "{text}");
    }
    // Inputs have labels. Their names are in the texts of sources only, which the scenario gives.
    let (numbers, _) = html.split_once("<h2>Sources").ok_or("sources")?;
    let named = tco(&["--fields"]);
    for name in named.lines().filter_map(|line| line.split_whitespace().next()).filter(|it| it.contains('.'))
    {
        assert!(!numbers.contains(name), "{name}");
    }
    let (_, date) = html.split_once("<p class=\"made\">").ok_or("a date")?;
    assert!(date.starts_with("20") && date.contains(" UTC, pumice tco "), "{}", &date[..40]);
    // No other file is left in the folder. A failure to write the page has no other effect.
    assert_eq!(fs::read_dir(folder.path())?.count(), 1);
    let nowhere = format!("{}/none/report.html", folder.path().display());
    let failed = run(&["--preset", "four-ways", "--html", &nowhere]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(
        failed.stderr.starts_with("pumice: cannot write ") && failed.stderr.lines().count() == 1,
        "{failed:?}"
    );
    assert_eq!(fs::read_to_string(&path)?, html);
    // What is assumed is marked, and nothing else is called so.
    assert!(
        html.contains(
            "Inputs marked &#34;assumed&#34; are assumptions. All others are as the scenario has them"
        ),
        "{html}"
    );
    tco(&["--preset", "snia-2023", "--html", &path]);
    assert!(!fs::read_to_string(&path)?.contains("ssum"), "all is quoted");
    // A name with markup is shown as text.
    let odd = tco(&["--preset", "snia-2023", "--print"]).replace("Ceph CS SSD 3.84TB", "<b>&$x^2$");
    let odd = write(folder.path(), "odd.toml", &odd);
    tco(&[odd.as_str(), "--html", &path]);
    assert!(!fs::read_to_string(&path)?.contains("<b>"));
    Ok(())
}

#[test]
fn a_scan_takes_the_place_of_an_assumption_and_says_so() -> Outcome {
    let folder = tempfile::tempdir()?;
    let scan = write(folder.path(), "scan.json", SCAN);
    let text = tco(&["--preset", "four-ways", "--from-scan", &scan]);
    let ratios = ["1.50:1", "measured", "1.85:1", "measured", "1.65:1", "measured", "1.75:1", "measured"];
    assert_eq!(line(&text, "Compression ratio"), ratios);
    let measured = text.lines().find(|line| line.contains("Pumice, workload.ratio: ")).expect("a line");
    for part in ["1.75:1 instead of 2.40:1", "low end of 1.750..1.850", "scan.json"] {
        assert!(measured.contains(part), "{measured}");
    }
    assert!(text.contains("\nNot measured here\n  all other inputs, as four-ways has them\n"), "{text}");
    let headline = text.lines().nth(1).expect("a headline");
    assert!(
        headline.contains("Assumed: workload.performance_multiplier of Ceph with QAT, Pumice."),
        "{headline}"
    );
    // The CPU time is that of the scan's codec, which is said at the top.
    assert_eq!(line(&text, "CPU time to compress, s/GB")[3], "1.1");
    let caution = text.lines().nth(2).expect("a caution");
    assert!(caution.starts_with("Caution: Pumice is priced with codec \"lz4\""), "{caution}");
    // The source of a replaced value is not shown.
    assert!(!text.contains("MinIO Warp data"), "{text}");
    let document = json(&["--preset", "four-ways", "--from-scan", &scan]);
    let input = &document["columns"][3]["inputs"]["workload.ratio"];
    assert_eq!((input["value"].as_f64(), input["measured"].as_bool()), (Some(1.75), Some(true)));
    assert_eq!(document["columns"][3]["inputs"]["workload.years"]["measured"], false);
    assert_eq!(document["measured"].as_array().map(Vec::len), Some(4));
    assert_eq!(document["columns"][3]["codec"], "lz4");
    assert_eq!(document["cautions"].as_array().map(Vec::len), Some(1));
    let csv = tco(&["--preset", "four-ways", "--from-scan", &scan, "--csv"]);
    assert!(csv.lines().nth(1).expect("a caution").starts_with("Caution,,"), "{csv}");
    let path = folder.path().join("report.html").display().to_string();
    tco(&["--preset", "four-ways", "--from-scan", &scan, "--html", &path]);
    assert!(fs::read_to_string(&path)?.contains("Pumice is priced with codec"));
    // Cloud columns that do not compress are unchanged.
    let document = json(&["--preset", "cloud-volumes", "--from-scan", &scan]);
    assert_eq!(document["columns"][0]["inputs"]["workload.ratio"]["value"], 1.0);
    assert_eq!(document["columns"][1]["inputs"]["workload.ratio"]["value"], 1.75);
    Ok(())
}

#[test]
fn a_bench_comes_after_a_scan() -> Outcome {
    let folder = tempfile::tempdir()?;
    let scan = write(folder.path(), "scan.json", SCAN);
    let bench = write(
        folder.path(),
        "bench.json",
        r#"{"date": "2026-11-21", "command": "bench", "targets": [
            {"name": "Pumice", "mb_per_s": 900, "ratio": 2.5, "cpu_seconds_per_gb": 0.5},
            {"name": "Ceph zstd", "mb_per_s": 600}]}"#,
    );
    let document = json(&["--preset", "four-ways", "--from-scan", &scan, "--from-bench", &bench]);
    let value = |column: usize, field: &str| document["columns"][column]["inputs"][field]["value"].as_f64();
    assert_eq!(value(3, "workload.ratio"), Some(2.5));
    assert_eq!(value(0, "workload.ratio"), Some(1.5));
    assert_eq!(value(0, "workload.performance_multiplier"), Some(1.5));
    assert_eq!(value(3, "cpu.seconds_per_gb"), Some(0.5));
    let ratios = document["measured"].as_array().expect("an array").iter();
    let of_pumice: Vec<_> =
        ratios.filter(|m| m["column"] == "Pumice" && m["field"] == "workload.ratio").collect();
    assert_eq!(of_pumice.len(), 1, "listed twice: {of_pumice:?}");
    assert_eq!(of_pumice[0]["value"], 2.5);
    // A value set by the user takes precedence and is not marked as measured.
    let set = ["--preset", "four-ways", "--from-scan", &scan, "--from-bench", &bench, "--set", "ratio=3"];
    let document = json(&set);
    assert_eq!(document["columns"][3]["inputs"]["workload.ratio"]["value"], 3.0);
    assert_eq!(document["columns"][3]["inputs"]["workload.ratio"]["from"], "set");
    let measured = document["measured"].as_array().expect("an array");
    assert!(!measured.is_empty() && measured.iter().all(|m| m["field"] != "workload.ratio"), "{measured:?}");
    Ok(())
}

#[test]
fn settings_sweeps_and_the_tornado() {
    let text = tco(&[
        "--preset",
        "snia-2023",
        "--set",
        "workload.performance_multiplier=1",
        "--set",
        "Ceph CS SSD 15.36TB:ratio=3",
        "--sweep",
        "ratio=1.0..4.0",
        "--tornado",
    ]);
    // 9 % without the performance multiplier, as in the paper.
    assert_eq!(line(&text, "Saving of TCO per TBe")[..2], ["0%", "9%"]);
    assert_eq!(line(&text, "Compression ratio"), ["2.20:1", "2.00:1", "3.00:1"]);
    assert!(text.contains("Ceph CS SSD 15.36TB, workload.ratio: 3.00:1"), "{text}");
    assert_eq!(line(&text, "2.00:1")[1], "$389.19");
    assert_eq!(text.matches("TCO per TBe as each input moves 20 % down and up").count(), 3);
    assert!(line(&text, "workload.ratio").contains(&"########################"), "{text}");
}

#[test]
fn racks_and_gases_for_a_wanted_capacity() {
    let wanted = ["--preset", "four-ways", "--set", "wanted_tbe=1000", "--set", "carbon_kg_per_kwh=0.4"];
    let document = json(&wanted);
    for column in document["columns"].as_array().expect("an array") {
        let of = |key: &str| column["results"][key].as_f64().expect(key);
        assert_eq!(of("wanted_racks"), (1000.0 / of("effective_tbe")).ceil());
        assert!((of("wanted_tco_usd") / of("wanted_racks") / of("tco_usd") - 1.0).abs() < 1e-12);
        assert!((of("carbon_kg") / of("energy_kwh") - 0.4).abs() < 1e-12);
    }
    let text = tco(&wanted);
    assert!(text.contains("For the wanted capacity") && text.contains("kg CO2e"), "{text}");
}

/// Errors in files: exit code 1 and one line with the location and the expected value.
#[test]
fn errors_of_files_are_one_line() -> Outcome {
    let folder = tempfile::tempdir()?;
    let preset = tco(&["--preset", "snia-2023", "--print"]);
    let scenarios = [
        (
            "capacity_gb = 3840 ",
            "capactiy_gb = 3840 ",
            "drive.capactiy_gb: unknown key; expected perhaps drive.capacity_gb",
        ),
        (
            "capacity_gb = 3840 ",
            "#",
            "drive.capacity_gb: missing in column \"Ceph Baseline\"; expected a number above 0, in GB",
        ),
        (
            "utilization = 0.90",
            "utilization = 90",
            "workload.utilization: expected a fraction above 0, at most 1, found 90",
        ),
        ("ratio = 2.2 ", "ratio = 0.45 ", "workload.ratio: expected a number, 1 or more, found 0.45"),
        (
            "server_cost_usd = 11651",
            "server_cost_usd = -1",
            "rack.server_cost_usd: expected a number, 0 or more, in US$, found -1",
        ),
        (
            "years = 5",
            "years = \"five\"",
            "workload.years: expected a number above 0, in years, found the text \"five\"",
        ),
        ("servers = 6", "servers = 6.5", "rack.servers: expected a whole number, 0 or more, found 6.5"),
        ("pue = 1", "pue = nan", "energy.pue: expected a number, 1 or more, found NaN"),
        ("baseline = \"Ceph Baseline\"", "baseline = \"Ceph\"", "baseline: expected the name of a column"),
        ("[common.rack]", "[common.rack", "not TOML"),
        ("[common.rack]", "[common.shelf]", "common.shelf: unknown key"),
        (
            "name = \"Ceph CS SSD 3.84TB\"",
            "name = \"Ceph Baseline\"",
            "column.name: expected a name of its own",
        ),
    ];
    for (from, to, expected) in scenarios {
        assert!(preset.contains(from), "{from}");
        let changed = preset.replacen(from, to, 1);
        let at = preset.find(from).expect("it is there");
        let file = write(folder.path(), "bad.toml", &changed);
        let run = run(&[&file]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (Some(1), "", 1), "{run:?}");
        assert!(run.stderr.starts_with(&format!("pumice: {file}:")), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
        // The line is that of the error. For a missing field it is that of its column.
        if to != "#" {
            let line = 1 + preset[..at].matches('\n').count();
            assert!(run.stderr.contains(&format!("bad.toml:{line}: ")), "line {line}: {run:?}");
        }
    }
    let latin = folder.path().join("latin.toml");
    fs::write(&latin, b"# one\ntitle = \"\xe9\"\n")?;
    let missing = folder.path().join("missing.toml").display().to_string();
    let no_scan = write(folder.path(), "no-scan.json", "{}");
    let others = [
        (vec![latin.display().to_string()], "latin.toml:2: expected UTF-8 text"),
        (vec![missing.clone()], "cannot read"),
        (vec![folder.path().display().to_string()], "cannot read"),
        (vec!["--preset".into(), "four-ways".into(), "--from-scan".into(), missing], "cannot read"),
        (
            vec!["--preset".into(), "four-ways".into(), "--from-scan".into(), no_scan.clone()],
            "layouts[layout=sectors,unit_bytes=65536,codec=zstd:3].ratio: expected",
        ),
        (
            vec!["--preset".into(), "four-ways".into(), "--from-bench".into(), no_scan],
            "missing field `targets`",
        ),
        (
            vec!["--preset".into(), "four-ways".into(), "--set".into(), "None:ratio=2".into()],
            "no column is named \"None\"",
        ),
        (
            vec!["--preset".into(), "four-ways".into(), "--set".into(), "ratio=0.5".into()],
            "workload.ratio: expected a number, 1 or more",
        ),
        (
            vec!["--preset".into(), "four-ways".into(), "--set".into(), "stored_tb=5".into()],
            "cloud.stored_tb has no effect",
        ),
    ];
    let others = others.into_iter().chain(nonsense(folder.path()));
    for (arguments, expected) in others {
        let run = run(&arguments);
        assert_eq!(
            (run.code, run.stdout.as_str(), run.stderr.lines().count()),
            (Some(1), "", 1),
            "{arguments:?} {run:?}"
        );
        assert!(run.stderr.contains(expected), "{arguments:?} {run:?}");
    }
    Ok(())
}

/// Files whose values are allowed one by one, and whose result would be none.
fn nonsense(folder: &Path) -> Vec<(Vec<String>, &'static str)> {
    let preset = tco(&["--preset", "cloud-volumes", "--print"]);
    let cloud = |name: &str, changes: &[(&str, &str)]| {
        let text = changes.iter().fold(preset.clone(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        write(folder, name, &text)
    };
    let free = [
        ("gb_month = 0.0745", "gb_month = 0"),
        ("s_month = 0.03815", "s_month = 0"),
        ("iops_month = 0.005", "iops_month = 0"),
    ];
    let report = |name: &str, targets: &str| {
        let text = format!(r#"{{"version": 1, "suite": "quick", "complete": true, "targets": [{targets}]}}"#);
        write(folder, name, &text)
    };
    let with_bench =
        |file: String| vec!["--preset".into(), "cloud-volumes".into(), "--from-bench".into(), file];
    vec![
        (vec![cloud("free.toml", &free)], "column \"Plain volumes\" costs nothing: expected prices above 0"),
        (
            vec![cloud("tiny.toml", &[("utilization = 0.80", "utilization = 1e-300")])],
            "at least 1e-12, found 1e-300",
        ),
        (vec![cloud("huge.toml", &[("volumes = 8", "volumes = 1e300")])], "at most 1e12, found 1e300"),
        (vec![cloud("less.toml", &[("mb_per_s = 4000", "mb_per_s = -1")])], "0 or more, in MB/s, found -1"),
        (vec![write(folder, "deep.toml", &format!("title = {}", "[".repeat(10_000)))], "not TOML"),
        (with_bench(write(folder, "deep.json", &"[".repeat(10_000))), "recursion limit exceeded"),
        (with_bench(report("other.json", r#"{"name": "btrfs", "mb_per_s": 5}"#)), "no target (\"btrfs\")"),
        (
            with_bench(report("empty.json", r#"{"name": "pumice", "mb_per_s": null}, {"name": "raw"}"#)),
            "the suite \"quick\" has no figures of \"raw\", \"pumice\"",
        ),
        (with_bench(write(folder, "scan.json", SCAN)), "missing field `targets`"),
    ]
}

#[test]
fn wrong_usage_exits_2() {
    let cases: &[&[&str]] = &[
        &[],
        &["--preset", "nothing"],
        &["--preset", "snia-2023", "file.toml"],
        &["--print"],
        &["--preset", "snia-2023", "--json", "--csv"],
        &["--preset", "snia-2023", "--sweep", "ratio=4..1"],
        &["--preset", "snia-2023", "--sweep", "ratio=0.5..2"],
        &["--preset", "snia-2023", "--sweep", "colour=1..2"],
        &["--preset", "snia-2023", "--set", "ratio"],
        &["--preset", "snia-2023", "--vary", "0"],
        &["--fields", "--json"],
    ];
    for case in cases {
        let run = run(case);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{case:?} {run:?}");
    }
}

/// A preset without a multiplier: it is the model's, named as assumed, and varied.
#[test]
fn a_default_multiplier_is_an_assumption() -> Outcome {
    let text = tco(&["--preset", "cloud-volumes"]);
    let headline = text.lines().nth(1).expect("a headline");
    let named = "workload.performance_multiplier of all columns";
    assert!(
        headline.contains(named) && headline.contains("workload.ratio of Pumice on volumes"),
        "{headline}"
    );
    assert_eq!(line(&text, "Performance multiplier"), ["1", "assumed", "1", "assumed"]);
    assert_eq!(line(&text, "Saving if its multiplier is 1.25 times as high")[0], "-");
    let document = json(&["--preset", "cloud-volumes"]);
    let input = &document["columns"][1]["inputs"]["workload.performance_multiplier"];
    assert_eq!((&input["from"], &input["assumed"]), (&"default".into(), &true.into()));
    assert!(document["columns"][1]["compared"]["break_even_multiplier"].as_f64() > Some(1.0));
    // What the user sets is no assumption of the model.
    let set = tco(&["--preset", "cloud-volumes", "--set", "performance_multiplier=1"]);
    assert!(!set.lines().nth(1).expect("a headline").contains("performance_multiplier"), "{set}");
    Ok(())
}

/// Prices in the units of the providers, converted.
#[test]
fn prices_of_clouds_are_for_decimal_units() {
    let value = |preset: &str, field: &str| {
        let document = json(&["--preset", preset]);
        document["columns"][0]["inputs"][field]["value"].as_f64().expect("a number")
    };
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.001, "{found}, {expected}");
    let (gib, mib) = (1.073_741_824, 1.048_576);
    near(value("cloud-volumes", "cloud.price_usd_per_gb_month"), 0.08 / gib);
    near(value("cloud-volumes", "cloud.price_usd_per_mb_per_s_month"), 0.04 / mib);
    near(value("cloud-volumes", "cloud.included_mb_per_s"), 125.0 * mib);
    near(value("gcp-volumes", "cloud.price_usd_per_gb_month"), 0.1 / gib);
    near(value("azure-volumes", "cloud.price_usd_per_gb_month"), 0.000_11 * 730.0 / gib);
    near(value("azure-volumes", "cloud.price_usd_per_mb_per_s_month"), 0.000_055 * 730.0);
}

/// Prices that are not known are asked for, one after the other.
#[test]
fn a_scenario_without_prices_computes_nothing() -> Outcome {
    let known = ["gb_month = 0.0748", "s_month = 0.04015", "iops_month = 0.00511", "core_month = 35.04"];
    let mut text = tco(&["--preset", "azure-volumes", "--print"]);
    for price in known {
        assert!(text.contains(price), "{price}");
        let (name, _) = price.split_once(" = ").expect("a price");
        text = text.replace(price, &format!("{name} = \"FILL IN\""));
    }
    let folder = tempfile::tempdir()?;
    for _ in known {
        let run = run(&[write(folder.path(), "azure.toml", &text)]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (Some(1), "", 1), "{run:?}");
        assert!(run.stderr.contains("found the text \"FILL IN\""), "{run:?}");
        let at: usize = run.stderr.split(':').find_map(|part| part.parse().ok()).expect("a line");
        let line = text.lines().nth(at - 1).expect("in the file").to_string();
        text = text.replacen(&line, &line.replace("\"FILL IN\"", "0.05"), 1);
    }
    tco(&[write(folder.path(), "azure.toml", &text)]);
    Ok(())
}

/// A real run of `pumice bench` on a new drive and a plain file is read by a preset, by the names of its
/// targets.
#[test]
fn a_run_of_bench_replaces_assumptions() -> Outcome {
    if !needs(&["fio"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.json").display().to_string();
    let place = folder.path().display().to_string();
    // The first scene, of the headline figures, on both targets: a busy machine needs more time for it.
    let mut run = Value::Null;
    for minutes in ["0.3", "1", "5"] {
        let bench =
            ["bench", "quick", "--minutes", minutes, "--size", "64M", "--dir", &place, "--json", &file];
        let bench = pumice(&bench);
        assert_eq!(bench.code, Some(0), "{bench:?}");
        run = serde_json::from_str(&fs::read_to_string(&file)?)?;
        if run["targets"].as_array().into_iter().flatten().all(|target| !target["measured_in"].is_null()) {
            break;
        }
    }
    let target = |name: &str| {
        let mut targets = run["targets"].as_array().expect("targets").iter();
        targets.find(|target| target["name"] == name).expect(name)
    };
    let (pumice, raw) = (target("pumice"), target("raw"));
    let figure =
        |target: &Value, key: &str| target[key].as_f64().unwrap_or_else(|| panic!("{key} in {target}"));
    let document = json(&["--preset", "cloud-volumes", "--from-bench", &file]);
    let input = |column: usize, field: &str| document["columns"][column]["inputs"][field].clone();
    for (field, key) in [("workload.ratio", "ratio"), ("cpu.seconds_per_gb", "cpu_seconds_per_gb")] {
        assert!(same(&input(1, field)["value"], figure(pumice, key)), "{field}: {}", input(1, field));
        assert_eq!(input(1, field)["from"], "measured");
    }
    // Both columns are relative to the faster of them, and neither multiplier is assumed any more.
    let speeds = [figure(raw, "mb_per_s"), figure(pumice, "mb_per_s")];
    for (column, speed) in speeds.iter().enumerate() {
        let multiplier = input(column, "workload.performance_multiplier");
        assert!(same(&multiplier["value"], speeds[0].max(speeds[1]) / speed), "{multiplier}, {speeds:?}");
        assert_eq!((&multiplier["from"], &multiplier["assumed"]), (&"measured".into(), &false.into()));
    }
    let client = "client_cpu_seconds_per_gb";
    let more = (figure(pumice, client) - figure(raw, client)).max(0.0);
    let charged = input(1, "cpu.client_seconds_per_gb");
    assert!((figure(&charged, "value") - more).abs() < 1e-9, "{charged}, {more}");
    // The plain file does not compress, and pays for no CPU time.
    assert_eq!(input(0, "workload.ratio")["value"], 1.0);
    assert_eq!(document["columns"][0]["results"]["cores_busy"], 0.0);
    // Without time for its other scenes the run is not complete, which is said.
    let mut cautions = document["cautions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    assert_eq!(cautions.any(|it| it.contains("not complete")), run["complete"] == false, "{document}");
    let text = tco(&["--preset", "four-ways", "--from-bench", &file]);
    assert!(text.contains("Pumice, workload.ratio: "), "{text}");
    Ok(())
}

/// The output of every command in `docs/reference/tco.md` matches the program.
#[test]
fn the_manual_shows_what_the_program_prints() -> Outcome {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/tco.md");
    let manual = fs::read_to_string(manual)?;
    let mut shown = 0;
    for block in manual.split("```").skip(1).step_by(2) {
        let Some((command, expected)) =
            block.strip_prefix("\n$ pumice ").and_then(|rest| rest.split_once('\n'))
        else {
            continue;
        };
        let arguments: Vec<&str> = command.split_whitespace().collect();
        let run = pumice(&arguments);
        assert_eq!(run.code, Some(0), "{run:?}");
        // `...` stands for omitted lines.
        let mut rest = run.stdout.as_str();
        for part in expected.split("...\n") {
            let at = rest.find(part.trim_end_matches('\n'));
            rest = &rest
                [at.unwrap_or_else(|| panic!("{command} does not print:\n{part}\nbut:\n{}", run.stdout))..];
        }
        shown += 1;
    }
    assert!(shown >= 3, "{shown} commands in the manual");
    Ok(())
}
