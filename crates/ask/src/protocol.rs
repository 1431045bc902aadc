//! Protocol of the admin socket: JSON requests and answers, one per line, over a Unix socket for the owner
//! only.
//!
//! | request | answer |
//! | --- | --- |
//! | `{"command": "status"}` | `{"drives": [...]}`, one report per drive |
//! | `{"command": "change", "drive": UUID, "path": PATH, "change": CHANGE}` | `{"drive": {...}}`, its report afterwards |
//! | any that fails | `{"error": "..."}` |
//!
//! `path`, as in the status, is only needed if copies of the drive are served too. CHANGE is one of
//!
//! - `{"set-capacity": {"bytes": N}}`
//! - `{"set-size": {"bytes": N, "preallocate": false}}`
//! - `{"set-codec": {"codec": "zstd:3"}}`
//! - `{"set-parity": {"parity": "1/32"}}`
//! - `{"start-scrub": {"bytes_per_second": N}}`, `"stop-scrub"`
//! - `{"erase": {"sector_bytes": 4096, "logical_capacity_bytes": N, "only_if_empty": true}}`, all three
//!   optional
//! - `"start-settle"`, `"stop-settle"`, `"train"`

use serde::{Deserialize, Serialize};
use status::{StatusAnswer, StatusReport};

/// A request.
#[derive(Deserialize, Serialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// Report all drives.
    Status,
    /// Change a drive.
    Change {
        /// Id of the drive.
        drive: String,
        /// Path of the drive, as in the status. Distinguishes copies of a drive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// The change.
        change: Change,
    },
}

/// A change of a drive that a server can be asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// The logical capacity.
    SetCapacity {
        /// Capacity that hosts see.
        bytes: u64,
    },
    /// The physical size.
    SetSize {
        /// Bytes of the backing that the drive may use.
        bytes: u64,
        /// Allocate the space of a longer file at once.
        #[serde(default)]
        preallocate: bool,
    },
    /// Compression of new blocks.
    SetCodec {
        /// In the form of `pumice create --codec`.
        codec: String,
    },
    /// Parity of new data.
    SetParity {
        /// In the form of `pumice create --parity`.
        parity: String,
    },
    /// Starts a scrub, or changes the rate of the running one.
    StartScrub {
        /// Bytes of records per second.
        bytes_per_second: u64,
    },
    /// Stops the running scrub.
    StopScrub,
    /// Starts a run that settles everything, or joins the running one.
    StartSettle,
    /// Stops the running settling.
    StopSettle,
    /// Erases the drive, which no client may have: it is closed, wiped and opened again. The answer comes
    /// when that is done.
    Erase {
        /// New sector size, 512 or 4096; `None` keeps it.
        #[serde(default)]
        sector_bytes: Option<u32>,
        /// New logical capacity, smaller or larger than before; `None` keeps it.
        #[serde(default)]
        logical_capacity_bytes: Option<u64>,
        /// Refuse a drive that holds data.
        #[serde(default)]
        only_if_empty: bool,
    },
    /// Trains a dictionary. The answer comes when that is done.
    Train,
}

/// The answer to a request.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// The status of all drives.
    Status(StatusAnswer),
    /// The drive was changed.
    Changed {
        /// Its status afterwards.
        drive: Box<StatusReport>,
    },
    /// The request failed.
    Error {
        /// The message, one line.
        error: String,
    },
}
