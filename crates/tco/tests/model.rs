//! Parts of the model beyond the SNIA table, compared with results computed by hand.

mod common;

use common::scenario_text;
use tco::{
    BreakEven, Field, Metric, Origin, Results, Scenario, SetError, SweepRange, compare, evaluate, sweep,
    tornado,
};

fn scenario(extra: &str) -> Scenario {
    tco::parse("my.toml", &scenario_text(extra)).expect("valid")
}

fn results(extra: &str) -> Results {
    evaluate(&scenario(extra).columns[0])
}

fn assert_near(found: Option<f64>, expected: f64) {
    let found = found.expect("it applies");
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1e-9),
        "found {found}, expected {expected}"
    );
}

#[test]
fn a_rack_by_hand() {
    let r = results("");
    // 4 servers of 10 drives of 1 TB; 80 % filled, two copies, 2:1.
    assert_near(r.get(Metric::RawTb), 40.0);
    assert_near(r.get(Metric::EffectiveTbe), 32.0);
    assert_near(r.get(Metric::CapexTotal), 40.0 * 100.0 + 4.0 * 5000.0);
    // 40 drives of 7.5 W on average and 4 servers of 300 W, 4 years, PUE 1.5, 0.2 $/kWh.
    assert_near(r.get(Metric::EnergyKwh), 1.5 * 8.760 * 4.0 * 1500.0);
    assert_near(
        r.get(Metric::OpexTotal),
        1.5 * 8.760 * 4.0 * 1500.0 * 0.2 + 40.0 * 0.01 * 4.0 * 50.0 + 4800.0,
    );
    assert_near(r.get(Metric::PowerMax), 1600.0);
    assert_eq!(r.get(Metric::WantedRacks), None);
    assert_eq!(r.get(Metric::PresentPerTbe), None);
}

#[test]
fn jbods_rack_and_switch_count() {
    let r = results(
        "[column.rack]\njbods = 2\ndrives_per_jbod = 30\njbod_cost_usd = 1000\njbod_power_w = 50\njbod_ru = \
         4\nserver_ru = 2
        switch_cost_usd = 700\nswitch_power_w = 80\nswitch_ru = 1\nrack_cost_usd = 300\nutility_servers = 1",
    );
    assert_near(r.get(Metric::RawTb), 100.0);
    assert_near(r.get(Metric::CapexRack), 5.0 * 5000.0 + 2.0 * 1000.0 + 700.0 + 300.0);
    assert_near(r.get(Metric::PowerRack), 5.0 * 300.0 + 2.0 * 50.0 + 80.0);
    assert_near(r.get(Metric::SizeRu), 5.0 * 2.0 + 2.0 * 4.0 + 1.0);
}

#[test]
fn cores_that_compress_cost_money_and_power() {
    let share = "[column.cpu]\ncores = 32\nshare = 0.25\nprice_usd_per_core = 100\npower_w_per_core = 5";
    let r = results(share);
    // 8 of 32 cores in each of 4 servers.
    assert_near(r.get(Metric::CapexCpu), 8.0 * 4.0 * 100.0);
    assert_near(r.get(Metric::PowerCpu), 8.0 * 4.0 * 5.0);
    assert_near(r.get(Metric::OpexCpu), 0.160 * 8760.0 * 4.0 * 1.5 * 0.2);
    assert_near(r.get(Metric::CapexTotal), 24_000.0 + 3200.0);
    assert_near(r.get(Metric::PowerMax), 1600.0 + 160.0);
    // The same load as CPU time: 0.8 s/GB at 10 GB/s keeps 8 cores busy.
    let seconds =
        "[column.cpu]\nseconds_per_gb = 0.8\ngb_per_s = 10\nprice_usd_per_core = 100\npower_w_per_core = 5";
    assert_near(results(seconds).get(Metric::Tco), r.get(Metric::Tco).expect("TCO"));
}

