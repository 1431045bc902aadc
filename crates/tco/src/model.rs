//! The cost model. Racks follow the SNIA storage TCO model as published in "TCO in Computational Storage -
//! Compression" (SNIA Computational Storage SIG, August 2023). Cloud volumes, CPU cores, discounting, number
//! of racks and greenhouse gases are extensions. `docs/reference/tco.md` lists the formulas in order.

use crate::field::{Field as F, Kind};
use crate::metric::{Metric as M, Results};
use crate::scenario::Column;

/// Hours per year in the SNIA model.
const HOURS_PER_YEAR: f64 = 8760.0;
const MONTHS_PER_YEAR: f64 = 12.0;
const GB_PER_TB: f64 = 1000.0;
const TB_PER_PB: f64 = 1000.0;
const W_PER_KW: f64 = 1000.0;

/// Computes the outputs of a column.
pub fn evaluate(column: &Column) -> Results {
    match column.kind {
        Kind::Rack => rack(column),
        Kind::Cloud => cloud(column),
    }
}

/// Cores that one server keeps busy with compression and with the client's side.
///
/// A performance multiplier of M stands for M times the servers and drives under the same load. A share is
/// one of a server that writes as fast as it can, so each of the M servers has it. Time for each GB is
/// different: each of the M servers writes an Mth of the GB, and the cores for all of them are the same in
/// number.
fn cores_busy(c: &Column) -> f64 {
    let seconds_per_gb = c.get(F::CpuSecondsPerGb) + c.get(F::CpuClientSecondsPerGb);
    let gb_per_s = c.get(F::CpuGbPerS) / c.get(F::PerformanceMultiplier);
    c.get(F::CpuCores) * c.get(F::CpuShare) + seconds_per_gb * gb_per_s
}

/// Effective bytes per raw byte, after utilization, redundancy, compression and performance multiplier.
fn effective_per_raw(c: &Column) -> f64 {
    c.get(F::Utilization) / c.get(F::Replication) * c.get(F::Ratio) / c.get(F::PerformanceMultiplier)
}

/// Present value of one dollar paid in equal parts at the end of every month of the term.
pub(crate) fn annuity(rate_per_year: f64, years: f64) -> f64 {
    let monthly = (rate_per_year.ln_1p() / MONTHS_PER_YEAR).exp_m1();
    if monthly == 0.0 {
        return 1.0;
    }
    let months = years * MONTHS_PER_YEAR;
    -(-months * monthly.ln_1p()).exp_m1() / (monthly * months)
}

fn rack(c: &Column) -> Results {
    let mut r = Results::new();
    let years = c.get(F::Years);
    let months = years * MONTHS_PER_YEAR;
    let drives = c.drives_per_rack();
    let drive_price = c.get(F::DriveCapacityGb) * c.get(F::DrivePricePerGb);
    let machines = c.get(F::Servers) + c.get(F::UtilityServers);
    let raw_tb = drives * c.get(F::DriveCapacityGb) / GB_PER_TB;
    let effective_tbe = raw_tb * effective_per_raw(c);
    let cores = cores_busy(c) * c.get(F::Servers);

    let capex_storage = drives * drive_price;
    let capex_rack = machines * c.get(F::ServerCostUsd)
        + c.get(F::Jbods) * c.get(F::JbodCostUsd)
        + c.get(F::SwitchCostUsd)
        + c.get(F::RackCostUsd);
    let capex_cpu = cores * c.get(F::CpuPricePerCore);
    let capex = capex_storage + capex_rack + capex_cpu;

    let duty = c.get(F::DutyCycle);
    let power_storage =
        drives * (c.get(F::DrivePowerActiveW) * duty + c.get(F::DrivePowerIdleW) * (1.0 - duty));
    let power_rack =
        machines * c.get(F::ServerPowerW) + c.get(F::Jbods) * c.get(F::JbodPowerW) + c.get(F::SwitchPowerW);
    let power_cpu = cores * c.get(F::CpuPowerPerCore);
    let power_max = drives * c.get(F::DrivePowerActiveW) + power_rack + power_cpu;
    let kwh = |watts: f64| watts / W_PER_KW * HOURS_PER_YEAR * years * c.get(F::Pue);
    let energy_usd = |watts: f64| kwh(watts) * c.get(F::ElectricityPerKwh);
    let replacements = drives * c.get(F::DriveAfr) * years * c.get(F::DriveReplacementUsd);
    let space = c.get(F::RackSpaceUsdPerMonth) * months;

    r.put(M::DrivePrice, drive_price);
    let ru = machines * c.get(F::ServerRu) + c.get(F::Jbods) * c.get(F::JbodRu) + c.get(F::SwitchRu);
    r.put(M::SizeRu, ru);
    r.put(M::CoresBusy, cores_busy(c));
    r.put(M::PowerRack, power_rack);
    r.put(M::CapexStorage, capex_storage);
    r.put(M::CapexRack, capex_rack);
    r.put(M::CapexCpu, capex_cpu);
    r.put(M::PowerStorage, power_storage);
    r.put(M::PowerCpu, power_cpu);
    r.put(M::PowerMax, power_max);
    r.put(M::OpexStorage, energy_usd(power_storage));
    r.put(M::OpexRack, energy_usd(power_rack));
    r.put(M::OpexCpu, energy_usd(power_cpu));
    r.put(M::OpexReplacements, replacements);
    r.put(M::OpexSpace, space);
    let opex = energy_usd(power_storage + power_rack + power_cpu) + replacements + space;
    let energy = kwh(power_storage + power_rack + power_cpu);
    r.put(M::EnergyKwh, energy);
    let carbon = energy * c.get(F::CarbonPerKwh);
    r.put(M::CarbonKg, carbon);
    r.put(M::CarbonPerTbe, carbon / effective_tbe);
    totals(&mut r, c, raw_tb, effective_tbe, capex, opex);

    let wanted = c.get(F::WantedTbe);
    if wanted > 0.0 {
        let racks = whole_racks(wanted / effective_tbe);
        r.put(M::WantedRacks, racks);
        r.put(M::WantedDrives, racks * drives);
        r.put(M::WantedPowerMaxKw, racks * power_max / W_PER_KW);
        r.put(M::WantedCapex, racks * capex);
        r.put(M::WantedTco, racks * (capex + opex));
        r.put(M::WantedCarbonKg, racks * carbon);
    }
    r
}

