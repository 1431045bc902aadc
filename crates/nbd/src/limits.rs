//! Limits: connections, memory, threads.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod config;
pub(crate) mod helpers;
