//! Substitute for the content of a ticket: a buffer that counts how often it is dropped.

use loom::sync::Arc;

use crate::memory::Memory;
use crate::sync::{AtomicUsize, Ordering};

/// As in `media`: the request is returned with its buffer.
pub(crate) type Outcome = (Request, std::io::Result<()>);

/// A buffer that the kernel may write until the completion.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) buffer: Memory,
    pub(crate) dropped: Arc<AtomicUsize>,
}

impl Drop for Request {
    fn drop(&mut self) {
        // The memory may be reused and written after this.
        self.buffer.write();
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
