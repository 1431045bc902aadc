//! Status reports of drives: what servers answer, and what the command line and monitoring print.
//!
//! Serialized as JSON, the reports are a stable interface: fields are added, never renamed or removed.
//! `docs/reference/status-json.md` describes each, `docs/schema/status.json` is their schema. Sizes are in
//! bytes unless a name says otherwise. The service makes the reports; this crate knows no drive.

#![forbid(unsafe_code)]

mod advice;
mod backing;
mod capacity;
mod clock;
mod compression;
mod events;
mod path_text;
mod recently_written;
mod report;
mod server;
mod states;
mod warning;

pub use advice::{CapacityPlan, Fit, INCOMPRESSIBLE_RATIO, meaningful_bytes};
pub use backing::{BackingReport, DeviceReport, FileId};
pub use capacity::{CAPACITY_COLUMNS, CAPACITY_SECTOR_BYTES, capacity_values};
pub use clock::{unix_seconds, unix_seconds_now};
pub use compression::{
    CompressionReport, DictionaryReport, LiveReport, SettleRunReport, SettlingReport, SurveyReport,
    SurveyedReport, TrainingReport, WrittenReport,
};
pub use events::{EventCount, EventsReport, RecentEvent};
pub use path_text::{Shown, as_text, parse_path, path_text, shown, uri_path};
pub use recently_written::RecentlyWritten;
pub use report::{
    CacheReport, CleaningReport, CopyReport, ErrorReport, ParityReport, RecoveryReport, ScrubsReport,
    StatusAnswer, StatusReport, TimeToFull, WearReport,
};
pub use server::{
    BucketReport, KindReport, LOST_RANGES_MAX, LatencyReport, LostRange, OffloadReport, ReadCacheReport,
    RequestReport, ScrubReport, ServerReport,
};
pub use states::{
    BackingKind, BackingPlace, DriveState, EventKind, IoBackend, LiveKind, NoTime, RunState, SampleSource,
    ScrubState, SettlingState, WearSource,
};
pub use warning::{CriticalWarning, Warning};
