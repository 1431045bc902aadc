//! Mistakes planted on purpose, to see whether the simulator finds them.

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// FLUSH answers without waiting for the medium.
    SkipFlush,
    /// Data that cleaning moved comes back over newer data.
    ApplyStaleMove,
    /// Space is written again before what freed it is durable.
    ReuseSegmentEarly,
    /// Recovery takes a pack whose checksum does not match.
    IgnoreTornPack,
    /// TRIM leaves nothing in the log.
    DropTrim,
    /// Reads are answered by what a block held before.
    StaleFrame,
    /// Blocks of short frames count nothing, so that their segment is freed while they live.
    ZeroShareFrame,
    /// A place that is being read is written again, and what came to be there is taken for what was read.
    DroppedPin,
    /// Cleaning makes larger what it moves.
    UnboundedCleaning,
    /// What a page cache shows after a failed sync is taken for what is on the medium.
    SyncTrustedAfterError,
    /// A segment that did not take a write is used again.
    BadSegmentForgotten,
    /// The server takes a durable write for any other.
    FuaForgotten,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 12] = [
        Bug::SkipFlush,
        Bug::ApplyStaleMove,
        Bug::ReuseSegmentEarly,
        Bug::IgnoreTornPack,
        Bug::DropTrim,
        Bug::StaleFrame,
        Bug::ZeroShareFrame,
        Bug::DroppedPin,
        Bug::UnboundedCleaning,
        Bug::SyncTrustedAfterError,
        Bug::BadSegmentForgotten,
        Bug::FuaForgotten,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Bug::SkipFlush => "skip-flush",
            Bug::ApplyStaleMove => "apply-stale-move",
            Bug::ReuseSegmentEarly => "reuse-segment-early",
            Bug::IgnoreTornPack => "ignore-torn-pack",
            Bug::DropTrim => "drop-trim",
            Bug::StaleFrame => "stale-frame",
            Bug::ZeroShareFrame => "zero-share-frame",
            Bug::DroppedPin => "dropped-pin",
            Bug::UnboundedCleaning => "unbounded-cleaning",
            Bug::SyncTrustedAfterError => "sync-trusted-after-error",
            Bug::BadSegmentForgotten => "bad-segment-forgotten",
            Bug::FuaForgotten => "fua-forgotten",
        }
    }

    /// The bug of this name.
    pub fn from_name(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| bug.name() == name)
    }
}
