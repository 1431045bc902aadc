//! What threads share outside the lock is made of these; the model checker puts its own in their place (`crates/threads`).

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(crate) use parking_lot::Mutex;
