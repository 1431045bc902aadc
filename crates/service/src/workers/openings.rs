//! Counts the drives that are being opened, so that a server ends after them.

use std::sync::Arc;

use tokio::sync::watch;

/// Drives of a server that are being opened, and those that are closed because their callers stopped waiting.
#[derive(Clone)]
pub(crate) struct Openings(Arc<watch::Sender<usize>>);

impl Default for Openings {
    fn default() -> Self {
        Openings(Arc::new(watch::Sender::new(0)))
    }
}

impl Openings {
    /// Counts one more, until what is returned is dropped.
    pub(crate) fn begin(&self) -> Opening {
        self.0.send_modify(|count| *count += 1);
        Opening(self.clone())
    }

    /// Waits until there is none.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as this.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A drive that is being opened.
pub(crate) struct Opening(Openings);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
