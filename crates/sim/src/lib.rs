//! The simulator: a drive, a backing that injects faults and an oracle, all determined by one seed.
//!
//! A seed determines everything: the configuration of the drive, the workload of its clients, the order in
//! which tasks run and media operations complete, the faults that strike and the power cuts. The same seed
//! replays the same failure. The possible faults are listed in the storage fault model, at the top of
//! [`media::SimMedia`]'s source. The requirements on the drive are in [`oracle`].
//!
//! A seed goes through several lives of one drive ([`seed`]): it opens the drive, reads back everything ever
//! written, runs clients ([`client`]), then closes the drive, kills it or cuts its power at any point.

#![forbid(unsafe_code)]

pub mod backing;
mod bug;
mod bytes;
pub mod campaign;
pub mod client;
mod clock;
mod config;
pub mod content;
mod counts;
mod doing;
mod echo;
mod edge;
mod error;
mod excuses;
pub mod executor;
mod extents;
pub mod full;
pub mod groups;
mod host_data;
pub mod hot;
mod impatient;
mod later;
pub mod ledger;
mod log_numbers;
mod machine;
pub mod maintenance;
pub mod oracle;
pub mod panics;
pub mod report;
mod requests;
mod rivals;
pub mod rounds;
pub mod seed;
pub mod served;
mod strikes;
mod subject;
mod switch;
mod tested;
pub mod toy;
pub mod wire;
mod world;

pub use bug::Bug;
pub use config::{Config, Style, Trouble};
pub use counts::Counts;
pub use error::Error;
pub use subject::{Opening, PassStep, Space, Subject};
pub use tested::Tested;
pub use world::World;
