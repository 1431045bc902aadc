//! Inputs of the model: every field of a scenario with its unit, limit and default.
//!
//! This list is the single source for parsing, checks, sweeps, the tornado chart and the table in
//! `docs/reference/tco.md`.

use crate::show::Show;

/// The kind of storage in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Servers and drives in a rack, purchased: the SNIA model.
    Rack,
    /// Volumes of a cloud provider, rented by the month.
    Cloud,
}

impl Kind {
    /// Name of the kind in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Rack => "rack",
            Kind::Cloud => "cloud",
        }
    }
}

/// Allowed values of a field. All are finite and at most [`VALUE_MAX`]; those above 0 are at least
/// [`VALUE_MIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Above 0.
    Positive,
    /// 0 or more.
    NotNegative,
    /// From 0 to 1.
    Fraction,
    /// Above 0, at most 1.
    PositiveFraction,
    /// 1 or more.
    AtLeastOne,
    /// A whole number, 0 or more.
    Count,
}

/// The largest value of any field: large enough for the cost of a data centre in dollars, small enough that
/// no result overflows.
pub const VALUE_MAX: f64 = 1e12;

/// The smallest value of a field that must be above 0: no result of a division by it overflows.
pub const VALUE_MIN: f64 = 1e-12;

impl Limit {
    /// Returns whether a value is within the limit.
    pub fn admits(self, value: f64) -> bool {
        let inside = match self {
            Limit::Positive => value >= VALUE_MIN,
            Limit::NotNegative => value >= 0.0,
            Limit::Fraction => (0.0..=1.0).contains(&value),
            Limit::PositiveFraction => (VALUE_MIN..=1.0).contains(&value),
            Limit::AtLeastOne => value >= 1.0,
            Limit::Count => value >= 0.0 && value.fract() == 0.0,
        };
        inside && value <= VALUE_MAX
    }

    /// Returns whether values must be above 0, without a larger bound.
    pub(crate) fn excludes_zero(self) -> bool {
        matches!(self, Limit::Positive | Limit::PositiveFraction)
    }

    /// Clamps a value to the bounds of the limit.
    pub(crate) fn clamp(self, value: f64) -> f64 {
        match self {
            Limit::Positive => value.max(VALUE_MIN),
            Limit::NotNegative => value.max(0.0),
            Limit::Fraction => value.clamp(0.0, 1.0),
            Limit::PositiveFraction => value.clamp(VALUE_MIN, 1.0),
            Limit::AtLeastOne => value.max(1.0),
            Limit::Count => value.max(0.0).round(),
        }
        .min(VALUE_MAX)
    }

    /// Describes the limit in words.
    pub fn expected(self) -> &'static str {
        match self {
            Limit::Positive => "a number above 0",
            Limit::NotNegative => "a number, 0 or more",
            Limit::Fraction => "a fraction from 0 to 1",
            Limit::PositiveFraction => "a fraction above 0, at most 1",
            Limit::AtLeastOne => "a number, 1 or more",
            Limit::Count => "a whole number, 0 or more",
        }
    }
}

/// Properties of a field.
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    /// Section and key as spelled in scenarios, such as `drive.capacity_gb`.
    pub name: &'static str,
    /// Short text for tables.
    pub label: &'static str,
    /// Unit; empty if the value has none.
    pub unit: &'static str,
    /// Allowed values.
    pub limit: Limit,
    /// Value if the scenario gives none; `None` if the field has no fixed default.
    pub default: Option<f64>,
    /// The kind of column that has the field; `None` for both.
    pub kind: Option<Kind>,
    /// Format in tables.
    pub show: Show,
    /// Description in one sentence.
    pub what: &'static str,
}

/// Defines the fields once and generates the enum, the list of all fields and the table of properties.
macro_rules! fields {
    ($($variant:ident = $name:literal, $label:literal, $unit:literal, $limit:ident, $default:expr, $kind:expr,
        $show:expr, $what:literal;)*) => {
        /// An input of the model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $(#[doc = $what] $variant,)*
        }

        impl Field {
            /// Every field, in the order of tables.
            pub const ALL: &'static [Field] = &[$(Field::$variant,)*];

            /// Properties of this field.
            pub fn info(self) -> &'static FieldInfo {
                const INFO: &[FieldInfo] = &[$(FieldInfo {
                    name: $name, label: $label, unit: $unit, limit: Limit::$limit, default: $default, kind: $kind,
                    show: $show, what: $what,
                },)*];
                &INFO[self as usize]
            }
        }
    };
}

