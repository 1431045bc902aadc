//! Monitoring of a served drive: `monitor` observes it periodically, `events` and `hook` report what happens,
//! `report` makes the status, `requests` counts.

pub(crate) mod backing;
pub(crate) mod backing_path;
pub(crate) mod compression;
pub(crate) mod copies;
pub(crate) mod error_counts;
pub(crate) mod events;
pub(crate) mod growth;
pub(crate) mod hook;
pub(crate) mod latency;
pub(crate) mod length;
pub(crate) mod monitor;
pub(crate) mod offload_report;
pub(crate) mod opened_file;
pub(crate) mod report;
pub(crate) mod requests;
