//! Primitives that a ring and its callers share. The model checker replaces them with its own
//! (`crates/threads`).

pub(crate) use std::sync::Arc;

pub(crate) use parking_lot::Mutex;
