//! Serving a drive: from a request of a front end to the engine.
//!
//! `gate` is the path of a request, `served` a drive with everything that belongs to it, `drives` the list of
//! them, `down` a drive that could not be opened, `ownership` the right to write to a backing, `run_memory`
//! what outlives a kill, `memories` how an opening uses it.

pub(crate) mod close;
pub(crate) mod down;
pub(crate) mod drives;
pub(crate) mod erasure;
pub(crate) mod features;
pub(crate) mod gate;
pub(crate) mod grow;
pub(crate) mod instance;
pub(crate) mod memories;
pub(crate) mod open;
pub(crate) mod opening;
pub(crate) mod ownership;
pub(crate) mod run_memory;
pub(crate) mod served;
pub(crate) mod unthreaded;
