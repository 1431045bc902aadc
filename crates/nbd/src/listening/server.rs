//! A server with its own worker threads, for programs that have none.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use device::Device;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tracing::{debug, warn};

use crate::exports::Exports;
use crate::listening::accept::AcceptFailures;
use crate::listening::listener::{Acceptor, Admitted, Listener};
use crate::shutdown::{Shutdown, ShutdownTrigger};

/// Worker threads that serve the connections of some listeners, each connection by one thread.
pub struct Server {
    trigger: ShutdownTrigger,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts `workers` threads (at least one) and assigns the clients of `listeners` to them in turn.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be created.
    pub fn start<D: Device>(
        exports: &Arc<Exports<D>>,
        listeners: Vec<Listener>,
        workers: usize,
    ) -> io::Result<Self> {
        let mut server = Self { trigger: ShutdownTrigger::new(), threads: Vec::new() };
        let mut senders = Vec::new();
        for index in 0..workers.max(1) {
            let (sender, accepted) = mpsc::unbounded_channel();
            senders.push(sender);
            let (exports, shutdown) = (Arc::clone(exports), server.trigger.subscribe());
            server.spawn(format!("nbd-{index}"), move |runtime| {
                LocalSet::new().block_on(&runtime, work(accepted, exports, shutdown));
            })?;
        }
        let (exports, shutdown) = (Arc::clone(exports), server.trigger.subscribe());
        server.spawn("nbd-accept".to_owned(), move |runtime| {
            runtime.block_on(accept_all(listeners, senders, exports, shutdown));
        })?;
        Ok(server)
    }

    fn spawn(&mut self, name: String, run: impl FnOnce(Runtime) + Send + 'static) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        self.threads.push(std::thread::Builder::new().name(name).spawn(move || run(runtime))?);
        Ok(())
    }

    /// Stops accepting, lets every connection complete its requests in flight (for at most the configured
    /// `shutdown_grace`), and waits for all threads. It blocks, so do not call it within a runtime.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.trigger.trigger();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                warn!("a worker thread of the NBD server panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Accepts clients on all listeners until shutdown, and assigns them to the workers in turn.
async fn accept_all<D: Device>(
    listeners: Vec<Listener>,
    workers: Vec<mpsc::UnboundedSender<Admitted>>,
    exports: Arc<Exports<D>>,
    mut shutdown: Shutdown,
) {
    let (sender, mut accepted) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    for listener in listeners {
        let address = listener.address().clone();
        match listener.register() {
            Ok(acceptor) => {
                let failures = AcceptFailures::new(&address);
                tasks.spawn(accept_each(acceptor, sender.clone(), Arc::clone(&exports), failures));
            }
            Err(error) => warn!("{address}: {error}"),
        }
    }
    let deal = async {
        for worker in workers.iter().cycle() {
            let Some(client) = accepted.recv().await else { break };
            if worker.send(client).is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = deal => {}
        () = shutdown.requested() => {}
    }
}

async fn accept_each<D: Device>(
    acceptor: Acceptor,
    admitted: mpsc::Sender<Admitted>,
    exports: Arc<Exports<D>>,
    failures: AcceptFailures,
) {
    loop {
        match acceptor.accept().await {
            Ok(client) => match client.admit(&exports) {
                Ok(client) => {
                    if admitted.send(client).await.is_err() {
                        return;
                    }
                }
                Err(error) => debug!("connection closed: {error}"),
            },
            Err(error) => failures.recover(&error, &exports).await,
        }
    }
}

/// Serves clients until shutdown, then waits until the last of them is done.
async fn work<D: Device>(
    mut accepted: mpsc::UnboundedReceiver<Admitted>,
    exports: Arc<Exports<D>>,
    shutdown: Shutdown,
) {
    let mut connections = JoinSet::new();
    let mut stopped = shutdown.clone();
    loop {
        tokio::select! {
            () = stopped.requested() => break,
            client = accepted.recv() => {
                let Some(client) = client else { break };
                let (exports, shutdown) = (Arc::clone(&exports), shutdown.clone());
                connections.spawn_local(async move {
                    if let Err(error) = client.serve(&exports, shutdown).await {
                        debug!("connection closed: {error}");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    while connections.join_next().await.is_some() {}
}
