//! Critical warnings: one bit each, with a name.
//!
//! Bits 0 to 7 are those of the *Critical Warning* byte in NVMe's SMART / Health Information log (NVM Express
//! Base Specification 2.0, figure 207), as far as they apply. Warnings that NVMe does not have begin at
//! bit 8.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::states::states;

states! {
    /// A critical warning.
    Warning {
        /// Physical space in use reached the highest warning level (NVMe: available spare below its
        /// threshold).
        Space = "space",
        /// A disk under the drive is at its temperature limit, or reports that it is too hot.
        Temperature = "temperature",
        /// Data is in doubt: corrupt records were found, the log is damaged, the drive is poisoned, its
        /// backing was truncated or deleted, or a disk under it fails its own test.
        Reliability = "reliability",
        /// Writes are refused although read-only was not requested.
        ReadOnly = "read-only",
        /// Writes are refused for lack of physical space.
        OutOfSpace = "out-of-space",
        /// The backing has reached its endurance, by `--endurance` or as a disk reports it.
        Wear = "wear",
        /// Segments are set aside: a write to them failed, or they hold records that cannot be read.
        BadSegments = "bad-segments",
        /// The backing is shorter than the drive: another program truncated it.
        BackingTruncated = "backing-truncated",
        /// The backing was deleted: its data is lost when its server ends.
        BackingDeleted = "backing-deleted",
        /// The path of the backing leads to nothing, or to another file or device.
        BackingMoved = "backing-moved",
    }
}

impl Warning {
    /// Bit of the warning; 0 if it is unknown.
    pub fn bit(self) -> u32 {
        match self {
            Warning::Space => 1,
            Warning::Temperature => 1 << 1,
            Warning::Reliability => 1 << 2,
            Warning::ReadOnly => 1 << 3,
            Warning::OutOfSpace => 1 << 8,
            Warning::Wear => 1 << 9,
            Warning::BadSegments => 1 << 10,
            Warning::BackingTruncated => 1 << 11,
            Warning::BackingDeleted => 1 << 12,
            Warning::BackingMoved => 1 << 13,
            Warning::Unknown => 0,
        }
    }
}

/// Active critical warnings of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CriticalWarning {
    /// Sum of their bits; 0 if there is none.
    pub bits: u32,
    /// Their names.
    pub names: Vec<Warning>,
}

impl CriticalWarning {
    /// Returns those of `warnings` whose condition holds.
    pub fn of(warnings: &[(Warning, bool)]) -> CriticalWarning {
        let names: Vec<Warning> =
            warnings.iter().filter(|(_, holds)| *holds).map(|(warning, _)| *warning).collect();
        CriticalWarning { bits: names.iter().fold(0, |bits, warning| bits | warning.bit()), names }
    }

    /// Returns whether a warning is active.
    pub fn has(&self, warning: Warning) -> bool {
        self.bits & warning.bit() != 0
    }
}

/// The names, separated by commas.
impl fmt::Display for CriticalWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names.iter().map(|warning| warning.as_str()).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_nvme_if_it_has_one() {
        let bits: Vec<(&str, u32)> = Warning::ALL.iter().map(|w| (w.as_str(), w.bit())).collect();
        let wanted = [
            ("space", 0x1),
            ("temperature", 0x2),
            ("reliability", 0x4),
            ("read-only", 0x8),
            ("out-of-space", 0x100),
            ("wear", 0x200),
            ("bad-segments", 0x400),
            ("backing-truncated", 0x800),
            ("backing-deleted", 0x1000),
            ("backing-moved", 0x2000),
        ];
        assert_eq!(bits, wanted);
    }

    #[test]
    fn only_warnings_whose_condition_holds_are_active() {
        let warning = CriticalWarning::of(&[
            (Warning::Space, true),
            (Warning::ReadOnly, false),
            (Warning::OutOfSpace, true),
        ]);
        let json = serde_json::json!({"bits": 0x101, "names": ["space", "out-of-space"]});
        assert_eq!(serde_json::to_value(&warning).expect("JSON"), json);
        assert!(warning.has(Warning::Space) && !warning.has(Warning::ReadOnly));
        assert_eq!(CriticalWarning::of(&[]), CriticalWarning::default());
    }
}
