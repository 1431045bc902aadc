//! Scenarios that come with the program.

/// A scenario that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// The TOML, as a user would write it.
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
        what: "the same data on cloud volumes, plain and through Pumice",
        text: include_str!("../presets/cloud-volumes.toml"),
    },
];

/// The preset of a name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
