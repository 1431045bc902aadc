//! Advertised capacity of a drive: policies based on the table of the Hyperscalers document, checked against
//! the model of the drive.

mod memory;
mod waf;

use std::fmt;
use std::str::FromStr;

pub use layout::ParityForm;
use layout::{BLOCK_BYTES, DecodeError, Geometry};
use serde::{Deserialize, Serialize};

pub use memory::HostMemory;
use space::{host_floor_segments, map_churn_bytes, map_growth_bytes, watermarks};
pub use waf::{Waf, live_share_of_victims, occupied_segments};

use crate::predict::{MapNeeds, limit_bytes};

/// Priority of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Speed: half of the space gained by compression is advertised, the rest is over-provisioning.
    Performance,
    /// Balance of speed and space.
    Balanced,
    /// Space: all that is safe is advertised.
    Capacity,
}

impl Policy {
    /// All policies, in the order of the document's columns.
    pub const ALL: [Policy; 3] = [Policy::Performance, Policy::Balanced, Policy::Capacity];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Policy::Performance => "performance",
            Policy::Balanced => "balanced",
            Policy::Capacity => "capacity",
        })
    }
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy {0:?}: expected performance, balanced or capacity")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let known = Policy::ALL.into_iter().find(|policy| policy.to_string() == text);
        known.ok_or_else(|| UnknownPolicy(text.to_string()))
    }
}

/// Settings of the document's drive. Source: Hyperscalers, *ScaleFlux CSD 2000* appliance document of 19 July
/// 2022, figure 21, "performance vs drive expansion": a drive of 7680 GB, of which 6400 GB are provisioned
/// unless the policy is [`Policy::Capacity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentRow {
    /// Physical bytes that the drive is set to use.
    pub provisioned_bytes: u64,
    /// Logical bytes advertised.
    pub advertised_bytes: u64,
    /// The table says "keep defaults": the provisioned capacity is advertised.
    pub keep_defaults: bool,
}

/// Lowest ratio at which the document advertises more than the provisioned capacity under
/// [`Policy::Performance`].
const PERFORMANCE_RATIO_MIN: f64 = 2.5;

/// Applies the document's rule to a drive of any size.
pub fn document_row(policy: Policy, ratio: f64, physical_bytes: u64) -> DocumentRow {
    let provisioned_bytes = match policy {
        // 6400 of 7680.
        Policy::Performance | Policy::Balanced => physical_bytes / 6 * 5 + physical_bytes % 6 * 5 / 6,
        Policy::Capacity => physical_bytes,
    };
    let keep_defaults = policy == Policy::Performance && ratio < PERFORMANCE_RATIO_MIN;
    let factor = match policy {
        Policy::Performance if keep_defaults => 1.0,
        Policy::Performance => ratio / 2.0,
        Policy::Balanced | Policy::Capacity => ratio,
    };
    let advertised_bytes = (provisioned_bytes as f64 * factor).round() as u64;
    DocumentRow { provisioned_bytes, advertised_bytes, keep_defaults }
}

/// Input of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Compression ratio as shown in the drive's status, including headers and map. At least 1, or slightly
    /// below for data that does not compress.
    pub ratio: f64,
    /// Physical size of the drive in bytes.
    pub physical_bytes: u64,
    /// Bytes of memory for the map cache.
    pub map_cache_bytes: u64,
    /// Parity of the drive.
    pub parity: ParityForm,
}

impl Input {
    fn geometry(&self) -> Result<Geometry, DecodeError> {
        let bytes = self.physical_bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        Geometry::with_parity(bytes, None, self.parity)
    }
}

/// A plan. Values are in bytes unless the name says otherwise.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The policy.
    pub policy: Policy,
    /// The compression ratio that the plan assumes.
    pub ratio: f64,
    /// Physical size.
    pub physical_size_bytes: u64,
    /// Share of each segment set apart for parity: `--parity` of `pumice create`.
    #[serde(default)]
    pub parity: String,
    /// Part of the physical size that parity takes.
    #[serde(default)]
    pub physical_parity_bytes: u64,
    /// The document's settings.
    pub document: DocumentRow,
    /// Capacity to advertise: `--capacity` of `pumice create`.
    pub logical_capacity_bytes: u64,
    /// Reason why the capacity is below the document's; `None` if it is the same.
    pub differs_because: Option<String>,
    /// Live bytes when the host has written the whole capacity at the assumed ratio.
    pub physical_used_full_bytes: u64,
    /// Largest number of live bytes on the drive: physical size minus reserve and fixed structures.
    pub physical_limit_bytes: u64,
    /// (physical size - live bytes) / live bytes when full, which drive vendors call over-provisioning.
    pub over_provisioning: f64,
    /// Expected write amplification when full, under uniform random overwrites of 4 KiB: the worst of the
    /// usual workloads.
    pub waf: Waf,
    /// Alarm thresholds.
    pub alarms: Alarms,
    /// Effects of data that compresses worse than assumed.
    pub worse: Vec<Worse>,
    /// Host memory.
    pub memory: HostMemory,
}

