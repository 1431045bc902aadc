//! States and kinds in a status report, with their names in JSON.
//!
//! An unknown name, of a newer server, is read as `Unknown`, so that the rest of the report can be shown.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $variant,)+
            /// Known to a newer program only, or not available.
            #[default]
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl $name {
            /// All values but `Unknown`.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// The name in JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Unknown => "unknown",
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use states;

states! {
    /// State of a drive.
    DriveState {
        /// Served, reads and writes.
        Online = "online",
        /// Served, refuses writes: by request, or because it is damaged.
        ReadOnly = "read-only",
        /// Served, refuses writes since a write or sync of the backing failed.
        Poisoned = "poisoned",
        /// Does not take requests any more.
        Closed = "closed",
        /// Not served.
        Idle = "idle",
        /// Not served, and opened only by giving up a part of its log.
        Damaged = "damaged",
        /// Configured, and could not be opened by its server.
        Down = "down",
    }
}

states! {
    /// Reason why there is no time to full.
    NoTime {
        /// Nothing is available, on the drive or in the file system or volume under it.
        Full = "full",
        /// Used space did not grow over the last five minutes.
        NotGrowing = "not growing",
        /// All of the logical capacity fits at the ratio of recently written data.
        CapacityFirst = "capacity first",
        /// Used space grew in a burst, not steadily.
        NoTrend = "no trend",
        /// The drive was opened less than a minute ago.
        SeenTooShort = "seen too short",
        /// No server has the drive.
        NotServed = "not served",
    }
}

states! {
    /// Source of the percentage of life used.
    WearSource {
        /// Bytes written, of the endurance given at creation.
        Endurance = "endurance",
        /// The value that the most worn disk reports.
        Device = "device",
    }
}

states! {
    /// State of a scrub.
    ScrubState {
        /// In progress.
        Running = "running",
        /// Every record was read.
        Finished = "finished",
        /// Ended by a user, or because the drive was closed.
        Stopped = "stopped",
    }
}

states! {
    /// State of settling.
    SettlingState {
        /// Switched off, or the drive refuses writes.
        Off = "off",
        /// Nothing is left to settle.
        Resting = "resting",
        /// In progress.
        Working = "working",
        /// Waits for space: cleaning and writers come first.
        Waiting = "waiting",
        /// A run started by a user is in progress.
        Asked = "asked",
    }
}

states! {
    /// State of a settling run that a user started.
    RunState {
        /// In progress.
        Running = "running",
        /// Reached the end of the drive.
        Finished = "finished",
        /// Ended by a user, or because the drive was closed.
        Stopped = "stopped",
        /// Ended by an error, or for lack of space.
        Failed = "failed",
    }
}

states! {
    /// Storage format of live data.
    LiveKind {
        /// Uncompressed: it does not compress.
        Raw = "raw",
        /// Compressed when it was written.
        Fresh = "fresh",
        /// Recompressed as well as the drive can.
        Settled = "settled",
    }
}

states! {
    /// Source of the sample that dictionaries are trained on.
    SampleSource {
        /// Data written since the drive was opened, or since the training before.
        Written = "written",
        /// Data that the drive holds, read back.
        Live = "live",
    }
}

states! {
    /// Kind of a backing.
    BackingKind {
        /// A file.
        File = "file",
        /// A block device.
        BlockDevice = "block device",
    }
}

states! {
    /// Where the backing of a served drive is; `Unknown` if the drive is not served, or its path could never
    /// be looked at.
    BackingPlace {
        /// At its path. Also a file that never had a name.
        InPlace = "in-place",
        /// Nothing is at its path. The file has another name.
        Moved = "moved",
        /// Another file or device is at its path. A file has another name.
        Replaced = "replaced",
        /// It has no name: it exists only as long as its server has it open. Another file may be at its path.
        Deleted = "deleted",
    }
}

impl BackingPlace {
    /// Returns whether the path of the backing does not lead to it, although data is not lost.
    pub fn is_elsewhere(self) -> bool {
        matches!(self, BackingPlace::Moved | BackingPlace::Replaced)
    }

    /// Returns what is wrong and what to do, in one line for people. `None` if nothing is known to be wrong.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            BackingPlace::Deleted => Some(
                "the backing was deleted (if a file is at its path, it is another one): its data is lost when its \
                 server ends; do not stop or restart that, nor detach the drive, and copy the data first \
                 (docs/how-to/backing-trouble.md)",
            ),
            BackingPlace::Moved => Some(
                "nothing is at the path of the backing, which has another name now: rename it back, or the next start \
                 of its server does not find it (docs/how-to/backing-trouble.md)",
            ),
            BackingPlace::Replaced => Some(
                "another file or device is at the path of the backing, and the next start of its server would open \
                 that one: put the backing back (docs/how-to/backing-trouble.md)",
            ),
            BackingPlace::InPlace | BackingPlace::Unknown => None,
        }
    }
}

