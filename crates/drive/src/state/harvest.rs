//! Yield of cleaning, so that cleaning stops if it gains nothing.

/// Segments cleaned in the background without gaining a free one, after which cleaning stops until something
/// has changed. More than it takes to gain one from segments that are nearly all live.
pub(crate) const CLEANED_IN_VAIN_MAX: u32 = 64;
/// The same for requests, which try harder.
pub(crate) const CLEANED_IN_VAIN_BY_REQUESTS_MAX: u32 = 2 * CLEANED_IN_VAIN_MAX;

/// Gain of cleaning since data of the size of a segment changed. On a full drive with a large map it may gain
/// nothing: what is moved changes the map, which is written to what was gained.
#[derive(Default)]
pub(crate) struct Harvest {
    /// Data that hosts had written and trimmed, in segments.
    pub(crate) changed: u64,
    /// Live units.
    pub(crate) live_units: u64,
    /// Largest number of free segments, including dead ones.
    pub(crate) best: u32,
    /// Segments cleaned since then.
    pub(crate) in_vain: u32,
}
