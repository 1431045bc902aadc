//! Critical warnings: one bit each, with a name.
//!
//! Bits 0 to 7 are those of the *Critical Warning* byte of NVMe's SMART / Health Information log (NVM Express Base
//! Specification 2.0, figure 207) as far as they have a meaning here; what NVMe has no bit for stands from bit 8 on.

use serde::{Deserialize, Serialize};

/// A critical warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Physical space in use has reached the highest warning level (NVMe: available spare below its threshold).
    Space = 0,
    /// A device under the drive is hotter than it or the kernel says it should be.
    Temperature = 1,
    /// Something is not what was written: corrupt records were met, the log is damaged, the drive is poisoned, or a device
    /// under it says so of itself.
    Reliability = 2,
    /// No writes are taken, and nobody asked for that.
    ReadOnly = 3,
    /// Writes are being refused for want of physical space.
    OutOfSpace = 8,
    /// More was written to the backing than it endures, by `--endurance` or by what the device says.
    Wear = 9,
    /// Segments are set aside: a write to them failed, or they hold records that cannot be read.
    BadSegments = 10,
}

impl Warning {
    /// All of them, by bit.
    pub const ALL: [Warning; 7] = [
        Warning::Space,
        Warning::Temperature,
        Warning::Reliability,
        Warning::ReadOnly,
        Warning::OutOfSpace,
        Warning::Wear,
        Warning::BadSegments,
    ];

    /// As status and metrics call it.
    pub fn name(self) -> &'static str {
        match self {
            Warning::Space => "space",
            Warning::Temperature => "temperature",
            Warning::Reliability => "reliability",
            Warning::ReadOnly => "read-only",
            Warning::OutOfSpace => "out-of-space",
            Warning::Wear => "wear",
            Warning::BadSegments => "bad-segments",
        }
    }

    /// Its bit.
    pub fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The critical warnings of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CriticalWarning {
    /// The bits; 0 if all is well.
    pub bits: u32,
    /// Their names.
    pub names: Vec<String>,
}

impl CriticalWarning {
    /// Those of `warnings` whose condition holds.
    pub(crate) fn of(warnings: &[(Warning, bool)]) -> CriticalWarning {
        let set = || warnings.iter().filter(|(_, holds)| *holds).map(|(warning, _)| warning);
        CriticalWarning {
            bits: set().fold(0, |bits, warning| bits | warning.bit()),
            names: set().map(|warning| warning.name().to_string()).collect(),
        }
    }

    /// Whether a warning is among them.
    pub fn has(&self, warning: Warning) -> bool {
        self.bits & warning.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_nvme_where_it_has_one() {
        let bits: Vec<(&str, u32)> = Warning::ALL.iter().map(|w| (w.name(), w.bit())).collect();
        let wanted = [
            ("space", 0x1),
            ("temperature", 0x2),
            ("reliability", 0x4),
            ("read-only", 0x8),
            ("out-of-space", 0x100),
            ("wear", 0x200),
            ("bad-segments", 0x400),
        ];
        assert_eq!(bits, wanted);
    }

    #[test]
    fn only_what_holds_is_told() {
        let warning = CriticalWarning::of(&[
            (Warning::Space, true),
            (Warning::ReadOnly, false),
            (Warning::OutOfSpace, true),
        ]);
        assert_eq!((warning.bits, warning.names.join(" ")), (0x101, "space out-of-space".to_string()));
        assert!(warning.has(Warning::Space) && !warning.has(Warning::ReadOnly));
        assert_eq!(CriticalWarning::of(&[]), CriticalWarning::default());
    }
}
