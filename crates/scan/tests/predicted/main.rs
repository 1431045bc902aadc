//! What `scan` and `plan` predict of a drive, and what a drive in memory then does.
//!
//! One program, because building one for each takes longer than running them.

#[path = "../../../drive/tests/common/mod.rs"]
mod common;

mod frames;
mod prediction;
mod safe;
mod waf;