/// Number of racks to buy, at least 1. A relative excess below 1e-9 is a rounding error and adds no rack.
fn whole_racks(racks: f64) -> f64 {
    (racks * (1.0 - 1e-9)).ceil().max(1.0)
}

fn cloud(c: &Column) -> Results {
    let mut r = Results::new();
    let months = c.get(F::Years) * MONTHS_PER_YEAR;
    let effective_tbe = c.get(F::CloudStoredTb);
    let raw_tb = effective_tbe / effective_per_raw(c);
    let traffic = c.input(F::CloudTraffic).map_or(1.0 / c.get(F::Ratio), |input| input.value);
    let beyond = |needed: f64, included: F| (needed - c.get(included) * c.get(F::CloudVolumes)).max(0.0);
    let mb_per_s = beyond(c.get(F::CloudMbPerS) * traffic, F::CloudIncludedMbPerS);
    let iops = beyond(c.get(F::CloudIops) * c.get(F::CloudIoPerIo), F::CloudIncludedIops);

    let volumes_usd = raw_tb * GB_PER_TB * c.get(F::CloudPricePerGb) * months;
    let throughput_usd = mb_per_s * c.get(F::CloudPricePerMbPerS) * months;
    let iops_usd = iops * c.get(F::CloudPricePerIops) * months;
    // The result is for all the data, so for all that the multiplier stands for.
    let cores = cores_busy(c) * c.get(F::PerformanceMultiplier);
    let cpu_usd = cores * c.get(F::CpuRentPerCore) * months;
    r.put(M::CoresBusy, cores);
    r.put(M::OpexVolumes, volumes_usd);
    r.put(M::OpexThroughput, throughput_usd);
    r.put(M::OpexIops, iops_usd);
    r.put(M::OpexCpu, cpu_usd);
    totals(&mut r, c, raw_tb, effective_tbe, 0.0, volumes_usd + throughput_usd + iops_usd + cpu_usd);
    r
}

/// Stores the sums, and the results per capacity and time.
fn totals(r: &mut Results, c: &Column, raw_tb: f64, effective_tbe: f64, capex: f64, opex: f64) {
    let months = c.get(F::Years) * MONTHS_PER_YEAR;
    r.put(M::ReducedTo, 1.0 / c.get(F::Ratio));
    r.put(M::RawTb, raw_tb);
    r.put(M::RawPb, raw_tb / TB_PER_PB);
    r.put(M::EffectiveTbe, effective_tbe);
    r.put(M::EffectivePbe, effective_tbe / TB_PER_PB);
    r.put(M::CapexTotal, capex);
    r.put(M::CapexPerTb, capex / raw_tb);
    r.put(M::CapexPerTbe, capex / effective_tbe);
    r.put(M::CapexPerTbeMonth, capex / effective_tbe / months);
    r.put(M::OpexTotal, opex);
    r.put(M::OpexPerTb, opex / raw_tb);
    r.put(M::OpexPerTbe, opex / effective_tbe);
    r.put(M::OpexPerTbeMonth, opex / effective_tbe / months);
    r.put(M::Tco, capex + opex);
    r.put(M::TcoPerTbe, (capex + opex) / effective_tbe);
    r.put(M::TcoPerTbeMonth, (capex + opex) / effective_tbe / months);
    let rate = c.get(F::DiscountRate);
    if rate > 0.0 {
        r.put(M::PresentPerTbe, (capex + opex * annuity(rate, c.get(F::Years))) / effective_tbe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annuities() {
        assert_eq!(annuity(0.0, 5.0), 1.0);
        // By hand: 60 payments of 1/60 at a monthly rate of 1.08^(1/12) - 1.
        let monthly = 1.08_f64.powf(1.0 / 12.0) - 1.0;
        let by_hand: f64 = (1..=60).map(|month| (1.0 + monthly).powi(-month) / 60.0).sum();
        assert!((annuity(0.08, 5.0) - by_hand).abs() < 1e-12);
        assert!((annuity(1e-12, 5.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn racks_are_whole() {
        assert_eq!(whole_racks(3.0 + 1e-12), 3.0);
        assert_eq!(whole_racks(3.001), 4.0);
        assert_eq!(whole_racks(0.1), 1.0);
    }
}
