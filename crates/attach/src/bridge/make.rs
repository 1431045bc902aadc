//! Creation of an attachment: its server and its node, or takeover of a node that a killed bridge
//! left.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ask::DriveSearch;
use parking_lot::Mutex;

use super::{Attachment, AttachmentState, Options, Shown};
use crate::error::AttachError;
use crate::kernel::stderr_to;
use crate::ledger::Ledger;
use crate::node::{self, Node, Remains, Source};
use crate::node_kind::NodeKind;
use crate::place::{self, FolderLock, Record, TakenOver};
use crate::process::{self, Process};
use crate::question;
use crate::served::Known;
use crate::server::{self, DriveServer, SharedServer, Started};
use crate::sfx::{self, Published};
use crate::shape::Shape;
use crate::upstream::{Server, Supply, Upstream};

/// Time for a server that is starting to have the drive open.
const OPENS: Duration = Duration::from_secs(60);
/// Time for a bridge that was killed to end.
const ENDS: Duration = Duration::from_secs(30);
/// Time for a bridge that does not answer to let go of its lock: one that was killed.
const UNLOCKS: Duration = Duration::from_secs(10);
/// Time for one that is detaching to have done so.
const DETACHES: Duration = Duration::from_secs(60);
/// Interval of checks whether it has.
const POLL: Duration = Duration::from_millis(20);

/// Parts of an attachment that are made for it.
type Made = (Record, Shape, Box<dyn Node>, Arc<dyn Upstream>, (Known, DriveSearch));

impl Attachment {
    pub(super) fn make(options: &Options, abandoned: &AtomicBool) -> Result<Attachment, AttachError> {
        let folder = place::folder(&options.path);
        let lock = lock(&options.path, &folder, abandoned)?;
        let stale = Record::read(&folder);
        // Its connections are closed then. The server drops their requests before it accepts other
        // connections.
        if let Some(stale) = &stale
            && !process::wait_for_end(stale.bridge_pid, stale.bridge_started, ENDS)
        {
            let why = format!("its last bridge, process {}, does not end", stale.bridge_pid);
            return Err(AttachError::Refused(format!("{}: {why}", status::shown(&options.path))));
        }
        // Of any kind: one that works must not be taken for one that is dead.
        let waiting = match &stale {
            Some(stale) => node::waiting(stale, &folder, NodeKind::ALL)?,
            None => None,
        };
        if let Some(node) = &waiting
            && let Some(way) = stale.as_ref().and_then(|stale| stale.way)
            && !options.ways.contains(&way)
        {
            return Err(AttachError::Refused(format!(
                "{}: {} waits for `pumice attach` with --by {way}, or without --by; or detach it first",
                status::shown(&options.path),
                node.display()
            )));
        }
        // If something uses the node of a killed bridge, everything stays, with the record. It can be
        // detached later.
        let clear = || {
            node::clear_stale(stale.as_ref(), &folder, Remains::Dead, false)?;
            // Another drive may get a node of this name.
            if let Some(node) = stale.as_ref().and_then(|stale| stale.node.as_deref()) {
                sfx::clear(&options.path, node);
            }
            Ok(())
        };
        if waiting.is_none() {
            clear()?;
        }
        let mut left = waiting.as_deref().zip(stale.as_ref());
        // It may be opening the drive still.
        let server = stale.as_ref().and_then(|stale| server::left(&folder, stale));
        let started = Started::new(&folder, server);
        let ledger = Arc::new(Ledger::new(folder.clone(), left.and_then(|(_, stale)| stale.takeover)));
        let mut made = Attachment::make_in((&folder, &ledger), options, left, abandoned, &started);
        if matches!(made, Err(AttachError::NothingLeft { .. })) {
            let _ = place::note_serving(&folder, Some(Process::ENDED));
            made = clear().and_then(|()| {
                left = None;
                Attachment::make_in((&folder, &ledger), options, left, abandoned, &started)
            });
        }
        let (record, shape, node, upstream, (known, search)) = made.inspect_err(|_| match left {
            // Another attempt may take it over, and needs to know how far this one got.
            Some((_, stale)) => {
                let _ = started.stop_own().inspect_err(|why| tracing::error!("{why}"));
                let takeover = Record::read(&folder).map_or(stale.takeover, |record| record.takeover);
                let own = Record::new(options.path.clone());
                let (bridge_pid, bridge_started) = (own.bridge_pid, own.bridge_started);
                let made_by = Some(stale.maker());
                let left = Record { bridge_pid, bridge_started, made_by, takeover, ..stale.clone() };
                let _ = left.write(&folder);
            }
            // One that an earlier bridge has started may be rolling its log forward. Whoever attaches or
            // detaches next finds it.
            None if started.left().is_some() => {}
            None => match started.stop(false) {
                Ok(()) => place::remove(&folder),
                Err(why) => tracing::error!("{why}"),
            },
        })?;
        let published = Published::start(&record.path, node.path(), search.find().as_ref());
        Ok(Attachment {
            shown: Arc::new(Mutex::new(Shown {
                size_bytes: shape.size_bytes,
                refused_size: None,
                is_unprotected: false,
                has_lost: false,
                outlives_server: true,
                is_detaching: false,
            })),
            folder,
            record,
            ledger,
            shape,
            node,
            upstream,
            started,
            known,
            search,
            published,
            _lock: lock,
        })
    }

