//! A configured drive that could not be opened. It is reported as down until it is opened or removed from the
//! configuration.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use status::{DriveState, EventKind, NoTime, ServerReport, StatusReport, TimeToFull, shown};

use crate::serving::instance::instance;
use crate::watch::events::{Event, EventLog};
use crate::watch::hook::Hook;
use crate::watch::monitor::MonitorSettings;

/// A drive that could not be opened, and why.
pub struct DownDrive {
    path: PathBuf,
    settings: MonitorSettings,
    memory: Mutex<Memory>,
    instance: String,
}

struct Memory {
    /// Error of the last attempt to open it.
    reason: String,
    /// It says that acknowledged writes are lost.
    writes_lost: bool,
    events: EventLog,
    hook: Option<Hook>,
}

impl DownDrive {
    /// Creates a drive that has not failed yet, on the current runtime.
    pub(crate) fn new(path: &Path, settings: &MonitorSettings) -> DownDrive {
        // A drive that cannot be read has no id.
        let hook =
            settings.on_event.clone().map(|command| Hook::start(command, path.to_path_buf(), String::new()));
        let memory = Memory { reason: String::new(), writes_lost: false, events: EventLog::default(), hook };
        DownDrive {
            path: path.to_path_buf(),
            settings: settings.clone(),
            memory: Mutex::new(memory),
            instance: instance(),
        }
    }

    /// Path of the backing, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is watched with these settings.
    pub(crate) fn is_watched_by(&self, settings: &MonitorSettings) -> bool {
        self.settings == *settings
    }

    /// Records a failed attempt to open the drive: in the log, as an event, and for the command of
    /// `--on-event`.
    pub(crate) fn fail(&self, error: &str, writes_lost: bool) {
        let path = shown(&self.path);
        let reason = self.reason_of(error);
        let event = Event {
            kind: EventKind::OpenFailed,
            at: SystemTime::now(),
            message: format!("not served: {reason}"),
            used_percent: 0.0,
            available_bytes: 0,
            level_percent: None,
        };
        tracing::error!(drive = %path, event = event.kind.as_str(), "{}", event.message);
        let mut memory = self.memory.lock();
        (memory.reason, memory.writes_lost) = (reason.to_string(), writes_lost);
        memory.events.add(&event);
        if let Some(hook) = &memory.hook {
            hook.sender().send(&event);
        }
    }

    /// Most messages begin with the path, which is reported separately.
    fn reason_of<'a>(&self, error: &'a str) -> &'a str {
        error.strip_prefix(&format!("{}: ", shown(&self.path))).unwrap_or(error)
    }

    /// Returns whether its reason begins with that of an error. Advice may follow.
    pub(crate) fn has_reason(&self, error: &str) -> bool {
        self.memory.lock().reason.starts_with(self.reason_of(error))
    }

    /// Waits, for a limited time, for commands that are still to be run.
    pub async fn finish(&self) {
        let hook = self.memory.lock().hook.take();
        if let Some(hook) = hook {
            hook.finish().await;
        }
    }

    /// The status: path, state, reason and events. Everything else is unknown.
    pub fn report(&self) -> StatusReport {
        let memory = self.memory.lock();
        let server = ServerReport {
            pid: std::process::id(),
            instance: self.instance.clone(),
            events: memory.events.report(&self.settings.warn_at),
            writes_lost: memory.writes_lost,
            ..ServerReport::default()
        };
        StatusReport {
            path: self.path.clone(),
            state: DriveState::Down,
            state_reason: Some(memory.reason.clone()),
            program_version: env!("CARGO_PKG_VERSION").to_string(),
            time_to_full: TimeToFull::unknown(NoTime::NotServed),
            server: Some(server),
            ..StatusReport::default()
        }
    }
}
