//! Block device nodes on top of a relay.

mod drive_of;
mod file;
mod loop_device;
mod nbd_device;
mod netlink;
mod owner;
mod partitions;
mod queue;
mod ublk_device;
mod ublk_requests;
mod ublk_structures;
mod ublk_takeover;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::AttachError;
use crate::identity::Identity;
use crate::node_kind::NodeKind;
use crate::place::Record;
use crate::relay::Relay;
use crate::shape::Shape;
use crate::takeover::Takeover;
pub use drive_of::drive_of;
pub(crate) use owner::{Lost, lost};

/// A drive that is being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drive {
    /// Its identity.
    pub(crate) identity: Identity,
    /// Size and sectors of its node.
    pub(crate) shape: Shape,
}

/// A node.
pub(crate) trait Node: Send {
    /// Its path in `/dev`.
    fn path(&self) -> &Path;

    /// Shows a new size.
    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError>;

    /// From now on the node survives an error of this process, if its kind supports that.
    fn keep(&mut self) {}

    /// Removes the node. Its users must have ended.
    fn remove(&mut self, patience: Duration, force: bool) -> Result<(), AttachError>;
}

/// Makes a node. `folder` is for its files. `last` is the node that the drive had before; a loop device has
/// the same number again if that is free. `note` is told the path of a node that would outlive this process,
/// before there is one.
pub(crate) fn make(
    way: NodeKind,
    relay: &Arc<Relay>,
    drive: &Drive,
    folder: &Path,
    last: Option<&Path>,
    note: impl FnOnce(&Path) -> Result<(), AttachError>,
) -> Result<Box<dyn Node>, AttachError> {
    match way {
        NodeKind::Ublk => Ok(Box::new(ublk_device::UblkNode::make(relay, drive, note)?)),
        NodeKind::Loop => Ok(Box::new(loop_device::LoopNode::make(relay, &drive.shape, folder, last)?)),
        NodeKind::Nbd => Ok(Box::new(nbd_device::NbdNode::make(relay, &drive.shape)?)),
    }
}

/// Returns the node of a killed bridge, if it waits for another bridge and is of an allowed kind.
///
/// # Errors
///
/// If it cannot be found out.
pub(crate) fn waiting(record: &Record, ways: &[NodeKind]) -> Result<Option<PathBuf>, AttachError> {
    let (Some(node), Some(drive)) = (record.node.as_deref(), &record.identity) else { return Ok(None) };
    if record.way != Some(NodeKind::Ublk) || !ways.contains(&NodeKind::Ublk) {
        return Ok(None);
    }
    Ok(ublk_device::waits(node, &drive.uuid)?.then(|| node.to_path_buf()))
}

/// Takes over the node of a killed bridge. Also returns its shape. `last`: progress of an earlier attempt.
/// `note` is called with each step of this attempt before it is made.
pub(crate) fn recover(
    path: &Path,
    relay: &Arc<Relay>,
    drive: &Drive,
    last: Option<Takeover>,
    note: impl FnMut(Option<Takeover>) -> Result<(), AttachError>,
) -> Result<(Box<dyn Node>, Shape), AttachError> {
    let (node, shape) = ublk_device::UblkNode::recover(relay, drive, path, last, note)?;
    Ok((Box::new(node), shape))
}

/// Ends the requests that wait for a bridge that was killed, unless another one can take its node over. The
/// caller has the folder's lock.
pub(crate) fn end_requests(record: &Record, folder: &Path) {
    if record.way == Some(NodeKind::Loop) {
        loop_device::end_requests(folder);
    }
}

/// Removes the remains of a killed bridge; with `force`, also a device that is in use.
pub(crate) fn clear_stale(record: Option<&Record>, folder: &Path, force: bool) -> Result<(), AttachError> {
    if let Some(record) = record
        && let Some(node) = &record.node
    {
        match (record.way, &record.identity) {
            (Some(NodeKind::Ublk), Some(drive)) => ublk_device::clear(node, &drive.uuid, force)?,
            (Some(NodeKind::Nbd), _) => nbd_device::clear(node, record)?,
            _ => {}
        }
    }
    let recorded = record.filter(|record| record.way == Some(NodeKind::Loop));
    let recorded = recorded.and_then(|record| record.node.as_deref());
    loop_device::clear_stale(recorded, folder, force)
}
