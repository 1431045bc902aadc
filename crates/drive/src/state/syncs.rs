//! Syncs of the medium, and the flushes that wait for them.

/// State of syncs and flushes. The rules are in `medium/durability.rs`.
#[derive(Default)]
pub(crate) struct Syncs {
    /// There are never two at a time.
    pub(crate) in_progress: bool,
    /// Syncs that have ended.
    pub(crate) ended_count: u64,
    /// Newest pack that a flush sealed and waits for. Until it is durable, other flushes join the next one.
    pub(crate) flushing_up_to: u64,
}
