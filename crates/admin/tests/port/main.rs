//! The HTTP port, its metrics, and the files of `deploy` that are made for them. One program, because
//! building one for each takes longer than running them.

mod common;
#[path = "../../../status/tests/known/mod.rs"]
mod known;

mod deploy;
mod figures;
mod http;
mod metrics;
