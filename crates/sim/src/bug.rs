//! Mistakes planted on purpose, to verify that the simulator finds them.

use drive::PlantedBug;
use strum::IntoEnumIterator;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A mistake of the engine.
    Drive(PlantedBug),
    /// The server ignores FUA on writes.
    FuaForgotten,
    /// The server takes each client to be there, also one that has left.
    FenceBlind,
}

impl Bug {
    /// All planted mistakes.
    pub fn all() -> impl Iterator<Item = Bug> {
        PlantedBug::iter().map(Bug::Drive).chain([Bug::FuaForgotten, Bug::FenceBlind])
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Bug::Drive(bug) => bug.into(),
            Bug::FuaForgotten => "fua-forgotten",
            Bug::FenceBlind => "fence-blind",
        }
    }

    /// The mistake with this name.
    pub fn from_name(name: &str) -> Option<Bug> {
        Bug::all().find(|bug| bug.name() == name)
    }

    /// Returns the mistake for the engine to make. `None` if it is a mistake of the server.
    pub fn of_drive(self) -> Option<PlantedBug> {
        match self {
            Bug::Drive(bug) => Some(bug),
            Bug::FuaForgotten | Bug::FenceBlind => None,
        }
    }
}
