//! Identity of this process among all servers: process ids are used again.

use std::sync::OnceLock;

/// Returns an id that no other process has, before or after.
pub(crate) fn instance() -> String {
    static ID: OnceLock<uuid::Uuid> = OnceLock::new();
    ID.get_or_init(uuid::Uuid::new_v4).to_string()
}
