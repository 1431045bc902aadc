//! `pumice scan` and `pumice plan`, as a user types them.

#[path = "../common/mod.rs"]
mod common;

mod command;
mod drive;
mod plan;
