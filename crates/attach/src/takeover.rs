//! Takeovers of nodes that killed bridges left.

use serde::{Deserialize, Serialize};

/// Progress of a takeover that was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Takeover {
    /// The driver may have forgotten the last bridge. No queue has sent anything.
    Asked,
    /// Some queues may have a thread, and others none.
    Begun,
    /// All queues have a thread.
    Ready,
}
