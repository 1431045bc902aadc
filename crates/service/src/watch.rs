//! What is seen of a served drive: `monitor` looks from time to time, `events` and `hook` report what happens, `report` is the
//! status.

pub(crate) mod backing;
pub(crate) mod compression;
pub(crate) mod copies;
pub(crate) mod error_counts;
pub(crate) mod events;
pub(crate) mod growth;
pub(crate) mod hook;
pub(crate) mod latency;
pub(crate) mod monitor;
pub(crate) mod offload_report;
pub(crate) mod report;
