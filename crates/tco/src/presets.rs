//! Built-in scenarios.

/// A built-in scenario.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub what: &'static str,
    /// The scenario in TOML.
    pub text: &'static str,
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "snia-2023",
        what: "the three columns of the SNIA paper of August 2023",
        text: include_str!("../presets/snia-2023.toml"),
    },
    Preset {
        name: "four-ways",
        what: "Ceph with zstd, a hardware CSD, Ceph with QAT, and Pumice, on the SNIA paper's rack",
        text: include_str!("../presets/four-ways.toml"),
    },
    Preset {
        name: "cloud-volumes",
        what: "the same data on AWS volumes, plain and through Pumice",
        text: include_str!("../presets/cloud-volumes.toml"),
    },
    Preset {
        name: "gcp-volumes",
        what: "the same data on Google Cloud disks, plain and through Pumice",
        text: include_str!("../presets/gcp-volumes.toml"),
    },
    Preset {
        name: "azure-volumes",
        what: "the same data on Azure disks, plain and through Pumice",
        text: include_str!("../presets/azure-volumes.toml"),
    },
];

/// Returns the preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
