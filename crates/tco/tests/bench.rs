//! Replacement of assumed values by those of a run of `pumice bench`.

mod common;

use common::scenario_text;
use tco::{Field, Measured, MeasuredError, Origin, Scenario, use_bench};

/// Columns `one` without CPU time, `two` with a share of cores, and `plain`, which does not compress.
fn three_columns() -> Scenario {
    let more = "[[column]]\nname = \"two\"\nbench = \"other\"\ncodec = \"zstd\"\n[column.workload]\nratio = \
        4\n[column.cpu]\ngb_per_s = 2\n\
                cores = 8\nshare = 0.5\nprice_usd_per_core = 10\n[[column]]\nname = \"plain\"\ncompresses = false\n";
    tco::parse("my.toml", &scenario_text(more)).expect("valid")
}

/// One column that pays for CPU time, beside `one`.
fn with_codec() -> Scenario {
    let column = "[[column]]\nname = \"P\"\nbench = [\"drive\", \"pumice\"]\ncodec = \"auto\"\n[column.cpu]\ngb_per_s \
        = 1\n\
                  [column.codecs.auto]\nratio = 2.5\nseconds_per_gb = 2\nclient_seconds_per_gb = 0.3\nsource = \"a\"\n\
                  [[column]]\nname = \"plain\"\nbench = \"raw\"\ncompresses = false\n";
    tco::parse("my.toml", &scenario_text(column)).expect("valid")
}

fn bench(scenario: &mut Scenario, targets: &str) -> Result<Measured, MeasuredError> {
    use_bench(scenario, "bench.json", &format!(r#"{{"targets": [{targets}]}}"#))
}

const BENCH: &str = r#"{"date": "2026-11-21", "command": "pumice bench write", "more": 1, "targets": [
    {"name": "one", "mb_per_s": 400, "ratio": 2.1},
    {"name": "other", "mb_per_s": 500, "ratio": 3.5, "cpu_seconds_per_gb": 0.75, "more": true},
    {"name": "plain", "mb_per_s": 1000, "ratio": 1},
    {"name": "stranger", "mb_per_s": 9000}]}"#;

#[test]
fn a_bench_gives_throughput_ratio_and_cpu_time() {
    let mut s = three_columns();
    let measured = use_bench(&mut s, "bench.json", BENCH).expect("valid");
    let of = |at: usize, field| s.columns[at].get(field);
    // Performance is relative to the fastest column of the scenario. Targets without a column are ignored.
    assert_eq!((of(0, Field::PerformanceMultiplier), of(1, Field::PerformanceMultiplier)), (2.5, 2.0));
    assert_eq!(of(2, Field::PerformanceMultiplier), 1.0);
    assert_eq!((of(0, Field::Ratio), of(1, Field::Ratio), of(2, Field::Ratio)), (2.1, 3.5, 1.0));
    // Measured CPU time replaces the assumed CPU share.
    assert_eq!((of(1, Field::CpuSecondsPerGb), of(1, Field::CpuShare)), (0.75, 0.0));
    assert!(
        measured.applied.iter().all(|a| a.detail.contains("bench.json, 2026-11-21, pumice bench write")),
        "{measured:?}"
    );
    assert!(matches!(s.columns[1].input(Field::CpuSecondsPerGb).expect("set").origin, Origin::Measured(_)));
    // The run does not say of which codec they are.
    assert_eq!(s.columns[1].codec, None);
    assert!(measured.cautions.is_empty(), "nothing is wrong with it: {:?}", measured.cautions);
}

