//! What a ring and its callers share is made of these; the model checker puts its own in their place (`crates/threads`).

pub(crate) use std::sync::Arc;

pub(crate) use parking_lot::Mutex;