    /// `left`: a node that waits for a bridge, and the record of the one that was killed.
    fn make_in(
        (folder, ledger): (&Path, &Arc<Ledger>),
        options: &Options,
        left: Option<(&Path, &Record)>,
        abandoned: &AtomicBool,
        started: &Started,
    ) -> Result<Made, AttachError> {
        let at_folder = |source| AttachError::system(folder.display(), source);
        let given_up = || abandoned.load(Ordering::Relaxed);
        let stale = left.map(|(_, stale)| stale);
        // Keeps the record for the next bridge, in case this one is killed too.
        let own = Record::new(options.path.clone());
        let mut record = match stale {
            Some(stale) => Record {
                bridge_pid: own.bridge_pid,
                bridge_started: own.bridge_started,
                made_by: Some(stale.maker()),
                passed_over: Vec::new(),
                taken_over: None,
                ..stale.clone()
            },
            None => own,
        };
        record.server_pid = started.pid();
        record.backing = place::file_id(&options.path);
        let of_drive =
            |reason: &str| AttachError::Refused(format!("{}: {reason}", status::shown(&options.path)));
        let waits = |folder: &Path, other: &Record| {
            node::waiting(other, folder, NodeKind::ALL).map_or(true, |node| node.is_some())
        };
        let claim = |record: &Record| match place::claim(folder, record, waits).map_err(at_folder)? {
            Some(other) => {
                let (path, node) = (status::shown(&other.path).to_string(), other.node.unwrap_or_default());
                Err(of_drive(&format!("already attached as {}, by its path {path}", node.display())))
            }
            None => Ok(()),
        };
        // Before a server is started, which another bridge could use as well.
        claim(&record)?;
        let expected = stale.and_then(|stale| stale.identity.clone());
        let mut server =
            DriveServer::new(&options.path, folder, options.start.clone(), started.clone(), expected);
        if let Some(served) = stale.and_then(|stale| stale.served.as_deref()) {
            server.marks.note(Path::new(served));
        }
        // A server that the killed bridge has just started may be opening the drive still.
        let insist = left.map_or(Duration::ZERO, |_| OPENS);
        let path = || options.path.clone();
        let connected = server.first(options.wait, insist, given_up);
        let is_other = server.is_other;
        let connected = connected.map_err(|source| match left {
            Some((node, _)) if is_other => {
                AttachError::OtherDrive { path: path(), node: node.to_path_buf(), source: Box::new(source) }
            }
            _ => AttachError::Server { path: path(), source: Box::new(source) },
        })?;
        record.server_pid = started.pid();
        let (drive, served) = server.drive().ok_or_else(|| of_drive("its size is unknown"))?;
        record.writes_lost = served.has_lost && started.pid().is_some();
        record.served = Some(served.path);
        record.identity = Some(served.identity);
        claim(&record)?;
        let (known, search) = (server.known.clone(), server.search.clone());
        let server = SharedServer(Arc::new(Mutex::new(server)));
        let mut connected = Some(connected);
        let mut source = || -> Result<Source, AttachError> {
            let connected = match connected.take() {
                Some(connected) => connected,
                None => server.clone().connect(&Supply::Nothing).map_err(|source| AttachError::Server {
                    path: options.path.clone(),
                    source: Box::new(source),
                })?,
            };
            let (server, patience, ledger) = (server.clone(), options.patience, ledger.clone());
            let note_step = Arc::new(move |step| ledger.note_step(step));
            Ok(Source { connected, server, patience, note_step })
        };
        if let Some((node, stale)) = left {
            // What was acknowledged is in the memory of the server, or was left to the next one.
            let is_same = Some(&served.instance) == stale.connected.as_ref() && !served.instance.is_empty();
            let is_kept = stale.memory_kept || stale.is_durable();
            let is_complete = (is_same || is_kept && !served.has_lost) && !stale.loss_to_report;
            record.loss_to_report = !is_complete;
            record.memory_kept = stale.memory_kept && served.memory_kept;
            ledger.write(&record).map_err(at_folder)?;
            let ((node, upstream), shape) = node::recover(node, source()?, &drive, folder, stale)?;
            tracing::info!(is_complete, "taken over from a bridge that was killed");
            record.taken_over = Some(TakenOver { is_complete });
            (record.connected, record.memory_kept) = (Some(served.instance), served.memory_kept);
            record.shape = Some(shape.clone());
            ledger.write(&record).map_err(at_folder)?;
            return Ok((record, shape, node, upstream, (known, search)));
        }
        (record.connected, record.memory_kept) = (Some(served.instance), served.memory_kept);
        record.shape = Some(drive.shape.clone());
        let last = sfx::last_node(&options.path);
        for way in &options.ways {
            let note = |path: &Path| {
                (record.node, record.way) = (Some(path.to_path_buf()), Some(*way));
                ledger.write(&record).map_err(at_folder)
            };
            match node::make(*way, source()?, &drive, folder, last.as_deref(), note) {
                Ok((node, upstream)) => {
                    (record.node, record.way) = (Some(node.path().to_path_buf()), Some(*way));
                    ledger.write(&record).map_err(at_folder)?;
                    return Ok((record, drive.shape, node, upstream, (known, search)));
                }
                Err(AttachError::Missing(reason)) => record.passed_over.push((*way, reason)),
                Err(error) => return Err(error),
            }
        }
        let reasons: Vec<String> =
            record.passed_over.iter().map(|(way, reason)| format!("{way}: {reason}")).collect();
        Err(AttachError::Refused(format!("cannot create a block device: {}", reasons.join("; "))))
    }
}