#[test]
fn a_column_has_several_names() {
    for name in ["P", "drive", "pumice"] {
        let mut s = with_codec();
        let target = format!(r#"{{"name": "{name}", "ratio": 3, "cpu_seconds_per_gb": 4}}"#);
        bench(&mut s, &target).expect(name);
        assert_eq!(s.columns[1].get(Field::Ratio), 3.0, "{name}");
    }
    // Its own name before those of its key.
    let mut s = with_codec();
    let two = r#"{"name": "pumice", "ratio": 3, "cpu_seconds_per_gb": 4}, {"name": "P", "ratio": 5, "cpu_seconds_per_gb": 6}"#;
    bench(&mut s, two).expect("valid");
    assert_eq!(s.columns[1].get(Field::Ratio), 5.0);
    for wrong in ["[1]", "1", "[\"\"]", "{}"] {
        let text = format!("[[column]]\nname = \"P\"\nbench = {wrong}\n[column.workload]\nratio = 2\n");
        let error = tco::parse("my.toml", &scenario_text(&text)).expect_err(wrong).to_string();
        assert!(error.contains("column.bench: expected a text, found"), "{error}");
    }
}

#[test]
fn ratio_and_cpu_time_come_together_or_not_at_all() {
    for half in [r#""ratio": 2"#, r#""cpu_seconds_per_gb": 2"#] {
        let half = format!(r#"{{"name": "P", {half}}}"#);
        let error = bench(&mut with_codec(), &half).expect_err(&half).to_string();
        assert!(error.contains("both of one codec"), "{error}");
        // Beside throughputs, what is of use is used, and what is not is said.
        let mut s = with_codec();
        let speeds = r#", "mb_per_s": 200}, {"name": "raw", "mb_per_s": 400}"#;
        let measured = bench(&mut s, &half.replace('}', speeds)).expect("throughputs");
        let of = |field| s.columns[1].get(field);
        assert_eq!(
            (of(Field::Ratio), of(Field::CpuSecondsPerGb), of(Field::PerformanceMultiplier)),
            (2.5, 2.0, 2.0)
        );
        assert!(measured.cautions.iter().any(|it| it.contains("Neither is used.")), "{measured:?}");
    }
}

#[test]
fn the_client_is_charged_for_what_a_plain_disk_does_not_take() {
    let pumice =
        r#"{"name": "pumice", "ratio": 3, "cpu_seconds_per_gb": 4, "client_cpu_seconds_per_gb": 0.5}"#;
    let client = |targets: &str| {
        let mut s = with_codec();
        let measured = bench(&mut s, targets).expect(targets);
        (
            s.columns.iter().map(|column| column.get(Field::CpuClientSecondsPerGb)).collect::<Vec<_>>(),
            measured,
        )
    };
    // Of 0.5 s/GB the plain file takes 0.375, most of it to make the data.
    let (found, measured) =
        client(&format!(r#"{pumice}, {{"name": "raw", "client_cpu_seconds_per_gb": 0.375}}"#));
    assert_eq!(found, [0.0, 0.125, 0.0]);
    let detail = measured.applied.iter().find(|it| it.field == Field::CpuClientSecondsPerGb).expect("said");
    assert!(detail.detail.starts_with("0.5 s/GB less 0.375 of \"raw\""), "{detail:?}");
    // The other way round nobody gets money back.
    assert_eq!(
        client(&format!(r#"{pumice}, {{"name": "raw", "client_cpu_seconds_per_gb": 0.75}}"#)).0,
        [0.0, 0.0, 0.0]
    );
    // A target without a column is as good, if it does not compress.
    let other = r#"{"name": "file", "ratio": 1, "client_cpu_seconds_per_gb": 0.25}"#;
    assert_eq!(client(&format!("{pumice}, {other}")).0, [0.0, 0.25, 0.0]);
    // Alone, nobody knows what it takes to make the data.
    let (found, measured) = client(pumice);
    assert_eq!(found, [0.0, 0.3, 0.0]);
    assert!(
        measured.cautions.iter().any(|it| it.contains("client's CPU time of \"pumice\"")),
        "{measured:?}"
    );
    // A column that does not compress pays, too, if its client takes more than that of the plain file.
    let twice = "[[column]]\nname = \"far\"\ncompresses = false\n[column.cpu]\ngb_per_s = 1\n";
    let mut s = tco::parse(
        "my.toml",
        &scenario_text(&format!("[[column]]\nname = \"near\"\ncompresses = false\n{twice}")),
    )
    .expect("valid");
    let targets = r#"{"name": "near", "mb_per_s": 9, "client_cpu_seconds_per_gb": 0.25}, {"name": "far", "mb_per_s": 9, "client_cpu_seconds_per_gb": 0.5}"#;
    bench(&mut s, targets).expect("valid");
    assert_eq!(s.columns[2].get(Field::CpuClientSecondsPerGb), 0.25);
}

/// A report of `pumice bench` with these keys before its targets.
fn report(keys: &str) -> String {
    let measured_in = r#""measured_in": "60 %: write, 128K sequential write, depth 128""#;
    format!(
        r#"{{"version": 1, "suite": "quick", {keys}, "targets": [
            {{"name": "one", "mb_per_s": 400, {measured_in}}}, {{"name": "plain", "mb_per_s": 500, {measured_in}}}]}}"#
    )
}

#[test]
fn runs_that_may_not_hold_say_so() {
    let cautions = |keys: &str| {
        let mut s = three_columns();
        use_bench(&mut s, "bench.json", &report(keys)).expect(keys).cautions
    };
    let quiet = cautions(r#""complete": true, "others_cpu_share": 0.15"#);
    // Column `two` was not measured.
    assert!(quiet.len() == 1 && quiet[0].contains("has no throughput of two:"), "{quiet:?}");
    let partial = cautions(r#""complete": false, "others_cpu_share": null"#);
    assert!(partial[0].contains("is a run that is not complete") && partial.len() == 2, "{partial:?}");
    let noisy = cautions(r#""complete": true, "others_cpu_share": 0.31"#);
    assert!(noisy[0].contains("31 % of the processors were busy") && noisy.len() == 2, "{noisy:?}");
    let of_clusters = report(r#""complete": true"#).replacen("quick", "offload", 1);
    let clusters = use_bench(&mut three_columns(), "bench.json", &of_clusters).expect("a run").cautions;
    assert!(clusters.iter().any(|it| it.contains("the cluster's own work")), "{clusters:?}");
}

#[test]
fn figures_are_of_the_same_writes() {
    let good = report(r#""complete": true"#);
    let refused = |from: &str, to: &str, part: &str| {
        assert!(good.contains(from), "{from}");
        let error = use_bench(&mut three_columns(), "bench.json", &good.replacen(from, to, 1));
        let error = error.expect_err(to).to_string();
        assert!(
            error.starts_with("bench.json: ") && error.contains(part) && !error.contains('\n'),
            "{error}"
        );
    };
    refused(": write, 128K sequential write", ": read, 128K sequential read", "expected writes");
    refused("60 %: write", "0 %: write", "expected the same work");
    refused("\"version\": 1", "\"version\": 2", "version: expected 1, found 2");
    refused("\"complete\": true", "\"others_cpu_share\": 1.5", "others_cpu_share: expected a fraction");
    refused("\"name\": \"plain\"", "\"name\": \"one\"", "targets.1.name: expected a name of its own");
    // A suite without such writes.
    let none = r#"{"version": 1, "suite": "expansion", "targets": [
        {"name": "one", "mb_per_s": null, "ratio": null, "cpu_seconds_per_gb": null, "measured_in": null}]}"#;
    let error = use_bench(&mut three_columns(), "bench.json", none).expect_err("no figures").to_string();
    assert!(
        error.contains(
            "the suite \"expansion\" has no figures of \"one\": expected writes of compressible data"
        ),
        "{error}"
    );
}

#[test]
fn benches_that_cannot_be_used() {
    let cases = [
        ("", "bench.json: EOF"),
        ("{}", "missing field `targets`"),
        ("[1, \"quick\", null, null, true, 0, []]", "expected what `pumice bench --json` writes"),
        (r#"{"targets": [{"mb_per_s": 1}]}"#, "missing field `name`"),
        (r#"{"targets": [{"name": "one", "mb_per_s": "fast"}]}"#, "invalid type"),
        (r#"{"targets": [{"name": "one", "mb_per_s": 0}]}"#, "targets.0.mb_per_s: expected a number above 0"),
        (
            r#"{"targets": [{"name": "one", "mb_per_s": 1e-300}]}"#,
            "targets.0.mb_per_s: expected a number above 0",
        ),
        (r#"{"targets": [{"name": "one", "ratio": -2}]}"#, "targets.0.ratio: expected a number above 0"),
        (
            r#"{"targets": [{"name": "two!", "ratio": 2}]}"#,
            "no target (\"two!\") has the name of a column (\"one\", \"two\", \"plain\")",
        ),
        (r#"{"targets": []}"#, "no target was measured"),
        (r#"{"targets": [{"name": "one", "mb_per_s": 5}]}"#, "a throughput alone"),
        (
            r#"{"targets": [{"name": "one", "ratio": 2, "cpu_seconds_per_gb": 5}]}"#,
            "needs cpu.gb_per_s above 0 in column \"one\"",
        ),
    ];
    for (text, part) in cases {
        let mut s = three_columns();
        let error = use_bench(&mut s, "bench.json", text).expect_err(text).to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error:?} has no {part:?}");
    }
    // No cut of a report is taken for one.
    let whole = report(r#""complete": true"#);
    for at in (0..whole.len()).filter(|at| whole.is_char_boundary(*at)) {
        assert!(use_bench(&mut three_columns(), "bench.json", &whole[..at]).is_err(), "{at}");
    }
}
