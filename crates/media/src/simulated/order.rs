//! Order in which operations complete.

/// Operation in flight that completes next. One step in four is random in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimOrder {
    /// Any.
    #[default]
    Random,
    /// The one that was issued last: old ones starve.
    Newest,
    /// The one that was issued first.
    Oldest,
    /// The one with the highest priority, a random number that each operation is given when it is issued.
    Priority,
}