const REQUIRED: Option<f64> = None;
const ZERO: Option<f64> = Some(0.0);
const ONE: Option<f64> = Some(1.0);
const RACK: Option<Kind> = Some(Kind::Rack);
const CLOUD: Option<Kind> = Some(Kind::Cloud);
const BOTH: Option<Kind> = None;
const USD: Show = Show::UsdInput(0);
const USD_CENTS: Show = Show::UsdInput(2);
const PLAIN: Show = Show::NumberInput(0);
const PERCENT: Show = Show::PercentInput;

fields! {
    DriveCapacityGb = "drive.capacity_gb", "Capacity", "GB", Positive, REQUIRED, RACK, PLAIN,
        "Capacity of one drive before compression, in GB of 10^9 bytes";
    DrivePowerActiveW = "drive.power_active_w", "Power, active", "W", NotNegative, REQUIRED, RACK, PLAIN,
        "Power of one active drive";
    DrivePowerIdleW = "drive.power_idle_w", "Power, idle", "W", NotNegative, REQUIRED, RACK, PLAIN,
        "Power of one idle drive";
    DriveAfr = "drive.afr", "AFR", "per year", Fraction, REQUIRED, RACK, Show::PercentInput,
        "Annual failure rate: the share of drives that fail within a year";
    DrivePricePerGb = "drive.price_usd_per_gb", "Price per \
        GB", "US$/GB", NotNegative, REQUIRED, RACK, Show::UsdInput(3),
        "Price of a drive per GB of its capacity";
    DriveReplacementUsd = "drive.replacement_usd", "Replacement cost", "US$", NotNegative, REQUIRED, RACK, USD_CENTS,
        "Cost of replacing one failed drive: work and handling, with the drive itself under warranty";
    RackSpaceUsdPerMonth = "rack.space_usd_per_month", "Space and \
        cooling", "US$/month", NotNegative, REQUIRED, RACK, USD,
        "Data centre cost of one rack per month";
    RackCostUsd = "rack.rack_cost_usd", "Rack cost", "US$", NotNegative, ZERO, RACK, USD,
        "Price of the empty rack";
    ServerCostUsd = "rack.server_cost_usd", "Server cost", "US$", NotNegative, REQUIRED, RACK, USD,
        "Price of one server without its drives";
    JbodCostUsd = "rack.jbod_cost_usd", "JBOD cost", "US$", NotNegative, ZERO, RACK, USD,
        "Price of one JBOD without its drives";
    SwitchCostUsd = "rack.switch_cost_usd", "Switch cost", "US$", NotNegative, ZERO, RACK, USD,
        "Price of the switches of a rack";
    ServerPowerW = "rack.server_power_w", "Server power", "W", NotNegative, REQUIRED, RACK, PLAIN,
        "Power of one server without its drives";
    JbodPowerW = "rack.jbod_power_w", "JBOD power", "W", NotNegative, ZERO, RACK, PLAIN,
        "Power of one JBOD without its drives";
    SwitchPowerW = "rack.switch_power_w", "Switch power", "W", NotNegative, ZERO, RACK, PLAIN,
        "Power of the switches of a rack";
    ServerRu = "rack.server_ru", "Server height", "RU", NotNegative, ONE, RACK, PLAIN,
        "Height of one server in rack units";
    JbodRu = "rack.jbod_ru", "JBOD height", "RU", NotNegative, ZERO, RACK, PLAIN,
        "Height of one JBOD in rack units";
    SwitchRu = "rack.switch_ru", "Switch height", "RU", NotNegative, ZERO, RACK, PLAIN,
        "Height of the switches of a rack in rack units";
    DrivesPerServer = "rack.drives_per_server", "Drives per server", "", Count, REQUIRED, RACK, PLAIN,
        "Drives in one server";
    DrivesPerJbod = "rack.drives_per_jbod", "Drives per JBOD", "", Count, ZERO, RACK, PLAIN,
        "Drives in one JBOD";
    Servers = "rack.servers", "Servers per rack", "", Count, REQUIRED, RACK, PLAIN,
        "Servers with drives in one rack";
    Jbods = "rack.jbods", "JBODs per rack", "", Count, ZERO, RACK, PLAIN,
        "JBODs in one rack";
    UtilityServers = "rack.utility_servers", "Utility servers per rack", "", Count, ZERO, RACK, PLAIN,
        "Servers of the same price and power without drives in one rack";
    ElectricityPerKwh = "energy.electricity_usd_per_kwh", "Electricity", "US$/kWh", NotNegative, REQUIRED, RACK,
        USD_CENTS,
        "Price of electricity";
    Pue = "energy.pue", "PUE", "", AtLeastOne, REQUIRED, RACK, PLAIN,
        "Power usage effectiveness: power of the data centre over power of the machines in it";
    CarbonPerKwh = "energy.carbon_kg_per_kwh", "Carbon intensity", "kg CO2e/kWh", NotNegative, ZERO, RACK, PLAIN,
        "Greenhouse gas emissions per kWh from the grid";
    Years = "workload.years", "Deployment term", "years", Positive, REQUIRED, BOTH, PLAIN,
        "Years for which everything is kept";
    Replication = "workload.replication", "Erasure coding / replication", "", AtLeastOne, REQUIRED, BOTH, PLAIN,
        "Bytes stored for each byte of data: 3 for three copies, 1.5 for 4+2 erasure coding; 1 if the provider of a \
         volume replicates it";
    PerformanceMultiplier = "workload.performance_multiplier", "Performance \
        multiplier", "", Positive, ONE, BOTH, Show::NumberInput(0),
        "Amount of hardware needed for the speed of a column with 1: throughput of that column over this one's";
    Utilization = "workload.utilization", "Capacity utilization", "", PositiveFraction, REQUIRED, BOTH, PERCENT,
        "Share of the capacity that is filled";
    DutyCycle = "workload.duty_cycle", "Duty cycle", "", Fraction, REQUIRED, RACK, PERCENT,
        "Share of the time that drives are active";
    Ratio = "workload.ratio", "Compression ratio", ":1", AtLeastOne, REQUIRED, BOTH, Show::Ratio,
        "Logical bytes over physical bytes, headers and map counted";
    DiscountRate = "workload.discount_rate", "Discount rate", "per year", Fraction, ZERO, BOTH, PERCENT,
        "Rate at which later payments weigh less, for the present value";
    WantedTbe = "workload.wanted_tbe", "Wanted effective capacity", "TBe", NotNegative, ZERO, RACK, PLAIN,
        "Effective capacity for which racks are computed; 0: none";
    CpuCores = "cpu.cores", "Cores per server", "", NotNegative, ZERO, BOTH, PLAIN,
        "Cores of a server (of the instance, in a cloud) that `cpu.share` is a share of";
    CpuShare = "cpu.share", "Share of them compressing", "", Fraction, ZERO, BOTH, PERCENT,
        "Share of those cores that compression keeps busy while the server writes as fast as it can";
    CpuSecondsPerGb = "cpu.seconds_per_gb", "CPU time to compress", "s/GB", NotNegative, ZERO, BOTH, PLAIN,
        "CPU time of compression per GB of 10^9 bytes written; with `cpu.gb_per_s`, instead of `cpu.share`";
    CpuClientSecondsPerGb = "cpu.client_seconds_per_gb", "CPU time of the \
        client", "s/GB", NotNegative, ZERO, BOTH, PLAIN,
        "CPU time that the client's side of the storage (its driver, the protocol) takes for each GB written, beyond \
         that of a plain disk, which every column pays with its servers";
    CpuGbPerS = "cpu.gb_per_s", "Written by a server", "GB/s", NotNegative, ZERO, BOTH, PLAIN,
        "GB written in a second to the storage of each server of a column with a performance multiplier of 1, every \
         copy counted; in a cloud, to the volumes of the instance";
    CpuPricePerCore = "cpu.price_usd_per_core", "Price of a core", "US$", NotNegative, ZERO, RACK, USD_CENTS,
        "Additional cost of a server per additional core";
    CpuPowerPerCore = "cpu.power_w_per_core", "Power of a core", "W", NotNegative, ZERO, RACK, PLAIN,
        "Additional power of a server per additional core";
    CpuRentPerCore = "cpu.rent_usd_per_core_month", "Rent of a core", "US$/month", NotNegative, ZERO, CLOUD, USD_CENTS,
        "Additional cost of an instance per month and additional core";
    CloudStoredTb = "cloud.stored_tb", "Data stored", "TB", Positive, REQUIRED, CLOUD, PLAIN,
        "Data stored by applications, before compression, in TB of 10^12 bytes";
    CloudPricePerGb = "cloud.price_usd_per_gb_month", "Volume \
        price", "US$/GB-month", NotNegative, REQUIRED, CLOUD, Show::UsdInput(3),
        "Price per month of a provisioned GB";
    CloudVolumes = "cloud.volumes", "Volumes", "", Count, ONE, CLOUD, PLAIN,
        "Number of volumes; each includes throughput and requests in its price";
    CloudMbPerS = "cloud.mb_per_s", "Throughput of applications", "MB/s", NotNegative, ZERO, CLOUD, PLAIN,
        "Throughput required by applications, before compression";
    CloudTraffic = "cloud.traffic", "Bytes to volumes per byte", "", NotNegative, None, CLOUD, Show::NumberInput(2),
        "Bytes that reach the volumes for each byte that applications move; without it 1 / ratio";
    CloudPricePerMbPerS = "cloud.price_usd_per_mb_per_s_month", "Throughput \
        price", "US$/MB/s-month", NotNegative, ZERO, CLOUD, Show::UsdInput(3),
        "Price per month of a provisioned MB/s";
    CloudIncludedMbPerS = "cloud.included_mb_per_s", "Throughput included", "MB/s", NotNegative, ZERO, CLOUD, PLAIN,
        "Throughput included in the price of a volume";
    CloudIops = "cloud.iops", "IOPS of applications", "1/s", NotNegative, ZERO, CLOUD, PLAIN,
        "Requests per second required by applications";
    CloudIoPerIo = "cloud.io_per_io", "Requests to volumes per request", "", NotNegative, ONE, CLOUD, PLAIN,
        "Requests that reach the volumes for each request of applications: under 1 where small writes are packed \
         together";
    CloudPricePerIops = "cloud.price_usd_per_iops_month", "IOPS \
        price", "US$/IOPS-month", NotNegative, ZERO, CLOUD, Show::UsdInput(3),
        "Price per month of a provisioned request per second";
    CloudIncludedIops = "cloud.included_iops", "IOPS included", "1/s", NotNegative, ZERO, CLOUD, PLAIN,
        "Requests per second included in the price of a volume";
}