/// Alarm thresholds, in terms of the fields of `pumice status`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarms {
    /// `physical_used_bytes` for a warning: 80 % of the limit.
    pub used_warning_bytes: u64,
    /// `physical_used_bytes` for a critical alarm: 95 % of the limit.
    pub used_critical_bytes: u64,
    /// `expected_compression_ratio` below which the drive becomes critical before the host has filled it.
    pub ratio_warning: f64,
    /// `expected_compression_ratio` below which the drive refuses writes before the host has filled it.
    pub ratio_break_even: f64,
}

/// Effect of data that compresses worse than assumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worse {
    /// Decrease of the ratio in percent.
    pub percent: u32,
    /// The resulting ratio.
    pub ratio: f64,
    /// True if the host can still fill the whole advertised capacity.
    pub fits: bool,
    /// Logical bytes at which the drive refuses writes; the advertised capacity if it fits.
    pub logical_at_full_bytes: u64,
    /// Write amplification at that point.
    pub waf: f64,
}

/// Share of the limit at which a warning is due.
const WARNING: f64 = 0.80;
/// Share of the limit at which action is required. Capacity beyond it is not advertised.
const CRITICAL: f64 = 0.95;
/// Largest number of bytes that cleaning may move per byte written by the host under the policy `balanced`.
/// At 1, writes run at no less than half the speed of the backing device.
const BALANCED_CLEANING_MAX: f64 = 1.0;

/// Plans a drive.
///
/// # Errors
/// Fails for a physical size that no drive can have.
pub fn plan(input: &Input, policy: Policy) -> Result<Plan, DecodeError> {
    let geometry = input.geometry()?;
    let limit = limit_bytes(&geometry, MapNeeds::default());
    // Growth of the map on a drive filled at a ratio. More live blocks allow more growth. Assuming a map of 0
    // bytes is conservative.
    let growth = map_growth_bytes(1, 0) as f64 / BLOCK_BYTES as f64;
    // Small drives reserve room for rewriting the map.
    let churn = |ratio: f64| {
        let map_bytes = (limit as f64 * ratio * growth) as u64;
        map_churn_bytes(geometry.segments(), geometry.room_bytes(), map_bytes, 0) as f64
    };
    let full = |ratio: f64| (limit as f64 - churn(ratio)) / (1.0 + ratio * growth);
    let document = document_row(policy, input.ratio, input.physical_bytes);
    let most_live = match policy {
        Policy::Performance | Policy::Capacity => full(input.ratio) * CRITICAL,
        Policy::Balanced => {
            (full(input.ratio) * CRITICAL).min(waf::live_for_cleaning(&geometry, BALANCED_CLEANING_MAX))
        }
    };
    let safe = (most_live * input.ratio) as u64;
    let logical = document.advertised_bytes.min(safe) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    // Returns the ratio at which the data fills `share` of the limit.
    let ratio_at =
        |share: f64| logical as f64 / ((limit as f64 - churn(input.ratio)) * share - logical as f64 * growth);
    // A difference from rounding to whole blocks does not count.
    let differs = document.advertised_bytes > safe;
    let live = logical as f64 / input.ratio;
    let waf_at = |ratio: f64, live: f64| {
        Waf::new(&waf::DriveModel {
            geometry: &geometry,
            ratio,
            live_bytes: live,
            map_cache_bytes: input.map_cache_bytes,
        })
    };
    let worse = |percent: u32| {
        let ratio = input.ratio * (1.0 - f64::from(percent) / 100.0);
        let fits = logical as f64 / ratio <= full(ratio);
        let filled = if fits { logical } else { (full(ratio) * ratio) as u64 };
        Worse {
            percent,
            ratio,
            fits,
            logical_at_full_bytes: filled,
            waf: waf_at(ratio, filled as f64 / ratio).total,
        }
    };
    Ok(Plan {
        policy,
        ratio: input.ratio,
        physical_size_bytes: input.physical_bytes,
        parity: input.parity.to_string(),
        physical_parity_bytes: u64::from(geometry.segments())
            * u64::from(geometry.segment_bytes - geometry.room_bytes()),
        document,
        logical_capacity_bytes: logical,
        differs_because: differs.then(|| difference(policy, &geometry)),
        physical_used_full_bytes: live as u64,
        physical_limit_bytes: limit,
        over_provisioning: input.physical_bytes as f64 / live - 1.0,
        waf: waf_at(input.ratio, live),
        alarms: Alarms {
            used_warning_bytes: (limit as f64 * WARNING) as u64,
            used_critical_bytes: (limit as f64 * CRITICAL) as u64,
            ratio_warning: ratio_at(CRITICAL),
            ratio_break_even: ratio_at(1.0),
        },
        worse: [10, 20, 30].into_iter().map(worse).collect(),
        memory: HostMemory::new(&geometry, logical, input.map_cache_bytes),
    })
}

