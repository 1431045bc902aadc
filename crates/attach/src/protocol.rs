//! Protocol of a bridge's control socket.

use serde::{Deserialize, Serialize};

/// Request at the control socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    Status,
    Detach {
        force: bool,
    },
    /// Answered once a detach in progress has ended.
    AwaitDetach,
}

/// Answer at the control socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Status(Status),
    /// With a description of the loss, if there was one.
    Detached(Option<String>),
    Refused(String),
}

/// State of an attachment, with the reason if it is not the normal one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The state.
    pub state: AttachmentState,
    /// Reason for a state other than `attached`, or a problem of an attached drive.
    pub reason: Option<String>,
    /// Size that the node shows, in bytes.
    pub size_bytes: u64,
    /// A kill of its server loses what is not flushed, and ends the device.
    #[serde(default)]
    pub is_unprotected: bool,
}

impl Status {
    /// That of a node of this size with nothing to tell.
    pub(crate) fn of_size(size_bytes: u64) -> Status {
        Status { state: AttachmentState::Attached, reason: None, size_bytes, is_unprotected: false }
    }
}

/// State of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachmentState {
    /// Requests are passed on.
    Attached,
    /// Requests are held until there is a server again.
    Waiting,
    /// Requests are held until there is a bridge again: the last one was killed.
    Unattended,
    /// Requests fail.
    Failed,
    /// It is being attached or detached.
    Changing,
}
