//! Mistakes planted on purpose, to see whether the simulator finds them.

use drive::PlantedBug;
use strum::IntoEnumIterator;

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// One of the engine's.
    Drive(PlantedBug),
    /// The server takes a durable write for any other.
    FuaForgotten,
}

impl Bug {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Bug> {
        PlantedBug::iter().map(Bug::Drive).chain([Bug::FuaForgotten])
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Bug::Drive(bug) => bug.into(),
            Bug::FuaForgotten => "fua-forgotten",
        }
    }

    /// The bug of this name.
    pub fn from_name(name: &str) -> Option<Bug> {
        Bug::all().find(|bug| bug.name() == name)
    }

    /// The mistake for the engine to make, if it is one of the engine's.
    pub fn of_drive(self) -> Option<PlantedBug> {
        match self {
            Bug::Drive(bug) => Some(bug),
            Bug::FuaForgotten => None,
        }
    }
}
