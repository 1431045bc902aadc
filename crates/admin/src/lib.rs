//! What monitoring asks over HTTP: `/metrics` for Prometheus, `/healthz`, `/status` as JSON. All of it is read-only: what
//! changes a drive goes through the admin socket, which only its owner can open.
//!
//! It knows no drives: whoever serves them passes in how to get their reports.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod exposition;
mod metrics;
mod server;

pub use address::{HttpAddress, HttpAddressError};
pub use metrics::render;
pub use server::{HttpError, HttpListener, HttpServer, Limits, Reports};
