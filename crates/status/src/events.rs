//! Report of events.

use serde::{Deserialize, Serialize};

use crate::states::EventKind;

/// Events of a drive since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventsReport {
    /// Levels of physical space in use that cause an event, in percent.
    pub warn_at_percent: Vec<u8>,
    /// Number of events of each kind.
    pub counts: Vec<EventCount>,
    /// Latest events, oldest first.
    pub recent: Vec<RecentEvent>,
}

/// Number of events of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct EventCount {
    pub event: EventKind,
    pub count: u64,
}

/// One of the latest events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RecentEvent {
    pub event: EventKind,
    /// Seconds since 1970.
    pub unix_seconds: u64,
    pub message: String,
    pub used_percent: f64,
    pub level_percent: Option<u8>,
}
