//! Primitives that threads share here. The model checker replaces them with its own (`crates/threads`).

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(crate) use parking_lot::Mutex;
