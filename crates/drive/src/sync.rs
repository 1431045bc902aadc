//! Primitives of what threads share outside the lock. The model checker replaces them by its own
//! (`crates/threads`).

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(crate) use parking_lot::Mutex;
