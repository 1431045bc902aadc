//! Outputs of the model.

use crate::show::Show;

/// Properties of an output.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// Key in JSON and CSV, with the unit last.
    pub key: &'static str,
    /// Short text for tables.
    pub label: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Format in tables: the number of digits of the SNIA document where it has this output.
    pub show: Show,
    /// True if tables omit it if it is 0 in every column.
    pub optional: bool,
}

macro_rules! metrics {
    ($($variant:ident = $key:literal, $label:literal, $unit:literal, $show:expr, $optional:expr;)*) => {
        /// An output of the model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric {
            $(#[doc = $label] $variant,)*
        }

        impl Metric {
            /// Every output, in the order of tables.
            pub const ALL: &'static [Metric] = &[$(Metric::$variant,)*];

            /// Properties of this output.
            pub fn info(self) -> &'static MetricInfo {
                const INFO: &[MetricInfo] = &[$(MetricInfo {
                    key: $key, label: $label, unit: $unit, show: $show, optional: $optional,
                },)*];
                &INFO[self as usize]
            }
        }
    };
}

metrics! {
    DrivePrice = "drive_price_usd", "Drive price", "US$", Show::Usd(2), false;
    SizeRu = "size_ru", "Size per rack", "RU", Show::NumberInput(0), false;
    PowerRack = "power_rack_w", "Power of servers and switch", "W", Show::NumberInput(0), false;
    ReducedTo = "reduced_to", "Data reduced to", "", Show::Percent(0), false;
    CoresBusy = "cores_busy", "Cores busy", "", Show::Number(1), true;
    RawTb = "raw_tb", "Capacity", "TB", Show::Number(2), false;
    CapexStorage = "capex_storage_usd", "Drives", "US$", Show::Usd(0), false;
    CapexRack = "capex_rack_usd", "Servers, rack, switch", "US$", Show::Usd(0), false;
    CapexCpu = "capex_cpu_usd", "Cores for storage", "US$", Show::Usd(0), true;
    CapexTotal = "capex_total_usd", "CapEx", "US$", Show::Usd(0), false;
    CapexPerTb = "capex_per_tb_usd", "CapEx per TB raw", "US$/TB", Show::Usd(0), false;
    CapexPerTbe = "capex_per_tbe_usd", "CapEx per TBe", "US$/TBe", Show::Usd(2), false;
    CapexPerTbeMonth = "capex_per_tbe_month_usd", "CapEx per TBe and month", "US$", Show::Usd(2), false;
    PowerStorage = "power_storage_w", "Power of drives", "W", Show::Number(1), false;
    PowerCpu = "power_cpu_w", "Power of cores for storage", "W", Show::Number(1), true;
    PowerMax = "power_max_w", "Maximum power", "W", Show::Number(0), false;
    OpexStorage = "opex_storage_usd", "Energy of drives", "US$", Show::Usd(0), false;
    OpexRack = "opex_rack_usd", "Energy of servers and switch", "US$", Show::Usd(0), false;
    OpexCpu = "opex_cpu_usd", "Cores for storage", "US$", Show::Usd(0), true;
    OpexReplacements = "opex_replacements_usd", "Drive failures", "US$", Show::Usd(0), false;
    OpexSpace = "opex_space_usd", "Space and cooling", "US$", Show::Usd(0), false;
    OpexVolumes = "opex_volumes_usd", "Volumes", "US$", Show::Usd(0), true;
    OpexThroughput = "opex_throughput_usd", "Provisioned throughput", "US$", Show::Usd(0), true;
    OpexIops = "opex_iops_usd", "Provisioned IOPS", "US$", Show::Usd(0), true;
    OpexTotal = "opex_total_usd", "OpEx", "US$", Show::Usd(0), false;
    OpexPerTb = "opex_per_tb_usd", "OpEx per TB raw", "US$/TB", Show::Usd(2), false;
    OpexPerTbe = "opex_per_tbe_usd", "OpEx per TBe", "US$/TBe", Show::Usd(2), false;
    OpexPerTbeMonth = "opex_per_tbe_month_usd", "OpEx per TBe and month", "US$", Show::Usd(2), false;
    RawPb = "raw_pb", "Capacity", "PB", Show::Number(1), false;
    EffectivePbe = "effective_pbe", "Effective capacity", "PBe", Show::Number(1), false;
    EffectiveTbe = "effective_tbe", "Effective capacity", "TBe", Show::Number(2), false;
    Tco = "tco_usd", "TCO", "US$", Show::Usd(0), false;
    TcoPerTbe = "tco_per_tbe_usd", "TCO per TBe", "US$/TBe", Show::Usd(2), false;
    TcoPerTbeMonth = "tco_per_tbe_month_usd", "TCO per TBe and month", "US$", Show::Usd(2), false;
    PresentPerTbe = "present_value_per_tbe_usd", "TCO per TBe, present value", "US$/TBe", Show::Usd(2), true;
    EnergyKwh = "energy_kwh", "Energy", "kWh", Show::Number(0), false;
    CarbonKg = "carbon_kg", "Greenhouse gases of energy", "kg CO2e", Show::Number(0), true;
    CarbonPerTbe = "carbon_per_tbe_kg", "Greenhouse gases per TBe", "kg CO2e/TBe", Show::Number(1), true;
    WantedRacks = "wanted_racks", "Racks", "", Show::Number(0), true;
    WantedDrives = "wanted_drives", "Drives", "", Show::Number(0), true;
    WantedPowerMaxKw = "wanted_power_max_kw", "Maximum power", "kW", Show::Number(1), true;
    WantedCapex = "wanted_capex_usd", "CapEx", "US$", Show::Usd(0), true;
    WantedTco = "wanted_tco_usd", "TCO", "US$", Show::Usd(0), true;
    WantedCarbonKg = "wanted_carbon_kg", "Greenhouse gases", "kg CO2e", Show::Number(0), true;
}

/// Outputs of one column. Outputs that do not apply to its kind are absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    values: Vec<Option<f64>>,
}

impl Results {
    pub(crate) fn new() -> Results {
        Results { values: vec![None; Metric::ALL.len()] }
    }

    pub(crate) fn put(&mut self, metric: Metric, value: f64) {
        self.values[metric as usize] = Some(value);
    }

    /// Returns an output, if it applies.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values[metric as usize]
    }

    /// TCO per effective TB over the whole term in US$. All comparisons use this number.
    pub fn tco_per_tbe(&self) -> f64 {
        self.get(Metric::TcoPerTbe).unwrap_or(f64::NAN)
    }
}
