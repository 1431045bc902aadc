//! Ways to make a block device node of a relay.

mod file;
mod loop_device;
mod nbd_device;
mod netlink;
mod ublk_device;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::AttachError;
use crate::place::Record;
use crate::relay::Relay;

/// How a node is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A device of the kernel's `ublk` driver.
    Ublk,
    /// A device of the kernel's `nbd` driver.
    Nbd,
    /// A loop device on a FUSE file.
    Loop,
}

impl Way {
    /// All ways, in the order in which they are tried.
    pub const ALL: &[Way] = &[Way::Ublk, Way::Nbd, Way::Loop];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Ublk => "ublk",
            Way::Nbd => "nbd",
            Way::Loop => "loop",
        })
    }
}

/// Properties of a drive that its node shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest request: the logical block size of the node.
    pub sector_bytes: u32,
    /// The node refuses writes.
    pub read_only: bool,
}

/// A node.
pub(crate) trait Node: Send {
    /// Its path in `/dev`.
    fn path(&self) -> &Path;

    /// Shows a new size.
    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError>;

    /// Removes the node. Its users must have ended.
    fn remove(&mut self, patience: Duration) -> Result<(), AttachError>;
}

/// Makes a node. `folder` is for its files.
pub(crate) fn make(
    way: Way,
    relay: &Arc<Relay>,
    shape: &Shape,
    folder: &Path,
) -> Result<Box<dyn Node>, AttachError> {
    match way {
        Way::Ublk => Ok(Box::new(ublk_device::UblkNode::make(relay, shape)?)),
        Way::Nbd => Ok(Box::new(nbd_device::NbdNode::make(relay, shape)?)),
        Way::Loop => Ok(Box::new(loop_device::LoopNode::make(relay, shape, folder)?)),
    }
}

/// Returns whether the node of a killed bridge waits for another one, and may be made in its way.
pub(crate) fn waits_for_a_bridge(record: &Record, ways: &[Way]) -> bool {
    let is_asked_for = ways.contains(&Way::Ublk);
    is_asked_for && record.way == Some(Way::Ublk) && record.node.as_deref().is_some_and(Path::exists)
}

/// Takes over the node of a killed bridge.
pub(crate) fn recover(path: &Path, relay: &Arc<Relay>) -> Result<Box<dyn Node>, AttachError> {
    Ok(Box::new(ublk_device::UblkNode::recover(relay, path)?))
}

/// Removes what a killed bridge left. Its node shows errors already.
pub(crate) fn clear_stale(record: Option<&Record>, folder: &Path) -> Result<(), AttachError> {
    match record.map(|record| (record.way, &record.node, record.bridge_pid)) {
        Some((Some(Way::Ublk), Some(node), _)) => ublk_device::clear(node)?,
        Some((Some(Way::Nbd), Some(node), bridge_pid)) => nbd_device::clear(node, bridge_pid)?,
        _ => {}
    }
    loop_device::clear_stale(folder)
}

/// Path of a device node for a kernel name.
fn device(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}