states! {
    /// I/O engine of a server.
    IoBackend {
        /// One ring per worker thread.
        Uring = "io_uring",
        /// System calls on helper threads.
        Plain = "plain",
    }
}

states! {
    /// Kind of an event.
    EventKind {
        /// The drive accepts requests.
        Opened = "opened",
        /// The drive accepts no more requests.
        Closed = "closed",
        /// Physical space in use reached a level of `--warn-at`.
        SpaceWarning = "space-warning",
        /// Physical space in use fell below a level of `--warn-at`.
        SpaceWarningOver = "space-warning-over",
        /// Writes are held for lack of physical space.
        WritesHeld = "writes-held",
        /// Writes are refused for lack of physical space.
        OutOfSpace = "out-of-space",
        /// Writes are accepted again.
        SpaceBack = "space-back",
        /// A write or sync of the backing failed. The drive is read-only from now on.
        Poisoned = "poisoned",
        /// Reads found records that differ from what was written.
        CorruptRecord = "corrupt-record",
        /// A dictionary was trained, and new records are compressed with it.
        DictionaryAdopted = "dictionary-adopted",
        /// A write to a segment failed, and the segment was set aside.
        BadSegment = "bad-segment",
        /// A segment holds records that cannot be read, and was set aside.
        DamagedSegment = "damaged-segment",
        /// Pages that were lost or wrong were repaired by parity.
        PageRepaired = "page-repaired",
        /// Pages are lost that parity cannot repair.
        PageLost = "page-lost",
        /// So many pages were repaired lately that the backing seems to fail.
        BackingFailing = "backing-failing",
        /// The backing is shorter than the drive.
        BackingTruncated = "backing-truncated",
        /// The backing has the length of the drive again.
        BackingRestored = "backing-restored",
        /// The backing was deleted, and exists only as long as its server has it open.
        BackingDeleted = "backing-deleted",
        /// The path of the backing leads to nothing, or to another file or device.
        BackingMoved = "backing-moved",
        /// The path of the backing leads to it again.
        BackingFound = "backing-found",
        /// The drive could not be opened.
        OpenFailed = "open-failed",
        /// Acknowledged writes of a killed server are lost: its memory could not be used.
        WritesLost = "writes-lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_json_are_those_that_are_printed() {
        for state in DriveState::ALL {
            assert_eq!(serde_json::to_value(state).expect("JSON"), state.as_str());
            let name = state.as_str().into();
            assert_eq!(serde_json::from_value::<DriveState>(name).expect("a state"), *state);
        }
        assert_eq!(serde_json::to_value(NoTime::CapacityFirst).expect("JSON"), "capacity first");
        assert_eq!(format!("{:>10}|", DriveState::ReadOnly), " read-only|");
    }

    #[test]
    fn every_place_but_the_right_one_has_advice_in_one_line() {
        for place in BackingPlace::ALL {
            let advice = place.advice();
            assert_eq!(advice.is_none(), *place == BackingPlace::InPlace, "{place}");
            assert!(advice.is_none_or(|text| !text.contains('\n') && !text.contains("  ")), "{place}");
        }
        assert_eq!(BackingPlace::default().advice(), None);
    }

    #[test]
    fn a_state_of_a_newer_program_is_unknown() {
        let state: DriveState = serde_json::from_str("\"hibernating\"").expect("any name");
        assert_eq!((state, state.as_str()), (DriveState::Unknown, "unknown"));
    }
}
