//! The engine of a drive: map, log, cleaning, space, recovery.
//!
//! It knows no threads, no clock, no randomness and no sockets: they are passed in. All state is in [`core`], behind one
//! lock that is only held for short, bounded work; compressing, summing, decompressing and waiting for the medium happen
//! in the futures of the requests, on whatever thread polls them. `docs/design.md` is the introduction, `docs/design/` the reference.

#![forbid(unsafe_code)]

mod admit;
mod again;
mod batch;
mod check;
mod checkpoint;
mod claims;
mod clean;
mod core;
mod create;
mod dense;
mod dictionaries;
mod error;
mod extents;
mod fetched;
mod flush;
mod frames;
mod live_sample;
mod load;
mod log;
mod maintain;
mod map;
mod node;
mod offloaded;
mod options;
mod pins;
mod ranges;
mod read;
mod recipe;
mod recovery;
mod rehome;
mod replay;
mod resize;
mod rewrite;
mod rows;
mod sample;
mod segments;
mod set_codec;
mod settle;
mod shared;
mod slots;
pub mod space;
mod status;
mod survey;
mod sync;
mod table;
mod train;
mod wait;
mod wipe;
mod write;
mod written;

pub use check::{
    CheckOptions, CheckProgress, CheckReport, CopyFound, CopyState, Fault, ScrubStep, find_copies,
};
pub use error::Error;
pub use extents::{Extent, ExtentKind};
pub use options::{
    Clock, Compute, CreateOptions, DEFAULT_CHECKPOINT_BYTES, DEFAULT_MAP_BUDGET_BYTES, OpenOptions,
    PlantedBug, Spawner,
};
pub use recovery::READ_ONLY_REQUESTED;
pub use settle::{Settle, SettleStep};
pub use shared::Drive;
pub use status::{Composition, Recovered, Share, State, Status};
pub use survey::{Survey, Surveyed};
pub use train::{DictionaryStatus, Trained};
pub use wipe::WipeOptions;
pub use written::Written;

/// Largest write that is atomic across a power cut, in bytes.
pub const ATOMIC_WRITE_BYTES: u64 = layout::ATOMIC_WRITE_BYTES as u64;
