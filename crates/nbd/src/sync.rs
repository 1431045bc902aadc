//! What a connection and its wakers share is made of these; the model checker puts its own in their place (`crates/threads`).

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use futures::task::AtomicWaker;
