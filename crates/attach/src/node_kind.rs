//! Kinds of device nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::linux::linux;

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

/// Linux from here on does not crash when a ublk server is killed while the driver hands requests to it.
const UBLK_IS_SOUND: (u32, u32) = (6, 15);

impl NodeKind {
    /// All kinds.
    pub const ALL: &[NodeKind] = &[NodeKind::Ublk, NodeKind::Loop, NodeKind::Nbd];

    /// All kinds, in the order in which this kernel is asked for them.
    pub fn by_preference() -> Vec<NodeKind> {
        preferred(linux())
    }
}

/// The order for a version of Linux. One that is unknown counts as an old one.
fn preferred(linux: Option<(u32, u32)>) -> Vec<NodeKind> {
    match linux.is_some_and(|linux| linux >= UBLK_IS_SOUND) {
        true => vec![NodeKind::Ublk, NodeKind::Loop, NodeKind::Nbd],
        false => vec![NodeKind::Loop, NodeKind::Ublk, NodeKind::Nbd],
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ublk_comes_first_where_it_is_sound() {
        for linux in [(6, 15), (6, 18), (7, 0)] {
            assert_eq!(preferred(Some(linux)).first(), Some(&NodeKind::Ublk), "{linux:?}");
        }
        for linux in [Some((6, 14)), Some((6, 12)), Some((5, 15)), None] {
            assert_eq!(preferred(linux).first(), Some(&NodeKind::Loop), "{linux:?}");
            assert!(NodeKind::ALL.iter().all(|kind| preferred(linux).contains(kind)));
        }
    }
}