/// A multiplier of M stands for M times the servers under the same load: M times the cores of a share that
/// each server has, and as many cores as before for time that each GB takes.
#[test]
fn a_multiplier_multiplies_servers_and_not_the_load() {
    let cpu = |multiplier: f64, cpu: &str| {
        results(&format!(
            "performance_multiplier = {multiplier}\n[column.cpu]\nprice_usd_per_core = 100\npower_w_per_core = 5\n{cpu}"
        ))
    };
    let for_each_tbe =
        |r: &Results, metric| r.get(metric).expect("it applies") / r.get(Metric::EffectiveTbe).expect("TBe");
    let seconds = "seconds_per_gb = 0.7\nclient_seconds_per_gb = 0.1\ngb_per_s = 10";
    let share = "cores = 32\nshare = 0.25";
    for (what, times) in [(seconds, 1.0), (share, 1.5)] {
        let (one, more) = (cpu(1.0, what), cpu(1.5, what));
        assert_near(one.get(Metric::CoresBusy), 8.0);
        assert_near(more.get(Metric::CoresBusy), 8.0 * times / 1.5);
        for metric in [Metric::CapexCpu, Metric::OpexCpu, Metric::PowerCpu] {
            assert_near(Some(for_each_tbe(&more, metric)), times * for_each_tbe(&one, metric));
        }
        for metric in [Metric::CapexStorage, Metric::CapexRack, Metric::OpexSpace] {
            assert_near(Some(for_each_tbe(&more, metric)), 1.5 * for_each_tbe(&one, metric));
        }
    }
    // In a cloud there are more GB of volumes, and the same cores.
    let of = |multiplier: f64| {
        let cloud =
            CLOUD.replace("ratio = 2\n", &format!("ratio = 2\nperformance_multiplier = {multiplier}\n"));
        let cpu = "[column.cpu]\nseconds_per_gb = 0.5\ngb_per_s = 4\nrent_usd_per_core_month = 30";
        evaluate(&scenario(&format!("{cloud}{cpu}")).columns[1])
    };
    assert_near(of(1.5).get(Metric::OpexVolumes), 1.5 * of(1.0).get(Metric::OpexVolumes).expect("volumes"));
    assert_near(of(1.5).get(Metric::OpexCpu), 2.0 * 30.0 * 48.0);
    assert_near(of(1.5).get(Metric::CoresBusy), 2.0);
}

#[test]
fn later_payments_weigh_less() {
    let r = results("discount_rate = 0.1");
    let (capex, opex) = (r.get(Metric::CapexTotal).expect("CapEx"), r.get(Metric::OpexTotal).expect("OpEx"));
    let monthly = 1.1_f64.powf(1.0 / 12.0) - 1.0;
    let present: f64 = (1..=48).map(|month| opex / 48.0 / (1.0 + monthly).powi(month)).sum();
    assert_near(r.get(Metric::PresentPerTbe), (capex + present) / 32.0);
    // The TCO itself is not discounted, as in the SNIA model.
    assert_eq!(r.get(Metric::TcoPerTbe), results("").get(Metric::TcoPerTbe));
}

#[test]
fn racks_for_a_wanted_capacity() {
    let r = results("wanted_tbe = 96");
    assert_near(r.get(Metric::WantedRacks), 3.0);
    let r = results("wanted_tbe = 96.1");
    assert_near(r.get(Metric::WantedRacks), 4.0);
    assert_near(r.get(Metric::WantedDrives), 160.0);
    assert_near(r.get(Metric::WantedPowerMaxKw), 6.4);
    assert_near(r.get(Metric::WantedTco), 4.0 * r.get(Metric::Tco).expect("TCO"));
    // Better compression needs fewer racks.
    let r = evaluate(&scenario("wanted_tbe = 96").columns[0].with(Field::Ratio, 6.0));
    assert_near(r.get(Metric::WantedRacks), 1.0);
}

#[test]
fn greenhouse_gases() {
    let r = results("[column.energy]\ncarbon_kg_per_kwh = 0.4");
    assert_near(r.get(Metric::CarbonKg), 1.5 * 8.760 * 4.0 * 1500.0 * 0.4);
    assert_near(r.get(Metric::CarbonPerTbe), 1.5 * 8.760 * 4.0 * 1500.0 * 0.4 / 32.0);
}

/// A cloud column beside the rack column.
const CLOUD: &str = "[[column]]
name = \"cloud\"
kind = \"cloud\"
[column.workload]
ratio = 2
replication = 1
[column.cloud]
stored_tb = 100
price_usd_per_gb_month = 0.08
volumes = 4
mb_per_s = 4000
price_usd_per_mb_per_s_month = 0.04
included_mb_per_s = 125
iops = 50000
price_usd_per_iops_month = 0.005
included_iops = 3000
";

