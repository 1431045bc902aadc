//! Monitoring over HTTP: `/metrics` for Prometheus, `/healthz`, `/status` as JSON. All of it is read-only:
//! changes of drives go through the admin socket.
//!
//! This crate does not depend on drives. The caller passes a function that returns their reports.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod exposition;
mod metrics;
mod monitored;
mod server;

pub use address::{HttpAddress, HttpAddressError};
pub use metrics::render;
pub use monitored::{ClientCounts, Monitored, Reports};
pub use server::{HttpError, HttpListener, HttpServer, Limits};
