//! Threads, queues and in-flight requests: many clients, many cores, one engine a drive.
//!
//! ```text
//! front-end ── Device trait ──> ServedDrive ── counts, refuses when closing ──> drive::Drive
//!     │                             ├── monitor: events, growth, latencies, the devices under it
//!     └── Workers: one thread a core, each with a runtime and an io_uring; a connection lives on one of them
//!                                   ├── background: tick, cleaning, checkpoints
//!                                   └── improve: dictionaries, settling; the heavy part on a thread of low priority
//! ```

#![forbid(unsafe_code)]

mod admin;
mod background;
mod backing;
mod busy;
mod compression;
mod compute;
mod copies;
pub mod device;
mod down;
mod drives;
mod error;
mod error_counts;
mod events;
mod features;
mod gate;
mod growth;
mod health;
mod hook;
mod improve;
mod latency;
mod log_limit;
mod monitor;
mod offload_report;
mod open;
mod pacer;
mod path_text;
mod pause;
mod report;
mod requests;
mod resize;
mod runtime_dir;
mod scrub;
mod served;
mod states;
mod throttle;
mod unthreaded;
mod workers;

pub use admin::{AdminSocket, Change, StatusAnswer, ask_status, change, find_drives, find_served};
pub use backing::{BackingReport, DeviceReport, devices_under, disks_under};
pub use compression::{
    CompressionReport, DictionaryReport, LiveReport, SettleRunReport, SettlingReport, SurveyReport,
    SurveyedReport, TrainingReport, WrittenReport,
};
pub use copies::CopyReport;
pub use device::{Device, DeviceError, Extent, ExtentKind, Geometry};
pub use down::DownDrive;
pub use drives::Drives;
pub use error::ServiceError;
pub use events::{EventCount, EventKind, EventsReport, RecentEvent, WarnAt};
pub use gate::Gate;
pub use growth::TimeToFull;
pub use health::{CriticalWarning, Warning};
pub use latency::{Kind, Latencies};
pub use log_limit::LogLimit;
pub use monitor::MonitorSettings;
pub use offload_report::OffloadReport;
pub use open::{DEFAULT_BACKGROUND_CPU_PERCENT, OpenSettings, inspect, inspect_status};
pub use path_text::{Shown, parse_path, path_text, shown};
pub use report::{
    BucketReport, CacheReport, CleaningReport, ErrorReport, KindReport, LatencyReport, RecoveryReport,
    RequestReport, ScrubReport, ServerReport, StatusReport, WearReport,
};
pub use requests::Requests;
pub use resize::{set_capacity, set_codec, set_size, wipe};
pub use runtime_dir::{make_runtime_dir, runtime_dirs};
pub use scrub::DEFAULT_SCRUB_BYTES_PER_SECOND;
pub use served::ServedDrive;
pub use states::{
    DriveState, LiveKind, NoTime, RunState, SampleSource, ScrubState, SettlingState, WearSource,
};
pub use throttle::{CEILING_BYTES_PER_SECOND, DEFAULT_FLOOR_BYTES_PER_SECOND, ThrottleSettings};
pub use unthreaded::{BackgroundFuture, Unthreaded};
pub use workers::{IoBackend, IoChoice, Workers, run_here};
