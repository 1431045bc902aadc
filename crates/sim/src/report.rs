//! What running a seed gives.

use crate::Counts;

/// Result of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Counts of events.
    pub counts: Counts,
    /// Reason of the failure, if any.
    pub failure: Option<String>,
    /// Number of scheduler steps. It differs between runs of the same seed only if something is not
    /// deterministic.
    pub steps: u64,
}
