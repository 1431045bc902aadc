//! Outcome of a power cut for a write.

/// Fate of a write that nothing made durable.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    Whole,
    Lost,
    /// Each sector is new with a probability of this number in 8.
    Torn(u64),
}
