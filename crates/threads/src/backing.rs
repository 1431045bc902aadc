//! What a ticket brings, here: a buffer that counts how often it is given back.

use loom::sync::Arc;

use crate::memory::Memory;
use crate::sync::{AtomicUsize, Ordering};

/// As in `media`: the request comes back with its buffer.
pub(crate) type Outcome = (Request, std::io::Result<()>);

/// A buffer that the kernel may write until the completion.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) buffer: Memory,
    pub(crate) dropped: Arc<AtomicUsize>,
}

impl Drop for Request {
    fn drop(&mut self) {
        // Whoever has the memory next writes there.
        self.buffer.write();
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
