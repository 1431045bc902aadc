//! Purposes for which segments are needed: how urgently a free one is needed, and what cleaning one should
//! gain.

/// Urgency of the need for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// As each head may take it.
    Ordinary,
    /// For operations that free space (TRIM), which leave the stock of cleaning; and for cleaning that
    /// requests wait for.
    Urgent,
    /// For operations that free space, if cleaning gained nothing.
    Last,
    /// For data that the medium did not take: everything except what the map needs.
    Rescue,
}

/// Purpose of cleaning a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    /// Free segments.
    Segments,
    /// Free segments as soon as possible, because requests wait.
    Soon,
    /// Space for the backing: segments of which less than half lives, so that no more is written than given
    /// back.
    Thin,
    /// Room under the limit, by packing frames with dead blocks anew. Worth it if one of so many parts of a
    /// segment may be gained.
    Room(u32),
}

impl Gain {
    /// Worth it in the background.
    pub(crate) const ROOM: Gain = Gain::Room(16);
    /// Worth it before a write is refused.
    pub(crate) const LAST_ROOM: Gain = Gain::Room(64);
}
