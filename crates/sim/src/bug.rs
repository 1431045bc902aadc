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
    /// The backing looks at the lease when it queues a change, and not when it gives it to the kernel.
    LeaseCheckedEarly,
}

impl Bug {
    /// All planted mistakes.
    pub fn all() -> impl Iterator<Item = Bug> {
        PlantedBug::iter().map(Bug::Drive).chain([Bug::FuaForgotten, Bug::FenceBlind, Bug::LeaseCheckedEarly])
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Bug::Drive(bug) => bug.into(),
            Bug::FuaForgotten => "fua-forgotten",
            Bug::FenceBlind => "fence-blind",
            Bug::LeaseCheckedEarly => "lease-checked-early",
        }
    }

    /// The mistake with this name.
    pub fn from_name(name: &str) -> Option<Bug> {
        Bug::all().find(|bug| bug.name() == name)
    }

    /// Returns the mistake for the engine to make. `None` if it is a mistake of the server or its backing.
    pub fn of_drive(self) -> Option<PlantedBug> {
        match self {
            Bug::Drive(bug) => Some(bug),
            Bug::FuaForgotten | Bug::FenceBlind | Bug::LeaseCheckedEarly => None,
        }
    }
}
