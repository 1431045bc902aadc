//! The drive below a node, as its server last reported it.

use std::sync::Arc;

use parking_lot::Mutex;
use status::{DriveState, StatusReport, path_text};

use crate::identity::Identity;

/// Why acknowledged writes are not there if a server refuses to go on without them.
pub(crate) const LOST: &str = "acknowledged writes that were not flushed are lost";

/// The drive as its server last reported it, and which server that was. The bridge updates it. And whether
/// what was found instead of the drive means that acknowledged writes are not there.
#[derive(Clone, Default)]
pub(crate) struct Known {
    served: Arc<Mutex<Option<Served>>>,
    missing: Arc<Mutex<Option<String>>>,
}

/// A drive that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// Its opening: the `instance` that the server reports; empty if unknown.
    pub(crate) instance: String,
    /// Its path as the server has it.
    pub(crate) path: String,
    pub(crate) identity: Identity,
    /// At this opening, acknowledged writes were lost.
    pub(crate) has_lost: bool,
    /// What the server has acknowledged outlives a kill.
    pub(crate) memory_kept: bool,
}

impl Known {
    /// Why what was acknowledged is not there, if that was found.
    pub(crate) fn missing(&self) -> Option<String> {
        self.missing.lock().clone()
    }

    /// A server has found that acknowledged writes are not there. Whatever the next ones say, that stays so
    /// until one serves the drive.
    pub(crate) fn note_missing(&self, why: impl Into<String>) {
        self.missing.lock().get_or_insert(why.into());
    }

    /// A server serves the drive.
    pub(crate) fn set(&self, served: Served) {
        *self.served.lock() = Some(served);
        *self.missing.lock() = None;
    }

    pub(crate) fn get(&self) -> Option<Served> {
        self.served.lock().clone()
    }

    /// Records a later state if it comes from the server of the last connections. Returns the updated record.
    pub(crate) fn note(&self, report: &StatusReport) -> Option<Served> {
        let mut known = self.served.lock();
        let served = known.as_mut()?;
        if instance(report).cloned().unwrap_or_default() != served.instance
            || served.identity.check(report).is_err()
        {
            return None;
        }
        served.path = path_text(&report.path);
        served.identity = served.identity.followed_by(report);
        // One that is closing, or has failed, says nothing of what it acknowledged before.
        if report.state == DriveState::Online {
            served.memory_kept = memory_kept(report);
        }
        Some(served.clone())
    }
}

/// What the server has acknowledged outlives a kill.
pub(crate) fn memory_kept(report: &StatusReport) -> bool {
    !report.write_cache || report.server.as_ref().is_some_and(|server| server.memory_kept)
}

/// Unique id of the opening of a drive by its server; `None` if the server does not report it: an older
/// program.
pub(crate) fn instance(report: &StatusReport) -> Option<&String> {
    report.server.as_ref().map(|server| &server.instance).filter(|instance| !instance.is_empty())
}
