//! Threads, queues and in-flight requests: many clients, many cores, one engine a drive.
//!
//! ```text
//! front-end ── Device trait ──> ServedDrive ── counts, refuses when closing ──> drive::Drive
//!     │                             ├── monitor: events, growth, latencies, the devices under it
//!     └── Workers: one thread a core, each with a runtime and an io_uring; a connection lives on one of them
//!                                   ├── background: tick, cleaning, checkpoints
//!                                   └── improve: dictionaries, settling; the heavy part on a thread of low priority
//! ```
//!
//! Folders, each of which uses only those after it: `control` (admin socket, changes), `serving` (drives and
//! their requests), `upkeep` (background work), `watch` (events and status), `workers` (threads), `admission`
//! (rates of writers).

#![forbid(unsafe_code)]

mod admission;
mod answer;
mod control;
mod error;
mod serving;
mod upkeep;
mod watch;
mod workers;

pub use admission::held::WhenFull;
pub use admission::throttle::{
    CEILING_BYTES_PER_SECOND, DEFAULT_FLOOR_BYTES_PER_SECOND, DEFAULT_THROTTLE_PERCENT, ThrottleSettings,
    Throttling,
};
pub use answer::Answer;
pub use control::admin::AdminSocket;
pub use control::changes::{
    MayChange, Prepare, SpaceAfterWipe, Wipe, create, set_capacity, set_codec, set_parity, set_size, wipe,
};
pub use error::{PrepareError, ServiceError};
pub use serving::down::DownDrive;
pub use serving::drives::Drives;
pub use serving::erasure::{EraseError, Eraser, Erasure, Erasures};
pub use serving::gate::Gate;
pub use serving::open::{DEFAULT_BACKGROUND_CPU_PERCENT, OpenSettings, inspect, inspect_status};
pub use serving::served::ServedDrive;
pub use serving::unthreaded::{BackgroundFuture, Unthreaded};
pub use upkeep::scrub::DEFAULT_SCRUB_BYTES_PER_SECOND;
pub use watch::backing::devices_under;
pub use watch::events::{WarnAt, WarnAtError};
pub use watch::hook::{CommandsHeld, before_commands, hold_commands};
pub use watch::latency::{Kind, Latencies};
pub use watch::monitor::MonitorSettings;
pub use watch::requests::Requests;
pub use workers::pool::{IoChoice, Workers, run_here, runtime_here};