#[test]
fn cloud_volumes_save_by_ratio_and_throughput() {
    let s = scenario(CLOUD);
    let r = evaluate(&s.columns[1]);
    // 100 TB of data take 62.5 TB of volumes that are 80 % full. 4000 MB/s become 2000 MB/s, of which 500
    // MB/s are included.
    assert_near(r.get(Metric::RawTb), 62.5);
    assert_near(r.get(Metric::OpexVolumes), 62_500.0 * 0.08 * 48.0);
    assert_near(r.get(Metric::OpexThroughput), 1500.0 * 0.04 * 48.0);
    assert_near(r.get(Metric::OpexIops), 38_000.0 * 0.005 * 48.0);
    assert_near(r.get(Metric::CapexTotal), 0.0);
    assert_near(r.get(Metric::TcoPerTbe), (5000.0 + 60.0 + 190.0) * 48.0 / 100.0);
    assert_eq!(r.get(Metric::PowerMax), None);
    // Without compression: twice the volumes, and 3500 MB/s above the included throughput.
    let plain = evaluate(&s.columns[1].with(Field::Ratio, 1.0));
    assert_near(plain.get(Metric::OpexVolumes), 125_000.0 * 0.08 * 48.0);
    assert_near(plain.get(Metric::OpexThroughput), 3500.0 * 0.04 * 48.0);
    // Explicit values for measured traffic, I/O merging and a rented core.
    let said = format!(
        "{CLOUD}traffic = 0.75\nio_per_io = 0.5\n[column.cpu]\nseconds_per_gb = 0.5\ngb_per_s = \
         4\nrent_usd_per_core_month = 30"
    );
    let said = evaluate(&scenario(&said).columns[1]);
    assert_near(said.get(Metric::OpexThroughput), 2500.0 * 0.04 * 48.0);
    assert_near(said.get(Metric::OpexIops), 13_000.0 * 0.005 * 48.0);
    assert_near(said.get(Metric::OpexCpu), 2.0 * 30.0 * 48.0);
    // Included throughput that is not used reduces no cost.
    let idle = evaluate(&s.columns[1].with(Field::CloudMbPerS, 100.0));
    assert_near(idle.get(Metric::OpexThroughput), 0.0);
}

#[test]
fn break_even_ratios() {
    let s = scenario(CLOUD);
    // A rack's cost per TBe is in inverse proportion to its ratio: twice the price, twice the ratio.
    let mut dearer = scenario(
        "[[column]]\nname = \"dear\"\n[column.workload]\nratio = 2\n[column.rack]\nserver_cost_usd = 17000\n",
    );
    let BreakEven::At(ratio) = compare(&dearer)[1].break_even else { panic!("{:?}", compare(&dearer)) };
    let tco = |at: usize| evaluate(&dearer.columns[at]).get(Metric::TcoPerTbe).expect("TCO");
    assert!((ratio - 2.0 * tco(1) / tco(0)).abs() < 1e-6, "{ratio}");
    // At that ratio both cost the same.
    dearer.set(Some("dear"), Field::Ratio, ratio).expect("allowed");
    assert!(compare(&dearer)[1].saving.abs() < 1e-9);
    // The baseline has no break-even, nor has a column that does not compress.
    assert_eq!(compare(&s)[0].break_even, BreakEven::None);
    let plain = scenario("[[column]]\nname = \"plain\"\ncompresses = false\n");
    assert_eq!(compare(&plain)[1].break_even, BreakEven::None);
    let cheap = scenario(
        "[[column]]\nname = \"cheap\"\n[column.workload]\nratio = 2\n[column.rack]\nserver_cost_usd = \
         0\nserver_power_w = 0\n[column.drive]\nprice_usd_per_gb = 0\n",
    );
    assert_eq!(compare(&cheap)[1].break_even, BreakEven::Always);
    // The cost of IOPS alone can exceed that of the whole rack, and no ratio reduces it.
    let never = scenario(&CLOUD.replace("iops = 50000", "iops = 900000000"));
    assert_eq!(compare(&never)[1].break_even, BreakEven::Never);
}

#[test]
fn columns_at_one_ratio() {
    let mut text = scenario_text(
        "[[column]]\nname = \"two\"\n[column.workload]\nratio = 4\n[[column]]\nname = \"plain\"\ncompresses = false\n",
    );
    text.insert_str(0, "equal_ratio = 3\n");
    let s = tco::parse("f", &text).expect("valid");
    let at: Vec<f64> = compare(&s).iter().map(|c| c.at_equal_ratio.expect("given")).collect();
    assert_eq!(at[0], at[1]);
    assert_eq!(at[0], evaluate(&s.columns[0].with(Field::Ratio, 3.0)).tco_per_tbe());
    // A column that does not compress stays at ratio 1.
    assert_eq!(at[2], evaluate(&s.columns[2]).tco_per_tbe());
}

