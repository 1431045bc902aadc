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

/// Linux from here on does not crash when a ublk server is killed while the driver hands requests to it.
const UBLK_IS_SOUND: (u32, u32) = (6, 15);

impl NodeKind {
    /// All kinds.
    pub const ALL: &[NodeKind] = &[NodeKind::Ublk, NodeKind::Loop, NodeKind::Nbd];

    /// All kinds, in the order in which this kernel is asked for them.
    pub fn by_preference() -> Vec<NodeKind> {
        let system = rustix::system::uname();
        preferred(&system.release().to_string_lossy())
    }
}

/// The order for a release of Linux, such as `6.12.48-amd64`. One that cannot be read counts as an old one.
fn preferred(release: &str) -> Vec<NodeKind> {
    let mut numbers =
        release.split(|digit: char| !digit.is_ascii_digit()).map_while(|part| part.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version >= UBLK_IS_SOUND {
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
        for release in ["6.15.0", "6.18.44-fc-v7", "6.15-rc1", "7.0", "10.1.2"] {
            assert_eq!(preferred(release).first(), Some(&NodeKind::Ublk), "{release}");
        }
        for release in ["6.14.11-300.fc42.x86_64", "6.12.48-amd64", "5.15.0", "", "unknown", "6"] {
            assert_eq!(preferred(release).first(), Some(&NodeKind::Loop), "{release}");
            assert!(NodeKind::ALL.iter().all(|kind| preferred(release).contains(kind)));
        }
    }
}
