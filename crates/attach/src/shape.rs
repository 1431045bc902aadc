//! Properties of a drive that its node shows.

use serde::{Deserialize, Serialize};

/// Properties of a drive that its node shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest request: the logical block size of the node.
    pub sector_bytes: u32,
    /// The node refuses writes.
    pub read_only: bool,
    /// The node has a volatile cache: the kernel sends flushes. Without, every change is durable before it is
    /// acknowledged.
    #[serde(default = "has_cache")]
    pub write_cache: bool,
}

impl Shape {
    /// Returns whether a drive of this shape can be behind a node that shows `shown`.
    pub(crate) fn fits(&self, shown: &Shape) -> bool {
        self.size_bytes >= shown.size_bytes
            && (self.sector_bytes, self.read_only) == (shown.sector_bytes, shown.read_only)
    }
}

/// What nodes of older programs show.
fn has_cache() -> bool {
    true
}
