//! Mistakes made on purpose.

use strum::{EnumIter, IntoStaticStr};

/// Mistakes that the simulator must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PlantedBug {
    /// FLUSH answers without waiting for the medium.
    SkipFlush,
    /// A pack of moved records may come behind the host's pack that overwrites them, so that they are applied over it.
    ApplyStaleMove,
    /// A segment is written again before the checkpoint that freed it is durable.
    ReuseSegmentEarly,
    /// Recovery takes a pack whose records fail their checksums.
    IgnoreTornPack,
    /// TRIM changes the map but leaves no record in the log.
    DropTrim,
    /// A frame kept decompressed is found by its block, whatever its record is by now.
    StaleFrame,
    /// Each block of a frame counts a share of its length as live, rounded down: blocks that count nothing hold no segment.
    ZeroShareFrame,
    /// A block that was read to be merged is known again by its entry alone, and readers of a segment are not waited for.
    DroppedPin,
    /// Cleaning packs what is left of a frame anew even where that is larger.
    UnboundedCleaning,
    /// Opening takes what a cache shows for what is on the medium.
    SyncTrustedAfterError,
    /// A segment that did not take a write is used again.
    BadSegmentForgotten,
    /// A pass that looks for what needs a dictionary passes over what was overwritten in part meanwhile.
    OverwrittenPassedOver,
    /// Opening goes on by an older checkpoint where the newest may be one that could not be read.
    OlderCheckpointAccepted,
}

/// The mistake of a drive, if it makes one. A build without the feature `planted-bugs` has none, and its compiler knows that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<PlantedBug>,
}

impl Planted {
    /// Plants a mistake. Does nothing without the feature `planted-bugs`.
    #[cfg(feature = "planted-bugs")]
    pub fn new(bug: Option<PlantedBug>) -> Planted {
        Planted { bug }
    }

    /// Plants a mistake. Does nothing without the feature `planted-bugs`.
    #[cfg(not(feature = "planted-bugs"))]
    pub fn new(_bug: Option<PlantedBug>) -> Planted {
        Planted {}
    }

    /// Whether the drive makes this mistake.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn has(self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn has(self, _bug: PlantedBug) -> bool {
        false
    }
}