#[test]
fn sweeps() {
    let s = scenario("[[column]]\nname = \"plain\"\ncompresses = false\n");
    let range: SweepRange = "ratio=1.0..4.0".parse().expect("a sweep");
    let swept = sweep(&s, &range);
    assert_eq!(swept.values.len(), 13);
    assert_eq!((swept.values[0], swept.values[1], swept.values[12]), (1.0, 1.25, 4.0));
    let lines = &swept.tco_per_tbe;
    assert!((lines[0][0] / lines[0][12] - 4.0).abs() < 1e-12);
    assert!(lines[1].iter().all(|tco| *tco == lines[1][0]));
    // Whole numbers stay whole and are not repeated.
    let servers: SweepRange = "rack.servers=1..3:9".parse().expect("a sweep");
    assert_eq!(servers.values(), [1.0, 2.0, 3.0]);
    for bad in [
        "ratio",
        "ratio=1",
        "ratio=1..",
        "ratio=4..1",
        "ratio=2..2",
        "ratio=0.5..2",
        "nothing=1..2",
        "ratio=1..2:1",
        "ratio=1..2:x",
        "ratio=1..nan",
        "ratio=1..1e99",
        "utilization=0.5..1.5",
        "ratio=1..2:100000",
    ] {
        assert!(bad.parse::<SweepRange>().is_err(), "{bad}");
    }
}

#[test]
fn the_tornado_finds_what_matters() {
    let s = scenario("");
    let all = tornado(&s.columns[0], 0.2);
    assert!(all.is_sorted_by(|a, b| a.swing() >= b.swing()));
    let of = |field| all.iter().find(|i| i.field == field).copied();
    let ratio = of(Field::Ratio).expect("it matters");
    assert_eq!((ratio.low, ratio.high), (1.6, 2.4));
    let tco = evaluate(&s.columns[0]).tco_per_tbe();
    assert!(
        (ratio.tco_at_low / tco - 2.0 / 1.6).abs() < 1e-12
            && (ratio.tco_at_high / tco - 2.0 / 2.4).abs() < 1e-12
    );
    // Utilization and replication have as much influence as the ratio. The ends of the range stay within the
    // limit.
    assert_eq!(of(Field::Utilization).expect("it matters").high, 0.96);
    let counts = of(Field::DrivesPerServer).expect("it matters");
    assert_eq!((counts.low, counts.high), (8.0, 12.0));
    let servers = of(Field::Servers).expect("it matters");
    assert_eq!((servers.low, servers.high), (3.0, 5.0));
    // Inputs that are 0 or change nothing are not listed.
    assert!(
        of(Field::JbodCostUsd).is_none()
            && of(Field::ServerRu).is_none()
            && of(Field::DiscountRate).is_none()
    );
    let ratio_one = tornado(&s.columns[0].with(Field::Ratio, 1.0), 0.2);
    assert_eq!(ratio_one.iter().find(|i| i.field == Field::Ratio).map(|i| (i.low, i.high)), Some((1.0, 1.2)));
}

#[test]
fn values_from_the_command_line() {
    let mut s = scenario(CLOUD);
    s.set(None, Field::Ratio, 3.0).expect("allowed");
    assert!(
        s.columns
            .iter()
            .all(|c| c.get(Field::Ratio) == 3.0 && c.input(Field::Ratio).expect("set").origin == Origin::Set)
    );
    s.set(Some("one"), Field::Servers, 8.0).expect("allowed");
    assert_eq!(s.columns[0].get(Field::Servers), 8.0);
    assert!(matches!(s.set(Some("two"), Field::Ratio, 3.0), Err(SetError::Column { .. })));
    assert!(matches!(s.set(None, Field::Ratio, 0.5), Err(SetError::Value { .. })));
    assert!(matches!(s.set(Some("cloud"), Field::Servers, 3.0), Err(SetError::Useless { .. })));
    let before = s.clone();
    assert!(matches!(s.set(None, Field::Servers, 0.0), Err(SetError::Value { .. })));
    assert_eq!(s, before, "a refused value is not kept");
}

#[test]
fn presets_are_valid_and_their_sources_are_read() {
    for preset in tco::PRESETS {
        let s = tco::parse(preset.name, preset.text).expect(preset.name);
        assert!(s.columns.iter().all(|c| evaluate(c).tco_per_tbe() > 0.0), "{}", preset.name);
        assert!(s.columns.iter().all(|c| c.note.is_some() && !c.sources.is_empty()), "{}", preset.name);
    }
    let four = tco::preset("four-ways").expect("it exists");
    assert_eq!(tco::parse(four.name, four.text).expect("valid").columns.len(), 4);
}

/// The field list in the manual matches this crate.
#[test]
fn the_manual_lists_every_field() {
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/tco.md");
    let manual = std::fs::read_to_string(manual).expect("docs/reference/tco.md");
    assert!(
        manual.contains(&tco::fields_markdown()),
        "docs/reference/tco.md should hold:\n{}",
        tco::fields_markdown()
    );
}
