//! What hosts wrote lately.

use serde::{Deserialize, Serialize};

/// Data that hosts wrote lately. Without fills.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecentlyWritten {
    /// Time over which it was written; `None` if the drive is not served.
    pub window_seconds: Option<f64>,
    /// In logical space.
    pub logical_bytes: u64,
    /// Its records, with headers.
    pub physical_bytes: u64,
    /// Logical / physical; `None` if it is too little to tell.
    pub compression_ratio: Option<f64>,
}
