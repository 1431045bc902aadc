//! The engine of a drive: map, log, cleaning, space, recovery.
//!
//! It has no threads, clock, randomness or sockets of its own: they are passed in. All state is in [`core`],
//! behind one lock that is held only for short, bounded work. Compression, checksums, decompression and
//! waiting for the medium happen in the futures of the requests, on whatever thread polls them.
//! `docs/design.md` is the introduction, `docs/design/` the reference.

#![forbid(unsafe_code)]

mod check;
mod error;
mod io;
mod kept_memory;
mod look;
mod medium;
mod open;
mod options;
mod planted;
mod shared;
mod state;
mod sync;
mod upkeep;
mod wait;

pub use check::{
    CheckOptions, CheckProgress, CheckReport, CopyFound, CopyState, Fault, ScrubStep, Subject, find_copies,
};
pub use device::{ReadOnly, Zeroes};
pub use error::Error;
pub use kept_memory::{KeptMemory, Left, Verdict};
pub use look::covered::Covered;
pub use look::status::{Composition, ParityStatus, State, Status};
pub use look::survey::{Survey, Surveyed};
pub use open::owner::{Claim, Fate, Owner, OwnerFound, Pace, Sleep, Surroundings, find_owner};
pub use open::wipe::{WipeOptions, WipeTarget, Wiped};
pub use options::{
    Clock, Compute, CreateOptions, DEFAULT_CHECKPOINT_BYTES, DEFAULT_MAP_BUDGET_BYTES, OpenOptions, Spawner,
};
pub use planted::{Planted, PlantedBug};
pub use shared::Drive;
pub use state::log::MEMORY_SHAPE;
pub use state::read_cache::ReadCache;
pub use state::recovered::Recovered;
pub use state::tally::{Share, Written};
pub use upkeep::make_settled::SETTLE_PRICE_MAX;
pub use upkeep::recompress::{Settle, SettleStep};
pub use upkeep::train::{DictionaryStatus, Trained};

/// Largest write that is atomic across a power cut, in bytes.
pub const ATOMIC_WRITE_BYTES: u64 = layout::ATOMIC_WRITE_BYTES as u64;
