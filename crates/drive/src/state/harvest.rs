//! What cleaning brings, so that it is given up where that is nothing.

/// Segments cleaned in the background without one more free in the end, after which it is given up until something has changed:
/// more than it takes to gain one from segments that are nearly all live.
pub(crate) const CLEANED_IN_VAIN_MAX: u32 = 64;
/// The same for requests, which try harder.
pub(crate) const CLEANED_IN_VAIN_BY_REQUESTS_MAX: u32 = 2 * CLEANED_IN_VAIN_MAX;

/// What cleaning has brought since anything changed as much as a segment. On a full drive with a large map it may bring nothing:
/// what is moved changes the map, and that is written to what was gained.
#[derive(Default)]
pub(crate) struct Harvest {
    /// Segments' worth of data that hosts had written and trimmed.
    pub(crate) changed: u64,
    /// Live units.
    pub(crate) live_units: u64,
    /// Free segments, at most, dead ones counted.
    pub(crate) best: u32,
    /// Segments cleaned since there were so many.
    pub(crate) in_vain: u32,
}
