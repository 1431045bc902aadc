//! Identity of an opening of a drive: process ids are used again, and a process may close a drive and open it
//! again.

/// Returns an id that no other opening has, before or after, by this process or another one.
pub(crate) fn instance() -> String {
    uuid::Uuid::new_v4().to_string()
}
