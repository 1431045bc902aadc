//! Shutdown of connections and listeners.

use tokio::sync::watch;

/// Requests shutdown of all tasks that hold one of its [`Shutdown`]s. Dropping it requests shutdown too.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Receives a request to shut down. Cheap to clone; can be sent to other threads and runtimes.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Default for ShutdownTrigger {
    fn default() -> Self {
        Self::new()
    }
}

impl ShutdownTrigger {
    /// Creates a trigger without a request.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Returns a receiver of the request.
    pub fn subscribe(&self) -> Shutdown {
        Shutdown(self.0.subscribe())
    }

    /// Requests shutdown. This cannot be undone.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Waits until shutdown is requested.
    pub async fn requested(&mut self) {
        // An error means that the trigger was dropped, which also requests shutdown.
        let _ = self.0.wait_for(|requested| *requested).await;
    }

    /// Returns whether shutdown is requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}
