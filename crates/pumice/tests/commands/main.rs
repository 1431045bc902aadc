//! The commands, as a user types them.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod create;
mod serve;
mod status;