/// Creates the folder of an attachment, redirects the log of this process to it, and locks it. A killed
/// bridge releases its lock when the kernel has closed its files. A detaching one releases it after removing
/// the folder.
fn lock(path: &Path, folder: &Path, abandoned: &AtomicBool) -> Result<FolderLock, AttachError> {
    let at_folder = |source| AttachError::system(folder.display(), source);
    let log = || {
        place::make(folder)?;
        stderr_to(&File::options().create(true).append(true).open(place::bridge_log(folder))?)
    };
    let (since, mut has_log) = (Instant::now(), false);
    while !abandoned.load(Ordering::Relaxed) {
        let logged = if has_log { Ok(()) } else { log() };
        has_log = true;
        match logged.and_then(|()| place::lock(folder)) {
            Ok(Some(lock)) => {
                // The first log may have gone with an earlier folder of this name.
                log().map_err(at_folder)?;
                return Ok(lock);
            }
            Ok(None) => {
                let patience = match question::state(folder) {
                    Ok(AttachmentState::Changing) => DETACHES,
                    Ok(_) => Duration::ZERO,
                    Err(_) => UNLOCKS,
                };
                if since.elapsed() >= patience {
                    break;
                }
            }
            // It was removed in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound && since.elapsed() < UNLOCKS => {
                has_log = false;
            }
            Err(error) => return Err(at_folder(error)),
        }
        sleep(POLL);
    }
    Err(already(path, folder))
}

fn already(path: &Path, folder: &Path) -> AttachError {
    let path = status::shown(path);
    let state = question::state(folder);
    let is_changing = matches!(state, Ok(AttachmentState::Changing) | Err(_));
    let advice = match state {
        Ok(AttachmentState::Failed) => ", whose requests fail: `pumice detach` it first",
        _ => "",
    };
    AttachError::Refused(match Record::read(folder).and_then(|record| record.node) {
        Some(node) if !is_changing => format!("{path}: already attached as {}{advice}", node.display()),
        _ => format!("{path}: is being attached or detached by another process"),
    })
}
