//! The bytes on a backing: what is encoded is decoded again, and what was damaged is refused. A module for
//! each structure.
//!
//! One program, because building one for each takes longer than running them.

#[path = "../common/mod.rs"]
mod common;

mod catalog;
mod checkpoint;
mod entry;
mod format_reference;
mod geometry;
mod memory;
mod mend;
mod mix;
mod node;
mod owner;
mod pack_refusals;
mod pack_round_trip;
mod parity;
mod record;
mod segment_row;
mod superblock;
mod table;
