//! Advice on capacity: whether data like that of a drive fits into what the drive promises.
//!
//! Fills (mostly zeros) take no space, so any number of them says nothing about the data to come. The ratios
//! here leave them out, and so do all recommendations, estimates and warnings.

use crate::report::StatusReport;

/// Ratio of data that does not compress at all: headers and map, and on small drives the space to rewrite the
/// map.
pub const INCOMPRESSIBLE_RATIO: f64 = 0.98;
/// Most data that a ratio needs to be meaningful.
const MEANINGFUL_MAX_BYTES: u64 = 64 << 20;
/// Part of the physical limit that is enough on a small drive.
const MEANINGFUL_PART: u64 = 8;

/// Returns the amount of data, in logical bytes without fills, from which on its ratio is meaningful for a
/// drive with this physical limit.
pub fn meaningful_bytes(physical_limit_bytes: u64) -> u64 {
    MEANINGFUL_MAX_BYTES.min(physical_limit_bytes / MEANINGFUL_PART).max(1)
}

/// Whether the data that a drive may get fits into its capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fit {
    /// All data fits, also if it does not compress.
    Any,
    /// Data fits that compresses like this drive's.
    Enough {
        /// Its ratio.
        ratio: f64,
    },
    /// Such data does not.
    TooMuch {
        /// Its ratio.
        ratio: f64,
        /// Logical bytes of it that fit.
        reach_bytes: u64,
    },
    /// There is too little data to tell.
    Unknown,
}

/// Capacity of a drive, compared with its data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapacityPlan {
    /// Ratio at which the whole capacity fits.
    pub needed_ratio: f64,
    /// Physical limit in bytes.
    pub room_bytes: u64,
    /// The result.
    pub fit: Fit,
}

impl CapacityPlan {
    /// Compares a capacity with a physical limit and the ratio to be expected.
    pub fn new(capacity_bytes: u64, room_bytes: u64, expected_ratio: Option<f64>) -> CapacityPlan {
        // The limit of a drive moves a little with its map.
        const TOLERANCE: f64 = 0.005;
        let needed_ratio = capacity_bytes as f64 / room_bytes.max(1) as f64;
        let fit = match expected_ratio {
            _ if needed_ratio <= INCOMPRESSIBLE_RATIO + TOLERANCE => Fit::Any,
            None => Fit::Unknown,
            Some(ratio) if ratio >= needed_ratio => Fit::Enough { ratio },
            Some(ratio) => Fit::TooMuch { ratio, reach_bytes: (room_bytes as f64 * ratio) as u64 },
        };
        CapacityPlan { needed_ratio, room_bytes, fit }
    }
}

impl StatusReport {
    /// Logical bytes in use that are no fills.
    pub fn logical_stored_bytes(&self) -> u64 {
        self.logical_used_bytes.saturating_sub(self.logical_fill_bytes)
    }

    /// Sets what is derived from the other values: the ratios without fills, and what can still be written.
    pub fn estimate(&mut self) {
        let enough = meaningful_bytes(self.physical_limit_bytes);
        let ratio = |logical: u64, physical: u64| {
            (logical >= enough && physical > 0).then(|| logical as f64 / physical as f64)
        };
        self.stored_compression_ratio = ratio(self.logical_stored_bytes(), self.physical_used_bytes);
        let recent = &mut self.recently_written;
        recent.compression_ratio = ratio(recent.logical_bytes, recent.physical_bytes);
        let known = [self.stored_compression_ratio, self.recently_written.compression_ratio];
        self.expected_compression_ratio = known.into_iter().flatten().reduce(f64::min);
        let (any_bytes, capacity) = self.any_data_bytes();
        self.logical_available_bytes = match self.expected_compression_ratio {
            Some(ratio) if any_bytes < capacity => {
                ((self.physical_left_bytes() as f64 * ratio) as u64).min(capacity)
            }
            _ => any_bytes,
        };
    }

    /// Returns whether [`StatusReport::logical_available_bytes`] is what can be written. Otherwise it is what
    /// can be written of data that does not compress, because no ratio is known.
    pub fn logical_available_is_known(&self) -> bool {
        let (any_bytes, capacity) = self.any_data_bytes();
        // All of the capacity, or nothing, whatever the data.
        self.expected_compression_ratio.is_some() || any_bytes >= capacity || self.physical_left_bytes() == 0
    }

    fn physical_left_bytes(&self) -> u64 {
        self.physical_limit_bytes.saturating_sub(self.physical_used_bytes)
    }

