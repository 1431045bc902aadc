//! What segments are wanted for: how hard a free one is needed, and what cleaning one is to bring.

/// How hard a segment is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// As each head may.
    Ordinary,
    /// For what frees space (TRIM), which leaves cleaning its stock; and for cleaning where requests wait for it.
    Urgent,
    /// For what frees space, where cleaning has brought nothing.
    Last,
    /// For what the medium did not take: all but what the map needs.
    Rescue,
}

/// What a victim is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    /// Free segments.
    Segments,
    /// Free segments, as soon as can be: requests wait.
    Soon,
    /// Room under the limit: frames of which blocks died, packed anew; where so much of a segment may be gained, a part of this
    /// many.
    Room(u32),
}

impl Gain {
    /// Worth it in the background.
    pub(crate) const ROOM: Gain = Gain::Room(16);
    /// Worth it before a write is refused.
    pub(crate) const LAST_ROOM: Gain = Gain::Room(64);
}
