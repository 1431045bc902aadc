//! Telling connections and listeners to finish.

use tokio::sync::watch;

/// Requests shutdown of everything that holds a [`Shutdown`] of it. Dropping it does so too.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Learns of a shutdown. Cheap to clone; goes across threads and runtimes.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Default for ShutdownTrigger {
    fn default() -> Self {
        Self::new()
    }
}

impl ShutdownTrigger {
    /// A trigger not yet pulled.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// What learns of it.
    pub fn subscribe(&self) -> Shutdown {
        Shutdown(self.0.subscribe())
    }

    /// Requests shutdown, for good.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Waits until shutdown is requested.
    pub async fn requested(&mut self) {
        // An error means that the trigger is gone, and with it whoever wanted the server to run.
        let _ = self.0.wait_for(|requested| *requested).await;
    }
}