/// Returns the expected write amplification of a drive whose host has written `logical_bytes` at the assumed
/// ratio, under uniform random overwrites of 4 KiB.
///
/// # Errors
/// Fails for a physical size that no drive can have.
pub fn expected_waf(input: &Input, logical_bytes: u64) -> Result<Waf, DecodeError> {
    let geometry = input.geometry()?;
    Ok(Waf::new(&waf::DriveModel {
        geometry: &geometry,
        ratio: input.ratio,
        live_bytes: logical_bytes as f64 / input.ratio,
        map_cache_bytes: input.map_cache_bytes,
    }))
}

/// Ratio that data reaches which does not compress at all, on a drive whose limit is that of an empty one:
/// record headers, the map, on small drives the space to rewrite it.
const INCOMPRESSIBLE_RATIO: f64 = 0.98;

/// Returns the largest capacity, in whole MiB, that holds any data on a drive of this geometry, also data
/// that does not compress.
pub fn safe_capacity_bytes(geometry: &Geometry) -> u64 {
    const ROUND: u64 = 1 << 20;
    (limit_bytes(geometry, MapNeeds::default()) as f64 * INCOMPRESSIBLE_RATIO) as u64 / ROUND * ROUND
}

/// Explains why the recommended capacity is below the document's.
fn difference(policy: Policy, geometry: &Geometry) -> String {
    let physical = geometry.physical_size_bytes as f64;
    let reserve = (1.0 - limit_bytes(geometry, MapNeeds::default()) as f64 / physical) * 100.0;
    let has =
        "the document's drive has flash beyond what it provisions, here the physical size is all there is";
    match policy {
        Policy::Balanced => format!(
            "{has}: with more live data than this, cleaning would move more than a byte for each the host writes"
        ),
        Policy::Performance | Policy::Capacity => format!(
            "{has}: {reserve:.1} % of it are reserve and fixed structures, and 5 % of the rest are kept for a ratio \
             that drifts"
        ),
    }
}

