//! The table of "TCO in Computational Storage - Compression" (SNIA, August 2023): every number, to the digits
//! printed there.

use tco::{Field, Metric, Scenario, compare, evaluate};

fn snia() -> Scenario {
    let preset = tco::preset("snia-2023").expect("the preset exists");
    tco::parse(preset.name, preset.text).expect("the preset is valid")
}

/// Returns an input of every column, as tables print it.
fn inputs(field: Field) -> Vec<String> {
    snia().columns.iter().map(|column| field.info().show.text(column.get(field))).collect()
}

/// Returns an output of every column, as tables print it.
fn outputs(metric: Metric) -> Vec<String> {
    let show = metric.info().show;
    snia()
        .columns
        .iter()
        .map(|column| show.text(evaluate(column).get(metric).expect("it applies to racks")))
        .collect()
}

#[test]
fn the_columns() {
    let names: Vec<_> = snia().columns.iter().map(|column| column.name.clone()).collect();
    assert_eq!(names, ["Ceph Baseline", "Ceph CS SSD 3.84TB", "Ceph CS SSD 15.36TB"]);
}

#[test]
fn drive_attributes() {
    assert_eq!(inputs(Field::DriveCapacityGb), ["3,840", "3,840", "15,360"]);
    assert_eq!(inputs(Field::DrivePowerActiveW), ["15", "15", "15"]);
    assert_eq!(inputs(Field::DrivePowerIdleW), ["3.5", "3.5", "3.5"]);
    assert_eq!(inputs(Field::DriveAfr), ["0.44%", "0.44%", "0.44%"]);
    assert_eq!(inputs(Field::DrivePricePerGb), ["$0.070", "$0.070", "$0.070"]);
    assert_eq!(outputs(Metric::DrivePrice), ["$268.80", "$268.80", "$1,075.20"]);
}

#[test]
fn rack_and_system_attributes() {
    assert_eq!(inputs(Field::RackSpaceUsdPerMonth), ["$225", "$225", "$225"]);
    assert_eq!(inputs(Field::RackCostUsd), ["$0", "$0", "$0"]);
    assert_eq!(inputs(Field::ServerCostUsd), ["$11,651", "$8,875", "$8,875"]);
    assert_eq!(inputs(Field::JbodCostUsd), ["$0", "$0", "$0"]);
    assert_eq!(inputs(Field::SwitchCostUsd), ["$1,500", "$1,500", "$1,500"]);
    assert_eq!(inputs(Field::ServerPowerW), ["500", "400", "400"]);
    assert_eq!(inputs(Field::JbodPowerW), ["0", "0", "0"]);
    assert_eq!(inputs(Field::SwitchPowerW), ["150", "150", "150"]);
    assert_eq!(inputs(Field::ServerRu), ["1", "1", "1"]);
    assert_eq!(inputs(Field::JbodRu), ["0", "0", "0"]);
    assert_eq!(inputs(Field::SwitchRu), ["1", "1", "1"]);
    assert_eq!(inputs(Field::DrivesPerServer), ["12", "12", "12"]);
    assert_eq!(inputs(Field::DrivesPerJbod), ["0", "0", "0"]);
    assert_eq!(inputs(Field::Servers), ["6", "6", "6"]);
    assert_eq!(inputs(Field::Jbods), ["0", "0", "0"]);
    assert_eq!(inputs(Field::UtilityServers), ["2", "2", "2"]);
    assert_eq!(outputs(Metric::PowerRack), ["4,150", "3,350", "3,350"]);
    assert_eq!(outputs(Metric::SizeRu), ["9", "9", "9"]);
    assert_eq!(inputs(Field::ElectricityPerKwh), ["$0.14", "$0.14", "$0.14"]);
    assert_eq!(inputs(Field::Pue), ["1", "1", "1"]);
    assert_eq!(inputs(Field::DriveReplacementUsd), ["$100.00", "$100.00", "$100.00"]);
}

#[test]
fn workload() {
    assert_eq!(inputs(Field::Years), ["5", "5", "5"]);
    assert_eq!(inputs(Field::Replication), ["1.5", "1.5", "1.5"]);
    assert_eq!(inputs(Field::PerformanceMultiplier), ["1.32", "1", "1"]);
    assert_eq!(inputs(Field::Utilization), ["90%", "90%", "90%"]);
    assert_eq!(inputs(Field::DutyCycle), ["30%", "30%", "30%"]);
    assert_eq!(outputs(Metric::ReducedTo), ["45%", "50%", "50%"]);
}

#[test]
fn capex() {
    assert_eq!(outputs(Metric::RawTb), ["276.48", "276.48", "1,105.92"]);
    assert_eq!(outputs(Metric::CapexStorage), ["$19,354", "$19,354", "$77,414"]);
    assert_eq!(outputs(Metric::CapexRack), ["$94,708", "$72,500", "$72,500"]);
    assert_eq!(outputs(Metric::CapexTotal), ["$114,062", "$91,854", "$149,914"]);
    assert_eq!(outputs(Metric::CapexPerTb), ["$413", "$332", "$136"]);
    assert_eq!(outputs(Metric::CapexPerTbe), ["$412.55", "$276.85", "$112.96"]);
    assert_eq!(outputs(Metric::CapexPerTbeMonth), ["$6.88", "$4.61", "$1.88"]);
}

#[test]
fn opex() {
    assert_eq!(outputs(Metric::PowerStorage), ["500.4", "500.4", "500.4"]);
    assert_eq!(outputs(Metric::PowerMax), ["5,230", "4,430", "4,430"]);
    assert_eq!(outputs(Metric::OpexStorage), ["$3,068", "$3,068", "$3,068"]);
    assert_eq!(outputs(Metric::OpexRack), ["$25,448", "$20,542", "$20,542"]);
    assert_eq!(outputs(Metric::OpexReplacements), ["$158", "$158", "$158"]);
    assert_eq!(outputs(Metric::OpexSpace), ["$13,500", "$13,500", "$13,500"]);
    assert_eq!(outputs(Metric::OpexTotal), ["$42,175", "$37,269", "$37,269"]);
    assert_eq!(outputs(Metric::OpexPerTb), ["$152.54", "$134.80", "$33.70"]);
    assert_eq!(outputs(Metric::OpexPerTbe), ["$152.54", "$112.33", "$28.08"]);
    assert_eq!(outputs(Metric::OpexPerTbeMonth), ["$2.54", "$1.87", "$0.47"]);
}

#[test]
fn total_cost_of_ownership() {
    assert_eq!(outputs(Metric::TcoPerTbe), ["$565.09", "$389.19", "$141.05"]);
    assert_eq!(outputs(Metric::TcoPerTbeMonth), ["$9.42", "$6.49", "$2.35"]);
    assert_eq!(outputs(Metric::RawPb), ["0.3", "0.3", "1.1"]);
    assert_eq!(outputs(Metric::EffectivePbe), ["0.3", "0.3", "1.3"]);
}

/// Savings from the text of the document: 9 % with the cheaper server alone, 31 % with performance included,
/// and $2,776 less per server.
#[test]
fn savings() {
    let compared = compare(&snia())[1];
    assert_eq!(format!("{:.0}", compared.saving * 100.0), "31");
    assert_eq!(format!("{:.0}", compared.saving_without_performance * 100.0), "9");
    let servers: Vec<f64> = snia().columns.iter().map(|column| column.get(Field::ServerCostUsd)).collect();
    assert_eq!(servers[0] - servers[1], 2.0 * 2990.0 - 2.0 * 1602.0);
}
