//! Ways to make a node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a node is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A device of the kernel's `ublk` driver.
    Ublk,
    /// A loop device on a FUSE file.
    Loop,
    /// A device of the kernel's `nbd` driver.
    Nbd,
}

impl Way {
    /// All ways, in the order in which they are tried.
    pub const ALL: &[Way] = &[Way::Ublk, Way::Loop, Way::Nbd];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Ublk => "ublk",
            Way::Loop => "loop",
            Way::Nbd => "nbd",
        })
    }
}
