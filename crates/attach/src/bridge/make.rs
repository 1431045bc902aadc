//! The making of an attachment: its server, its relay and its node, or a node that a killed bridge left.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Attachment, FLUSH_PATIENCE, Options};
use crate::error::AttachError;
use crate::node::{self, Node, Shape};
use crate::operation::Operation;
use crate::place::{self, Record, TakenOver};
use crate::relay::Relay;
use crate::server::{self, DriveServer, Started, find, stop_served};
use crate::sfx::{self, Published};

/// Time for a server that is starting to have the drive open.
const OPENS: Duration = Duration::from_secs(60);

/// Parts of an attachment that are made for it.
type Made = (Record, Shape, Box<dyn Node>, Arc<Relay>);

impl Attachment {
    pub(super) fn make(options: &Options, abandoned: &AtomicBool) -> Result<Attachment, AttachError> {
        let folder = place::folder(&options.path);
        let at_folder = |source| AttachError::system(folder.display(), source);
        place::make(&folder).map_err(at_folder)?;
        let lock = place::lock(&folder).map_err(at_folder)?;
        let Some(lock) = lock else { return Err(already(&options.path, &folder)) };
        let started = Started::default();
        let stale = Record::read(&folder);
        let waiting = match &stale {
            Some(stale) => node::waiting(stale, &options.ways)?,
            None => None,
        };
        if waiting.is_none() {
            // If something uses what a killed bridge left, all of it stays, with the record: it can be detached later.
            node::clear_stale(stale.as_ref(), &folder)?;
            // Another drive may get a node of this name.
            if let Some(node) = stale.as_ref().and_then(|stale| stale.node.as_deref()) {
                sfx::clear(&options.path, node);
            }
        }
        let left = waiting.as_deref().zip(stale.as_ref());
        let server_pid = stale.as_ref().and_then(|stale| stale.server_pid);
        let made = Attachment::make_in(&folder, options, server_pid, left, abandoned, &started);
        let (record, shape, node, relay) = made.inspect_err(|_| match left {
            // Another attempt may take it over.
            Some((_, stale)) => {
                started.stop_own();
                let _ = stale.write(&folder);
            }
            None => {
                started.stop(&options.path);
                if let Some(pid) = server_pid {
                    stop_served(&options.path, pid);
                }
                place::remove(&folder);
            }
        })?;
        let published = Published::start(&record.path, node.path());
        Ok(Attachment {
            folder,
            record,
            shape,
            node,
            relay,
            started,
            refused_size: None,
            published,
            _lock: lock,
        })
    }

    /// `left`: a node that waits for a bridge, and the record of the one that was killed.
    fn make_in(
        folder: &Path,
        options: &Options,
        server_pid: Option<u32>,
        left: Option<(&Path, &Record)>,
        abandoned: &AtomicBool,
        started: &Started,
    ) -> Result<Made, AttachError> {
        let at_folder = |source| AttachError::system(folder.display(), source);
        let given_up = || abandoned.load(Ordering::Relaxed);
        let stale = left.map(|(_, stale)| stale);
        let mut record = Record {
            path: options.path.clone(),
            bridge_pid: std::process::id(),
            server_pid,
            // Kept for the next bridge if this one is killed too.
            connected_pid: stale.and_then(|stale| stale.connected_pid),
            drive_uuid: stale.and_then(|stale| stale.drive_uuid.clone()),
            node: stale.and_then(|stale| stale.node.clone()),
            way: stale.and_then(|stale| stale.way),
            shape: stale.and_then(|stale| stale.shape.clone()),
            passed_over: Vec::new(),
            taken_over: None,
        };
        record.write(folder).map_err(at_folder)?;
        let mut server = DriveServer::new(&options.path, folder, options.start.clone(), started.clone());
        let of_drive = |reason| AttachError::Refused(format!("{}: {reason}", status::shown(&options.path)));
        // A server that the killed bridge has just started may be opening the drive still.
        let insist = left.map_or(Duration::ZERO, |_| OPENS);
        let connected = server.first(options.wait, insist, given_up).map_err(of_drive)?;
        record.server_pid = started.pid();
        record.write(folder).map_err(at_folder)?;
        let (drive, pid) = server.drive().ok_or_else(|| of_drive("its size is unknown".to_string()))?;
        let relay = Relay::start(connected, server, options.settings.clone());
        let relay = Arc::new(relay.map_err(|source| AttachError::system("cannot start threads", source))?);
        if let Some((node, stale)) = left {
            // What the killed bridge had acknowledged is in the memory of its server, and in no journal.
            let flushed = relay.call(Operation::Flush, FLUSH_PATIENCE);
            if let Err(errno) = &flushed {
                tracing::error!("cannot flush: {errno}");
            }
            let is_same = |pid: Option<u32>| pid.is_some() && pid == stale.connected_pid;
            let is_complete = flushed.is_ok()
                && is_same(pid)
                && is_same(find(&options.path).as_ref().and_then(server::server_pid));
            let (node, shape) = node::recover(node, &relay, &drive)?;
            tracing::info!(is_complete, "taken over from a bridge that was killed");
            record.taken_over = Some(TakenOver { is_complete });
            (record.connected_pid, record.shape) = (pid, Some(shape.clone()));
            record.write(folder).map_err(at_folder)?;
            return Ok((record, shape, node, relay));
        }
        (record.connected_pid, record.drive_uuid) = (pid, Some(drive.uuid.clone()));
        record.shape = Some(drive.shape.clone());
        for way in &options.ways {
            let note = |path: &Path| {
                (record.node, record.way) = (Some(path.to_path_buf()), Some(*way));
                record.write(folder).map_err(at_folder)
            };
            match node::make(*way, &relay, &drive, folder, note) {
                Ok(node) => {
                    (record.node, record.way) = (Some(node.path().to_path_buf()), Some(*way));
                    record.write(folder).map_err(at_folder)?;
                    return Ok((record, drive.shape, node, relay));
                }
                Err(AttachError::Missing(reason)) => record.passed_over.push((*way, reason)),
                Err(error) => return Err(error),
            }
        }
        let reasons: Vec<String> =
            record.passed_over.iter().map(|(way, reason)| format!("{way}: {reason}")).collect();
        Err(AttachError::Refused(format!("no way to make a block device: {}", reasons.join("; "))))
    }
}

fn already(path: &Path, folder: &Path) -> AttachError {
    let path = status::shown(path);
    AttachError::Refused(match Record::read(folder).and_then(|record| record.node) {
        Some(node) => format!("{path}: already attached as {}", node.display()),
        None => format!("{path}: is being attached or detached by another process"),
    })
}
