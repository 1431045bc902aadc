//! The commands, as a user types them.

#[path = "../common/mod.rs"]
mod common;

mod capacity;
mod check;
mod create;
mod events;
mod serve;
mod status;
