//! The simulator: a drive, a backing that misbehaves and an oracle, all of it from one seed.
//!
//! A seed decides everything: the shape of the drive, what its clients do, in which order tasks run and media
//! operations complete, which faults strike and when the power is cut. Replaying it shows the same failure
//! again. What may go wrong is the storage fault model in the header of [`media::SimMedia`]'s source; what must
//! not is said in [`oracle`].
//!
//! A seed lives through several lives of one drive ([`seed`]): open, read back everything ever written, let
//! clients loose ([`client`]), then close it, kill it or cut its power somewhere in the middle.

#![forbid(unsafe_code)]

pub mod backing;
mod bug;
pub mod campaign;
pub mod client;
mod clock;
mod config;
pub mod content;
mod counts;
mod edge;
mod excuses;
pub mod executor;
mod extents;
pub mod full;
pub mod groups;
mod impatient;
mod later;
pub mod ledger;
mod log_numbers;
pub mod oracle;
pub mod panics;
pub mod rounds;
pub mod seed;
pub mod served;
mod subject;
pub mod toy;
pub mod wire;
mod world;

pub use bug::Bug;
pub use config::{Config, Style, Trouble};
pub use counts::Counts;
pub use subject::{Opening, Space, Subject};
pub use world::World;
