//! Kinds of device nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of device node: the driver through which the kernel reaches the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A device of the kernel's `ublk` driver.
    Ublk,
    /// A loop device on a FUSE file.
    Loop,
    /// A device of the kernel's `nbd` driver.
    Nbd,
}

impl NodeKind {
    /// All kinds, in the order in which they are tried.
    pub const ALL: &[NodeKind] = &[NodeKind::Ublk, NodeKind::Loop, NodeKind::Nbd];
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeKind::Ublk => "ublk",
            NodeKind::Loop => "loop",
            NodeKind::Nbd => "nbd",
        })
    }
}