/// Number of free segments that cleaning maintains on a drive with this number of live bytes.
pub(crate) fn low_watermark(geometry: &Geometry, live_bytes: f64) -> u32 {
    let count = geometry.segments();
    let live = (live_bytes / f64::from(geometry.segment_bytes)) as u32;
    watermarks(count, live, host_floor_segments(count)).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    /// All rows of the document's figure 21, in GB: performance (`None`: keep defaults), balanced, capacity.
    const TABLE: [(f64, Option<u64>, u64, u64); 10] = [
        (1.1, None, 7040, 8448),
        (1.2, None, 7680, 9216),
        (1.3, None, 8320, 9984),
        (1.4, None, 8960, 10752),
        (1.5, None, 9600, 11520),
        (2.0, None, 12800, 15360),
        (2.5, Some(8000), 16000, 19200),
        (3.0, Some(9600), 19200, 23040),
        (3.5, Some(11200), 22400, 26880),
        (4.0, Some(12800), 25600, 30720),
    ];

    #[test]
    fn the_document_s_table_row_by_row() {
        for (ratio, performance, balanced, capacity) in TABLE {
            let row = |policy| document_row(policy, ratio, 7680 * GB);
            let fast = row(Policy::Performance);
            assert_eq!(fast.provisioned_bytes, 6400 * GB);
            assert_eq!(fast.keep_defaults, performance.is_none(), "{ratio}");
            assert_eq!(fast.advertised_bytes, performance.unwrap_or(6400) * GB, "{ratio}");
            assert_eq!(
                row(Policy::Balanced),
                DocumentRow {
                    provisioned_bytes: 6400 * GB,
                    advertised_bytes: balanced * GB,
                    keep_defaults: false
                }
            );
            assert_eq!(
                row(Policy::Capacity),
                DocumentRow {
                    provisioned_bytes: 7680 * GB,
                    advertised_bytes: capacity * GB,
                    keep_defaults: false
                }
            );
        }
    }

    fn of(policy: Policy, ratio: f64, physical: u64) -> Plan {
        with(policy, ratio, physical, ParityForm::None)
    }

    fn with(policy: Policy, ratio: f64, physical_bytes: u64, parity: ParityForm) -> Plan {
        plan(&Input { ratio, physical_bytes, map_cache_bytes: 128 << 20, parity }, policy).expect("a drive")
    }

    #[test]
    fn parity_leaves_less_to_advertise() {
        let of = |form| with(Policy::Capacity, 2.0, 1 << 40, form);
        let none = of(ParityForm::None);
        assert_eq!((none.parity.as_str(), none.physical_parity_bytes), ("none", 0));
        let some = of(ParityForm::Part32);
        assert_eq!(some.parity, "1/32");
        let share = some.physical_parity_bytes as f64 / (1_u64 << 40) as f64;
        assert!((0.032..0.035).contains(&share), "{share}");
        let less = some.logical_capacity_bytes as f64 / none.logical_capacity_bytes as f64;
        assert!((0.96..0.97).contains(&less), "{less}");
    }

    #[test]
    fn what_is_advertised_fits_when_the_ratio_holds() {
        for physical in [1 << 30, 100 * GB, 7680 * GB, 64 << 40] {
            for ratio in [1.0, 1.1, 1.5, 2.0, 2.4, 2.5, 3.0, 8.0] {
                for policy in Policy::ALL {
                    let plan = of(policy, ratio, physical);
                    assert!(plan.logical_capacity_bytes <= plan.document.advertised_bytes);
                    assert!(plan.physical_used_full_bytes as f64 <= plan.physical_limit_bytes as f64 * 0.951);
                    assert!(plan.alarms.ratio_break_even < plan.alarms.ratio_warning);
                    assert!(plan.alarms.ratio_warning <= ratio * 1.001, "{policy} {ratio}");
                    assert!(plan.logical_capacity_bytes.is_multiple_of(4096));
                }
            }
        }
    }

    #[test]
    fn policies_trade_space_for_speed() {
        let [fast, middle, large] = Policy::ALL.map(|policy| of(policy, 3.0, 7680 * GB));
        assert!(fast.logical_capacity_bytes < middle.logical_capacity_bytes);
        assert!(middle.logical_capacity_bytes < large.logical_capacity_bytes);
        assert!(fast.waf.total < middle.waf.total && middle.waf.total < large.waf.total);
        assert_eq!(fast.logical_capacity_bytes, 9600 * GB / 4096 * 4096);
        assert_eq!(fast.differs_because, None);
        assert!(middle.differs_because.is_some() && large.differs_because.is_some());
        assert!(fast.worse.iter().all(|worse| worse.fits));
        assert!(!large.worse[0].fits);
        assert!(large.worse[0].logical_at_full_bytes < large.logical_capacity_bytes);
    }

    #[test]
    fn a_plan_expects_what_its_capacity_leads_to() {
        let plan = of(Policy::Balanced, 2.4, 100 * GB);
        let input = Input {
            ratio: 2.4,
            physical_bytes: 100 * GB,
            map_cache_bytes: 128 << 20,
            parity: ParityForm::None,
        };
        let full = expected_waf(&input, plan.logical_capacity_bytes).expect("a drive");
        assert!((full.total - plan.waf.total).abs() < 1e-6, "{full:?} {:?}", plan.waf);
        assert!(expected_waf(&input, plan.logical_capacity_bytes / 2).expect("a drive").total < full.total);
    }

    #[test]
    fn a_size_that_no_drive_has_is_refused() {
        let input =
            Input { ratio: 2.0, physical_bytes: 4096, map_cache_bytes: 128 << 20, parity: ParityForm::None };
        assert!(plan(&input, Policy::Balanced).is_err());
    }
}
