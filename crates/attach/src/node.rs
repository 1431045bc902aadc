//! Block device nodes.

mod drive_of;
mod loop_device;
mod nbd_device;
mod netlink;
mod owner;
mod partitions;
mod queue;
mod ublk_device;
mod ublk_driver;
mod ublk_takeover;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::drive::Drive;
use crate::error::AttachError;
use crate::line::Line;
use crate::node_kind::NodeKind;
use crate::place::{self, Record};
use crate::process::Process;
use crate::server::SharedServer;
use crate::shape::Shape;
use crate::takeover::Takeover;
use crate::upstream::{Connected, Upstream};
use crate::users::who_uses;
pub use drive_of::drive_of;
pub(crate) use owner::{Lost, lost};

/// What answers the requests of a node that is being made.
pub(crate) struct Source {
    /// First connections to the server.
    pub(crate) connected: Connected,
    /// Finds it again.
    pub(crate) server: SharedServer,
    /// Longest time to hold requests while there is no server. Afterwards all fail.
    pub(crate) patience: Duration,
    /// See [`NoteStep`].
    pub(crate) note_step: NoteStep,
}

impl Source {
    /// Starts the line to the server.
    fn line(self) -> Result<Arc<Line>, AttachError> {
        let line = Line::start(self.connected, self.server, self.patience);
        line.map(Arc::new).map_err(|source| AttachError::system("cannot start a thread", source))
    }
}

/// Records how far the passing of a node to a server got; `None`: it is complete. If the keeper is killed,
/// the next one has to know.
pub(crate) type NoteStep = Arc<dyn Fn(Option<Takeover>) -> io::Result<()> + Send + Sync>;

/// A node, and what answers its requests.
pub(crate) type Made = (Box<dyn Node>, Arc<dyn Upstream>);

/// A node.
pub(crate) trait Node: Send {
    /// Its path in `/dev`.
    fn path(&self) -> &Path;

    /// Shows a new size.
    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError>;

    /// From now on the node survives an error of this process, if its kind supports that.
    fn keep(&mut self) {}

    /// Why the kernel sends no requests any more, if that is so.
    fn ended(&self) -> Option<&'static str> {
        None
    }

    /// Removes the node. Its users must have ended.
    fn remove(&mut self, patience: Duration, force: bool) -> Result<(), AttachError>;
}

/// Makes a node. `folder` is for its files. `last` is the node that the drive had before; a loop device has
/// the same number again if that is free. `note` is told the path of a node that would outlive this process,
/// before there is one.
pub(crate) fn make(
    way: NodeKind,
    source: Source,
    drive: &Drive,
    folder: &Path,
    last: Option<&Path>,
    note: impl FnOnce(&Path) -> Result<(), AttachError>,
) -> Result<Made, AttachError> {
    match way {
        NodeKind::Ublk => {
            let (node, line) = ublk_device::UblkNode::make(source, drive, note)?;
            Ok((Box::new(node), line))
        }
        NodeKind::Loop => {
            let (node, line) = loop_device::LoopNode::make(source, &drive.shape, folder, last)?;
            Ok((Box::new(node), line))
        }
        NodeKind::Nbd => {
            let (node, line) = nbd_device::NbdNode::make(source, &drive.shape, note)?;
            Ok((Box::new(node), line))
        }
    }
}

/// Returns the node of a killed bridge, if it waits for another bridge and is of an allowed kind.
///
/// # Errors
///
/// If it cannot be found out.
pub(crate) fn waiting(
    record: &Record,
    folder: &Path,
    ways: &[NodeKind],
) -> Result<Option<PathBuf>, AttachError> {
    let (Some(node), Some(drive), Some(way)) = (record.node.as_deref(), &record.identity, record.way) else {
        return Ok(None);
    };
    let waits = ways.contains(&way)
        && match way {
            NodeKind::Ublk => ublk_device::waits(node, &drive.uuid)?,
            NodeKind::Loop => loop_device::is_served(node, record, folder)?,
            NodeKind::Nbd => nbd_device::is_its(node, record),
        };
    Ok(waits.then(|| node.to_path_buf()))
}

/// Takes over the node of a killed bridge, of which `stale` is the record. Also returns its shape.
pub(crate) fn recover(
    path: &Path,
    source: Source,
    drive: &Drive,
    folder: &Path,
    stale: &Record,
) -> Result<(Made, Shape), AttachError> {
    let recorded = || {
        let shape = stale.shape.as_ref().unwrap_or(&drive.shape).clone();
        if drive.shape.fits(&shape) {
            return Ok(shape);
        }
        Err(AttachError::Refused(format!(
            "{}: the drive is smaller, or has another sector size or read-only setting, than when it was attached",
            path.display()
        )))
    };
    match stale.way {
        Some(NodeKind::Loop) => {
            let shape = recorded()?;
            let (node, line) = loop_device::LoopNode::recover(source, path, folder, &shape)?;
            Ok(((Box::new(node), line), shape))
        }
        Some(NodeKind::Nbd) => {
            let shape = recorded()?;
            let (node, line) = nbd_device::NbdNode::recover(source, path, &shape)?;
            Ok(((Box::new(node), line), shape))
        }
        Some(NodeKind::Ublk) | None => {
            let (node, line, shape) = ublk_device::UblkNode::recover(source, drive, path, stale.takeover)?;
            Ok(((Box::new(node), line), shape))
        }
    }
}

/// Makes the requests of a loop device without a bridge fail from now on, whoever answers them. The caller
/// has the folder's lock.
pub(crate) fn abort_requests(record: &Record, folder: &Path) {
    if record.way == Some(NodeKind::Loop) {
        // Nobody can take it over from its server any more.
        let _ = place::note_serving(folder, Some(Process::ENDED));
        loop_device::end_requests(folder);
    }
}

/// Ends the requests that wait for a bridge that was killed, unless another one can take its node over. The
/// caller has the folder's lock.
pub(crate) fn end_requests(record: &Record, folder: &Path) {
    if record.way == Some(NodeKind::Loop)
        && waiting(record, folder, NodeKind::ALL).is_ok_and(|it| it.is_none())
    {
        loop_device::end_requests(folder);
    }
}

/// What a killed bridge has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Its node may work: what was written there is to become durable.
    Served,
    /// Nobody answers the requests of its node.
    Dead,
}

/// Removes the remains of a killed bridge; with `force`, also a device that is in use, or cannot be flushed.
pub(crate) fn clear_stale(
    record: Option<&Record>,
    folder: &Path,
    remains: Remains,
    force: bool,
) -> Result<(), AttachError> {
    if let Some(record) = record
        && let Some(node) = &record.node
    {
        match (record.way, &record.identity) {
            (Some(NodeKind::Ublk), Some(drive)) => ublk_device::clear(node, &drive.uuid, force)?,
            (Some(NodeKind::Nbd), _) => nbd_device::clear(node, record, force)?,
            _ => {}
        }
    }
    let recorded = record.filter(|record| record.way == Some(NodeKind::Loop));
    let recorded = recorded.and_then(|record| record.node.as_deref());
    loop_device::clear_stale(recorded, folder, remains, force)
}

/// Claims a node: a file system cannot be mounted from now on.
fn claim(node: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(node, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
}

/// Who has a node open.
fn in_use(node: &Path) -> AttachError {
    AttachError::Refused(format!("{}: {}", node.display(), who_uses(node)))
}

/// Loads a module of the kernel. Whether that worked shows the next attempt to use it.
fn load_module(name: &str) {
    let quiet = Stdio::null;
    let _ = Command::new("modprobe").arg(name).stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
}
