//! A segment that is being cleaned.

use layout::NodeId;
use media::IoBuf;

use crate::state::found::Found;
use crate::state::pins::Pin;

/// How cleaning a segment goes.
#[derive(Default)]
pub(crate) struct Pass {
    /// Map nodes that are corrupt: whether the records they map live cannot be known.
    pub(crate) corrupt_nodes: Vec<NodeId>,
    /// The medium answered an error: another time it may not.
    pub(crate) unreadable: bool,
    /// Everything has to move: what is there will be gone.
    pub(crate) must_move: bool,
    /// What stays: live map nodes, until the next checkpoint writes them elsewhere, and records that would only become larger.
    pub(crate) left_units: u64,
    /// What needs a retired dictionary may move as it is.
    pub(crate) as_is: bool,
    /// Retired dictionaries that records need which stay.
    pub(crate) needed: Vec<u16>,
    /// How often the number of records dealt with at once was halved.
    pub(crate) halved: u32,
}

impl Pass {
    /// Of what has to move altogether.
    pub(crate) fn of_everything() -> Pass {
        Pass { must_move: true, ..Pass::default() }
    }
}

/// A segment half cleaned. State of the drive, not of a future, so that cleaning can pause; lost if whoever does a step
/// is given up, and the segment begun anew.
pub(crate) struct Cleaning {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    /// Byte of the backing where the next window begins.
    pub(crate) at: u64,
    pub(crate) window: Option<Window>,
    pub(crate) pass: Pass,
    /// There was no room to move anything.
    pub(crate) stuck: bool,
    /// While it is being read and moved.
    pub(crate) pin: Option<Pin>,
}

/// What was read of it.
pub(crate) struct Window {
    pub(crate) bytes: IoBuf,
    pub(crate) found: Vec<Found>,
    /// Of the found, how many are dealt with.
    pub(crate) done: usize,
    /// Where the next begins.
    pub(crate) end: u64,
}