impl Field {
    /// Returns the field with this full name.
    pub fn named(name: &str) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| field.info().name == name)
    }

    /// Returns the field with this full name, or with this key if only one section has it: `ratio` is
    /// `workload.ratio`.
    pub fn resolve(name: &str) -> Option<Field> {
        let mut by_key = Field::ALL.iter().copied().filter(|field| field.key() == name);
        Field::named(name).or_else(|| by_key.next().filter(|_| by_key.next().is_none()))
    }

    /// Suggests a field for an unknown name: a key of similar spelling in the same section, or the same key
    /// in another section.
    pub(crate) fn closest(section: &str, key: &str) -> Option<&'static str> {
        let likeness = |field: &Field| strsim::jaro_winkler(key, field.key());
        let alike = Field::ALL.iter().filter(|field| field.section() == section);
        let alike =
            alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|best| likeness(best) > 0.85);
        alike.copied().or_else(|| Field::resolve(key)).map(|field| field.info().name)
    }

    /// The section: `drive` of `drive.capacity_gb`.
    pub fn section(self) -> &'static str {
        self.info().name.split_once('.').map_or("", |(section, _)| section)
    }

    /// The key within the section: `capacity_gb` of `drive.capacity_gb`.
    pub fn key(self) -> &'static str {
        self.info().name.split_once('.').map_or("", |(_, key)| key)
    }

    /// Returns whether columns of this kind have the field.
    pub fn applies_to(self, kind: Kind) -> bool {
        self.info().kind.is_none_or(|only| only == kind)
    }

    /// Returns whether a scenario must give the field. The traffic of a cloud column is optional, although it
    /// has no fixed default.
    pub fn is_required(self) -> bool {
        self.info().default.is_none() && self != Field::CloudTraffic
    }

    /// Describes the value of a field that a scenario does not give.
    pub fn default_text(self) -> String {
        match self.info().default {
            Some(value) => Show::NumberInput(0).text(value),
            None if self.is_required() => "required".to_string(),
            None => "1 / ratio".to_string(),
        }
    }

    /// Describes the allowed values in words: `a number above 0, in GB`.
    pub fn expected(self) -> String {
        let FieldInfo { limit, unit, .. } = self.info();
        let unit = if unit.is_empty() || *unit == ":1" { String::new() } else { format!(", in {unit}") };
        format!("{}{unit}", limit.expected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_have_a_section() {
        let mut names: Vec<_> = Field::ALL.iter().map(|field| field.info().name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Field::ALL.len());
        assert!(Field::ALL.iter().all(|field| !field.section().is_empty() && !field.key().is_empty()));
        for (at, field) in Field::ALL.iter().enumerate() {
            assert_eq!(*field as usize, at);
        }
    }

    #[test]
    fn defaults_are_allowed_values() {
        for field in Field::ALL {
            let info = field.info();
            assert!(info.default.is_none_or(|value| info.limit.admits(value)), "{}", info.name);
        }
    }

    #[test]
    fn short_names_resolve_where_they_are_clear() {
        assert_eq!(Field::resolve("ratio"), Some(Field::Ratio));
        assert_eq!(Field::resolve("workload.ratio"), Some(Field::Ratio));
        assert_eq!(Field::resolve("nothing"), None);
        assert_eq!(Field::closest("drive", "capcity_gb"), Some("drive.capacity_gb"));
        assert_eq!(Field::closest("drive", "years"), Some("workload.years"));
        assert_eq!(Field::closest("drive", "zzz"), None);
    }
}
