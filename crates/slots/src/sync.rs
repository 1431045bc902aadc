//! Primitives that a task and the wakers of its futures share. The model checker replaces them with its own
//! (`crates/threads`).

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use futures::task::AtomicWaker;
