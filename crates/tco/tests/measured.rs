//! Replacement of assumed ratios by those of a scan, and what counts as an assumption.

mod common;

use common::scenario_text;
use tco::{Field, Origin, Scenario, use_scan};

fn two_columns() -> Scenario {
    let more = "[[column]]\nname = \"two\"\nbench = \"other\"\ncodec = \"zstd\"\n[column.workload]\nratio = \
        4\n[column.cpu]\ngb_per_s = 2\n\
                cores = 8\nshare = 0.5\nprice_usd_per_core = 10\n[[column]]\nname = \"plain\"\ncompresses = false\n";
    tco::parse("my.toml", &scenario_text(more)).expect("valid")
}

const SCAN: &str = r#"{"paths": ["/data"], "predicted_drive": {"bytes": 1, "codec": "zstd:1", "ratio": {"estimate": 2.4, "low": 2.3, "high": 2.5}},
    "rivals": [{"name": "x", "unit": 4, "codec": "zstd:3", "ratio": {"estimate": 1.5, "low": 1.4, "high": 1.6}},
        {"name": "x.y", "unit": 64, "codec": "zstd", "ratio": {"estimate": 1.7, "low": 1.6, "high": 1.8}}]}"#;

#[test]
fn a_scan_gives_the_low_end_to_columns_that_compress() {
    let mut s = two_columns();
    let applied = use_scan(&mut s, "scan.json", SCAN).expect("valid").applied;
    assert_eq!(
        applied.iter().map(|a| (a.column.as_str(), a.before, a.value)).collect::<Vec<_>>(),
        [("one", 2.0, 2.3), ("two", 4.0, 2.3)]
    );
    assert_eq!(s.columns[2].get(Field::Ratio), 1.0);
    let input = s.columns[0].input(Field::Ratio).expect("ratio");
    let Origin::Measured(detail) = &input.origin else { panic!("{input:?}") };
    for part in ["low end of 2.300..2.500", "estimate 2.400", "scan.json", "predicted_drive.ratio"] {
        assert!(detail.contains(part), "{detail}");
    }
    // The table marks measured values only.
    let rows = tco::table(&s);
    let row =
        rows.iter().flat_map(|section| &section.rows).find(|row| row.key == "workload.ratio").expect("row");
    assert_eq!(row.texts(), ["2.30:1 measured", "2.30:1 measured", "1.00:1"]);
}

#[test]
fn a_column_may_name_its_own_place_in_the_scan() {
    let mut s = two_columns();
    for (path, ratio) in [
        ("rivals[0].ratio", 1.4),
        ("rivals[1].ratio", 1.6),
        ("rivals[unit=64].ratio", 1.6),
        ("rivals[name=x.y,unit=64].ratio", 1.6),
        ("rivals[name=x].ratio", 1.4),
    ] {
        s.columns[1].scan = Some(path.to_string());
        use_scan(&mut s, "scan.json", SCAN).expect(path);
        assert_eq!((s.columns[0].get(Field::Ratio), s.columns[1].get(Field::Ratio)), (2.3, ratio), "{path}");
    }
    for path in [
        "rivals[7].ratio",
        "rivals[name=z].ratio",
        "rivals[name=x,unit=64].ratio",
        "rivals[name].ratio",
        "rivals[].ratio",
        "rivals.ratio",
        "rivals",
        "rivals[0]",
        "predicted_drive[0].ratio",
        "",
        ".",
        "[",
        "]",
        "rivals[0",
        "paths[0].ratio",
    ] {
        s.columns[1].scan = Some(path.to_string());
        let error = use_scan(&mut s, "scan.json", SCAN).expect_err(path).to_string();
        assert!(error.starts_with(&format!("scan.json: {path}: expected {{\"estimate\"")), "{error}");
        assert!(error.contains("key `scan`"), "{error}");
    }
}

