//! Kinds of stories.

use std::fmt;
use std::str::FromStr;

/// Layer between the server and the disk, and faults in addition to power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Direct I/O: power cuts, kills, failed syncs.
    Direct,
    /// Through the page cache: power cuts, kills, and failed syncs that end with a power cut.
    Cache,
    /// Through the page cache: failed syncs, then a kill and a restart over a cache that shows lost data, and
    /// later a power cut.
    Fsyncgate,
    /// Direct I/O to a disk that shows, until a power cut, what a failed sync lost.
    StaleDisk,
    /// Direct I/O: mostly kills, some of them between power cuts. Each counts as a cut.
    Kills,
    /// Direct I/O, below a loop device of `pumice attach`: power cuts, and kills and restarts of the server
    /// under clients that go on, kills of the keeper, and of both. Each kill of a server counts as a cut.
    Attached,
    /// Direct I/O, a drive with parity: as `Direct`, and the disk loses pages all the time, within what
    /// parity covers.
    Parity,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 7] = [
        Mode::Direct,
        Mode::Cache,
        Mode::Fsyncgate,
        Mode::StaleDisk,
        Mode::Kills,
        Mode::Attached,
        Mode::Parity,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Direct => "direct",
            Mode::Cache => "cache",
            Mode::Fsyncgate => "fsyncgate",
            Mode::StaleDisk => "stale-disk",
            Mode::Kills => "kills",
            Mode::Attached => "attached",
            Mode::Parity => "parity",
        }
    }

    /// Returns whether a server may be started after a failed sync without a power cut in between.
    pub fn restarts_after_failed_sync(self) -> bool {
        self != Mode::Cache
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A name that no mode has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", Mode::ALL.map(Mode::name).join(", "))]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Mode, UnknownMode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name).ok_or(UnknownMode)
    }
}