    /// Logical bytes of data of any kind that can still be written, and those that the capacity leaves.
    fn any_data_bytes(&self) -> (u64, u64) {
        let capacity = self.logical_capacity_bytes.saturating_sub(self.logical_used_bytes);
        let holds = (self.physical_left_bytes() as f64 * INCOMPRESSIBLE_RATIO) as u64;
        (holds.min(capacity), capacity)
    }

    /// Compares the capacity with the data.
    pub fn capacity_plan(&self) -> CapacityPlan {
        CapacityPlan::new(
            self.logical_capacity_bytes,
            self.physical_limit_bytes,
            self.expected_compression_ratio,
        )
    }

    /// The ratios that advice is based on, as text: `1.02:1 without zeros, 1.01:1 in the last 12 min`.
    /// `duration` formats seconds. `None` if none is known.
    pub fn ratios_text(&self, duration: impl Fn(f64) -> String) -> Option<String> {
        let stored = self.stored_compression_ratio.map(|ratio| format!("{ratio:.2}:1 without zeros"));
        let recent = &self.recently_written;
        let recent = recent.compression_ratio.map(|ratio| {
            let window = duration(recent.window_seconds.unwrap_or_default());
            format!("{ratio:.2}:1 as written in the last {window}")
        });
        let known: Vec<String> = [stored, recent].into_iter().flatten().collect();
        (!known.is_empty()).then(|| known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecentlyWritten;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// 2 GiB of zeros and some data that does not compress, on a drive of 420 MiB that promises 9 GiB.
    fn of_zeros(data_mib: u64) -> StatusReport {
        let mut report = StatusReport {
            logical_capacity_bytes: 9 * GIB,
            logical_used_bytes: 2 * GIB + data_mib * MIB,
            logical_fill_bytes: 2 * GIB,
            physical_limit_bytes: 420 * MIB,
            physical_used_bytes: data_mib * MIB + MIB / 2,
            compression_ratio: 35.0,
            ..StatusReport::default()
        };
        report.estimate();
        report
    }

    #[test]
    fn zeros_promise_nothing() {
        let report = of_zeros(60);
        let plan = report.capacity_plan();
        assert!((plan.needed_ratio - 21.9).abs() < 0.1, "{plan:?}");
        assert!(matches!(plan.fit, Fit::TooMuch { ratio, .. } if ratio < 1.0), "{plan:?}");
        assert!(report.logical_available_is_known(), "there is enough data");
        let available = report.logical_available_bytes;
        assert!(available <= 360 * MIB, "{available}");
    }

    #[test]
    fn too_little_data_is_not_known() {
        let report = of_zeros(20);
        assert_eq!(report.capacity_plan().fit, Fit::Unknown);
        assert_eq!(report.expected_compression_ratio, None);
        assert!(!report.logical_available_is_known());
        // What any data fits.
        let left = report.physical_limit_bytes - report.physical_used_bytes;
        assert_eq!(report.logical_available_bytes, (left as f64 * INCOMPRESSIBLE_RATIO) as u64);
        assert_eq!(report.ratios_text(|_| String::new()), None);
    }

    #[test]
    fn what_is_written_lately_counts_if_it_compresses_worse() {
        let mut report = of_zeros(0);
        (report.logical_fill_bytes, report.physical_used_bytes) = (0, 100 * MIB);
        report.recently_written = RecentlyWritten {
            window_seconds: Some(300.0),
            logical_bytes: 64 * MIB,
            physical_bytes: 64 * MIB,
            ..RecentlyWritten::default()
        };
        report.estimate();
        assert_eq!(report.expected_compression_ratio, Some(1.0));
        assert_eq!(report.logical_available_bytes, 320 * MIB);
        // And if it compresses better, what is stored counts.
        report.recently_written.physical_bytes = MIB;
        report.estimate();
        assert_eq!(report.expected_compression_ratio, report.stored_compression_ratio);
        let text = report.ratios_text(|seconds| format!("{seconds} s")).expect("known");
        assert_eq!(text, "20.48:1 without zeros, 64.00:1 as written in the last 300 s");
    }

    #[test]
    fn a_capacity_that_any_data_fits_into_is_available_as_a_whole() {
        let mut report = StatusReport {
            logical_capacity_bytes: 400 * MIB,
            physical_limit_bytes: 420 * MIB,
            ..StatusReport::default()
        };
        report.estimate();
        assert_eq!(report.capacity_plan().fit, Fit::Any);
        assert_eq!(report.logical_available_bytes, 400 * MIB);
        assert!(report.logical_available_is_known());
        report.physical_used_bytes = 430 * MIB;
        report.estimate();
        assert_eq!(report.logical_available_bytes, 0);
        assert!(report.logical_available_is_known());
    }
}