#[test]
fn ratio_and_cpu_time_are_of_one_codec() {
    let column = "[[column]]\nname = \"P\"\ncodec = \"auto\"\n[column.cpu]\ngb_per_s = 1\n\
                  [column.codecs.auto]\nratio = 2.5\nseconds_per_gb = 2\nclient_seconds_per_gb = 0.3\nsource = \"a\"\n\
                  [column.codecs.lz4]\nratio = 2.1\nseconds_per_gb = 1\nclient_seconds_per_gb = 0.2\n";
    let s = tco::parse("my.toml", &scenario_text(column)).expect("valid");
    let of = |s: &Scenario, field| s.columns[1].get(field);
    let figures = |s: &Scenario| {
        [Field::Ratio, Field::CpuSecondsPerGb, Field::CpuClientSecondsPerGb].map(|field| of(s, field))
    };
    assert_eq!(figures(&s), [2.5, 2.0, 0.3]);
    assert_eq!(s.columns[1].sources[&Field::CpuSecondsPerGb], "a");
    let scan = |codec: &str| {
        format!(
            r#"{{"predicted_drive": {{"codec": {codec}, "ratio": {{"estimate": 2, "low": 1.9, "high": 2.1}}}}}}"#
        )
    };
    let mut with_lz4 = s.clone();
    let measured = use_scan(&mut with_lz4, "scan.json", &scan("\"lz4\"")).expect("both of lz4");
    assert_eq!(figures(&with_lz4), [1.9, 1.0, 0.2]);
    // That another codec is priced is said.
    assert_eq!(
        measured.cautions,
        [
            "P is priced with codec \"lz4\", of which scan.json has the ratio, instead of \"auto\": 1.2 s/GB of CPU \
             time instead of 2.3."
        ]
    );
    let same = use_scan(&mut s.clone(), "scan.json", &scan("\"auto\"")).expect("both of auto");
    assert!(same.cautions.is_empty(), "{same:?}");
    assert!(!with_lz4.columns[1].sources.contains_key(&Field::CpuSecondsPerGb));
    for codec in ["\"zstd:3\"", "\"autos\"", "null"] {
        let error = use_scan(&mut s.clone(), "scan.json", &scan(codec)).expect_err(codec).to_string();
        assert!(error.contains("\"P\" is of \"auto\": expected both of one codec"), "{error}");
    }
    for (from, to, problem) in [
        (
            "codec = \"auto\"\n",
            "",
            "column.codec: missing; expected one of [column.codecs]: \"auto\", \"lz4\"",
        ),
        ("codec = \"auto\"", "codec = \"zstd\"", "column.codec: expected one of [column.codecs]"),
        ("ratio = 2.1\n", "", "column.codecs.lz4.ratio: missing"),
        ("ratio = 2.1\n", "ratios = 2.1\n", "column.codecs.lz4.ratios: unknown key; expected one of ratio, "),
        ("gb_per_s = 1\n", "gb_per_s = 1\nseconds_per_gb = 9\n", "cpu.seconds_per_gb: expected none"),
    ] {
        let text = scenario_text(&column.replacen(from, to, 1));
        let error = tco::parse("my.toml", &text).expect_err(to).to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn what_nobody_measured_is_assumed() {
    let s = tco::parse("my.toml", &scenario_text("[column.sources]\n\"drive.capacity_gb\" = \"assumed\"\n"))
        .expect("valid");
    let is = |s: &Scenario, field| s.columns[0].is_assumed(field);
    assert!(is(&s, Field::Ratio) && is(&s, Field::DriveCapacityGb));
    assert!(!is(&s, Field::Years), "quoted elsewhere");
    // A default that decides is an assumption too, and shown as one.
    assert!(is(&s, Field::PerformanceMultiplier) && !is(&s, Field::DiscountRate));
    let mut measured = s.clone();
    use_scan(&mut measured, "scan.json", SCAN).expect("valid");
    assert!(!is(&measured, Field::Ratio));
    let rows = tco::table(&s);
    let row = rows.iter().flat_map(|section| &section.rows).find(|row| row.key == "workload.ratio");
    assert_eq!(row.expect("row").texts(), ["2.00:1 assumed"]);
    let row = rows.iter().flat_map(|section| &section.rows).find(|row| row.label == "Performance multiplier");
    assert_eq!(row.expect("a row of a default").texts(), ["1 assumed"]);
}

#[test]
fn cpu_time_without_a_source_is_assumed() {
    let cpu = [
        Field::CpuCores,
        Field::CpuShare,
        Field::CpuSecondsPerGb,
        Field::CpuClientSecondsPerGb,
        Field::CpuGbPerS,
    ];
    let text = "[column.cpu]\ncores = 8\nshare = 0.5\nseconds_per_gb = 1\nclient_seconds_per_gb = 0.2\ngb_per_s = 3\n";
    let s = tco::parse("my.toml", &scenario_text(text)).expect("valid");
    for field in cpu {
        assert!(s.columns[0].is_assumed(field), "{field:?}");
    }
    // That cores cost nothing is the model's default.
    let of_cores = [Field::CpuPricePerCore, Field::CpuPowerPerCore];
    assert!(of_cores.iter().all(|field| s.columns[0].is_assumed(*field)));
    let quoted: String = cpu.iter().map(|field| format!("{:?} = \"a paper\"\n", field.info().name)).collect();
    let prices = "price_usd_per_core = 10\npower_w_per_core = 5\n";
    let more = "\"cpu.price_usd_per_core\" = \"a list\"\n\"cpu.power_w_per_core\" = \"a list\"\n";
    let text = scenario_text(&format!("{text}{prices}[column.sources]\n{quoted}{more}"));
    let s = tco::parse("my.toml", &text).expect("valid");
    assert!(cpu.iter().chain(&of_cores).all(|field| !s.columns[0].is_assumed(*field)));
    // Without CPU time nobody needs their price.
    let none = tco::parse("my.toml", &scenario_text("")).expect("valid");
    assert!(of_cores.iter().all(|field| !none.columns[0].is_assumed(*field)));
}

#[test]
fn data_that_does_not_compress_may_cost_headers() {
    let mut s = two_columns();
    let scan =
        r#"{"predicted_drive": {"codec": "zstd:1", "ratio": {"estimate": 0.993, "low": 0.99, "high": 1.0}}}"#;
    use_scan(&mut s, "scan.json", scan).expect("valid");
    assert_eq!(s.columns[0].get(Field::Ratio), 0.99);
}

#[test]
fn scans_that_cannot_be_used() {
    let cases = [
        ("", "scan.json: not JSON"),
        ("{\"predicted_drive\"", "scan.json: not JSON"),
        ("{}", "scan.json: predicted_drive.ratio: expected"),
        ("[]", "scan.json: predicted_drive.ratio: expected"),
        (r#"{"predicted_drive": null, "data": {"bytes": 0}}"#, "scan.json: the scan found no data"),
        (r#"{"predicted_drive": {"ratio": 2.4}}"#, "predicted_drive.ratio: expected"),
        (r#"{"predicted_drive": {"ratio": [2.4, 2.3, 2.5]}}"#, "predicted_drive.ratio: expected"),
        (r#"{"predicted_drive": {"ratio": {"estimate": 2.4, "low": 2.5, "high": 2.6}}}"#, "found 2.5 <= 2.4"),
        (r#"{"predicted_drive": {"ratio": {"estimate": 2.4, "low": 0, "high": 2.6}}}"#, "0 < L"),
        (r#"{"predicted_drive": {"ratio": {"estimate": 2.4, "low": -1, "high": 2.6}}}"#, "0 < L"),
        (r#"{"predicted_drive": {"ratio": {"estimate": 2.4, "low": 1, "high": 1e300}}}"#, "0 < L"),
    ];
    for (text, part) in cases {
        let mut s = two_columns();
        let error = use_scan(&mut s, "scan.json", text).expect_err(text).to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error:?}");
    }
    let mut plain = two_columns();
    plain.columns.retain(|column| !column.compresses);
    assert!(
        use_scan(&mut plain, "scan.json", SCAN)
            .expect_err("useless")
            .to_string()
            .contains("no column compresses")
    );
}
