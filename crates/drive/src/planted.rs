//! Deliberate mistakes.

use strum::{EnumIter, IntoStaticStr};

/// Mistakes that the simulator must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PlantedBug {
    /// FLUSH returns without waiting for the medium.
    SkipFlush,
    /// A pack of moved records may come after the host's pack that overwrites them, so that they are applied
    /// on top.
    ApplyStaleMove,
    /// A segment is written again before the checkpoint that freed it is durable.
    ReuseSegmentEarly,
    /// Recovery accepts a pack whose records fail their checksums.
    IgnoreTornPack,
    /// Recovery does not take a pack with damaged data of hosts, although it was durable.
    DamagedDataRefused,
    /// Recovery does not take a pack of which a bit flipped in a header, although it was durable.
    FlippedHeaderRefused,
    /// Records on pages that were made again stay where they are.
    RepairedNotMoved,
    /// Records on pages that were made again move as if nobody had overwritten them meanwhile.
    OverwrittenMoved,
    /// Parity of an earlier filling of a segment counts as that of the present one.
    ParityOfOtherFilling,
    /// Parity is added to the other pages of its group with its mask.
    ParityUnmasked,
    /// Pages behind the end of a filling count as members of groups.
    PagesBehindEndAdded,
    /// Parity counts as there when it was written, without a sync.
    ParityTrustedUnsynced,
    /// A pack is added twice to the parity of its filling.
    PackAddedTwice,
    /// An opening makes a pack again although nothing proves that it was durable.
    TornTailRemade,
    /// A filling may be freed, and its segment filled again, while its parity is written.
    ParityUnpinned,
    /// Recovery takes a pack with lost payloads although nothing proves that it was durable.
    TornPackTaken,
    /// TRIM changes the map but leaves no record in the log.
    DropTrim,
    /// A cached frame is found by its block, whatever its record is by now.
    StaleFrame,
    /// A block in the read cache is found by its record's place, whichever filling of the segment that is in.
    StaleBlock,
    /// Each block of a frame counts a share of its length as live, rounded down: blocks with a share of 0
    /// keep no segment.
    ZeroShareFrame,
    /// A block read to be merged is identified by its entry alone, and readers of a segment are not waited
    /// for.
    DroppedPin,
    /// A block that a request covers in part is not compared with what its new contents were made from.
    EdgeUnseen,
    /// Cleaning packs the rest of a frame anew even if that is larger.
    UnboundedCleaning,
    /// An opening takes the packs that it finds for durable.
    SyncTrustedAfterError,
    /// An opening takes a pack for durable because another one follows it.
    FollowedTakenForDurable,
    /// An opening takes the last checkpoint of a drive that was closed for durable.
    CloseTrusted,
    /// A read looks for records of an open pack on the medium, if the segment did not take a write.
    OpenPackOverlooked,
    /// What was appended is published record by record.
    PublishedEarly,
    /// State is published after a panic inside the critical section.
    PublishedAfterPanic,
    /// A region of the memory is used again before it is published as free.
    RegionReusedEarly,
    /// A pack that the medium did not take leaves the memory when its contents were written elsewhere.
    FailedPackFreed,
    /// An opening uses the memory of another run than that of the newest checkpoint.
    OtherRunTaken,
    /// An opening uses packs of a memory that the newest checkpoint has made unnecessary.
    CutOverlooked,
    /// An opening does not believe a memory what was on the backing.
    MemoryProvesNothing,
    /// An opening writes the packs of a memory before it knows whether the log leads to them.
    WrittenUnjudged,
    /// A sealed pack keeps the memory of an open one, and is counted by what it contains.
    SealedPackKeepsAll,
    /// A segment that did not take a write is used again.
    BadSegmentForgotten,
    /// A pass that looks for records that need a dictionary skips those that were partly overwritten
    /// meanwhile.
    OverwrittenPassedOver,
    /// An opening continues from an older checkpoint although a newer one may exist that could not be read.
    OlderCheckpointAccepted,
    /// A drive goes on after a panic left its state half changed.
    GoesOnAfterPanic,
    /// Recovery takes a hole in the log for its end, although packs behind it prove that it was durable.
    LostPacksAccepted,
    /// Data may fill all segments but those that the heads are in: nothing is kept for cleaning.
    ReserveForgotten,
    /// A frame is cut without a look at whether its blocks changed meanwhile.
    CutUnseen,
    /// Records get a codec that the superblock does not name.
    CodecUnrecorded,
    /// Others change a block that a request holds.
    HoldIgnored,
    /// A request that held blocks does not give them back.
    HoldKept,
    /// An opening forgets that the backing may hold the space of free segments.
    HeldSpaceForgotten,
    /// An opening after a close takes it that each free segment which was ever used has a row that says so.
    OthersHeldForgotten,
    /// A write that begins or ends within a sector takes effect block by block.
    OddWriteTorn,
    /// The status reports a limit that data has passed by more than is kept for small writes.
    LimitLeftBehind,
    /// A drive answers hosts, and writes, although nobody has made sure lately that it is still the owner's.
    LeaseForgotten,
    /// An owner takes no notice of challenges.
    ChallengeUnanswered,
    /// Cleaning chooses the segment with most that lives, and not the one with most to gain.
    FullestCleaned,
    /// A checkpoint counts, and what it frees is used again, without its far copy.
    FarCopyForgotten,
    /// The blocks that a request merges are compared in one critical section, and replaced in the next.
    ComparedEarly,
}

/// The mistake that a drive makes, if any. A released build without the feature `planted-bugs` has none, and
/// its compiler knows that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    #[cfg(any(feature = "planted-bugs", debug_assertions))]
    bug: Option<PlantedBug>,
}

impl Planted {
    /// Mistakes can be planted in this build.
    pub const IS_POSSIBLE: bool = cfg!(any(feature = "planted-bugs", debug_assertions));

    /// Plants a mistake, if they can be planted in this build ([`Planted::IS_POSSIBLE`]).
    #[cfg(any(feature = "planted-bugs", debug_assertions))]
    pub fn new(bug: Option<PlantedBug>) -> Planted {
        Planted { bug }
    }

    /// Plants a mistake, if they can be planted in this build ([`Planted::IS_POSSIBLE`]).
    #[cfg(not(any(feature = "planted-bugs", debug_assertions)))]
    pub fn new(_bug: Option<PlantedBug>) -> Planted {
        Planted {}
    }

    /// Returns whether the drive makes this mistake.
    #[cfg(any(feature = "planted-bugs", debug_assertions))]
    pub(crate) fn has(self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(any(feature = "planted-bugs", debug_assertions)))]
    pub(crate) const fn has(self, _bug: PlantedBug) -> bool {
        false
    }
}
