//! `pumice scan` and `pumice plan` on the command line.

#[path = "../common/mod.rs"]
mod common;

mod command;
mod drive;
mod pages;
mod plan;
