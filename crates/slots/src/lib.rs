//! The requests in flight of a front end: many futures in one task, without an allocation for each.

#![forbid(unsafe_code)]

mod slots;
mod sync;

pub use slots::Slots;
