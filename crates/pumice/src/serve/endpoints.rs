//! Where clients connect: addresses come and go while the server runs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use nbd::{
    AcceptFailures, Acceptor, Address, Admitted, Listener, ServerConfig, Shared, Shutdown, ShutdownTrigger,
    TlsPolicy,
};
use parking_lot::RwLock;
use service::{ServedDrive, Workers, shown};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::printer::Printer;

/// Exports and the clients that may choose among them.
pub(super) type Exports = Arc<Shared<ServedDrive>>;

/// An address that is listened at.
struct Endpoint {
    /// As it was configured.
    address: Address,
    /// With the port that was given.
    bound: Address,
    /// What clients who come may choose among. The address may pass to another drive.
    exports: Arc<RwLock<Exports>>,
    /// Stops accepting; clients that are connected stay.
    stop: ShutdownTrigger,
    /// Ends when the socket is closed.
    closed: oneshot::Receiver<()>,
}

/// An address that is bound, where nobody accepts yet.
pub(super) struct Bound {
    address: Address,
    listener: Listener,
}

/// All addresses of a server.
pub(super) struct Endpoints {
    workers: Arc<Workers>,
    stop: Shutdown,
    open: Vec<Endpoint>,
    accepting: JoinSet<()>,
    /// What was told on standard output: address and export.
    told: HashSet<(String, String)>,
}

impl Endpoints {
    /// None yet. `stop` ends accepting everywhere, and the connections.
    pub(super) fn new(workers: Arc<Workers>, stop: Shutdown) -> Endpoints {
        Endpoints { workers, stop, open: Vec::new(), accepting: JoinSet::new(), told: HashSet::new() }
    }

    /// Binds those of `wanted` that are not listened at.
    ///
    /// # Errors
    /// The first that cannot be bound, or is wanted twice; then none is.
    pub(super) fn bind(&self, wanted: &[Address], config: &ServerConfig) -> Result<Vec<Bound>> {
        let mut seen = HashSet::new();
        if let Some(twice) = wanted.iter().find(|address| !seen.insert(address.to_string())) {
            bail!("{twice} would be the address of two drives; choose another for one of them");
        }
        let missing = wanted.iter().filter(|address| self.open.iter().all(|open| open.address != **address));
        missing
            .map(|address| Ok(Bound { address: address.clone(), listener: Listener::bind(address, config)? }))
            .collect()
    }

    /// Accepts clients of `wanted` at those of the addresses that are bound, and answers the others.
    pub(super) fn accept(&mut self, bound: Vec<Bound>, wanted: &[(Address, Exports)]) -> Result<Vec<Bound>> {
        let mut others = Vec::new();
        for bound in bound {
            let Some((_, exports)) = wanted.iter().find(|(address, _)| bound.address == *address) else {
                others.push(bound);
                continue;
            };
            let Bound { address, listener } = bound;
            let found = listener.address().clone();
            let acceptor = listener.register().with_context(|| address.to_string())?;
            let exports = Arc::new(RwLock::new(exports.clone()));
            let (trigger, (closing, closed)) = (ShutdownTrigger::new(), oneshot::channel());
            self.accepting.spawn(accept_all(
                (acceptor, closing),
                AcceptFailures::new(&found),
                exports.clone(),
                self.workers.clone(),
                self.stop.clone(),
                trigger.subscribe(),
            ));
            self.open.push(Endpoint { address, bound: found, exports, stop: trigger, closed });
        }
        Ok(others)
    }

    /// Stops listening wherever `wanted` does not; clients stay connected. Those who come from now on to the other addresses
    /// get what is wanted there.
    pub(super) async fn retain(&mut self, wanted: &[(Address, Exports)]) {
        let mut gone = Vec::new();
        for endpoint in std::mem::take(&mut self.open) {
            match wanted.iter().find(|(address, _)| endpoint.address == *address) {
                Some((_, exports)) => {
                    endpoint.exports.write().clone_from(exports);
                    self.open.push(endpoint);
                }
                None => gone.push(endpoint),
            }
        }
        for endpoint in &gone {
            tracing::info!(address = %endpoint.bound, "no longer listening");
            endpoint.stop.trigger();
        }
        for endpoint in gone {
            // Whoever binds the address next finds it free.
            let _ = endpoint.closed.await;
        }
        // What has ended leaves the list.
        while self.accepting.try_join_next().is_some() {}
    }

    /// Prints what is served where, a line for each export at each address, once, and passes the addresses to the drives for
    /// their status.
    pub(super) fn announce(&mut self, config: &ServerConfig, printer: &Printer) {
        let encrypted = matches!(config.tls, TlsPolicy::Required(_));
        let mut now = HashSet::new();
        let mut uris: Vec<(Arc<ServedDrive>, Vec<String>)> = Vec::new();
        for endpoint in &self.open {
            // Where there are several, whoever asks for no name depends on their order.
            let exports = endpoint.exports.read();
            let alone = exports.names().len() == 1;
            for export in exports.exports().iter() {
                let name = if alone { "" } else { &export.name };
                let mut uri = endpoint.bound.uri(name);
                if encrypted {
                    // `nbds:`, `nbds+unix:`
                    uri.insert("nbd".len(), 's');
                }
                match uris.iter_mut().find(|(drive, _)| Arc::ptr_eq(drive, &export.device)) {
                    Some((_, all)) => all.push(uri.clone()),
                    None => uris.push((export.device.clone(), vec![uri.clone()])),
                }
                let key = (endpoint.bound.uri(""), export.name.clone());
                if !self.told.contains(&key) {
                    printer.print(format!("serving {} at {uri}", shown(export.device.path())));
                }
                now.insert(key);
            }
        }
        for (drive, all) in uris {
            drive.set_nbd_uris(all);
        }
        self.told = now;
    }

    /// Waits until nobody accepts and no client is connected, which `stop` leads to.
    pub(super) async fn ended(&mut self) {
        while self.accepting.join_next().await.is_some() {}
    }
}

/// `unix:PATH.nbd`; for a block device, in the directory of the admin sockets: /dev is no place for sockets.
pub(super) fn default_address(path: &Path) -> Result<Address> {
    let mut name = path.as_os_str().to_owned();
    name.push(".nbd");
    if path.starts_with("/dev") {
        let dir = service::make_runtime_dir().context("no directory for the NBD socket; use --nbd")?;
        return Ok(Address::Unix(dir.join(Path::new(&name).file_name().unwrap_or(&name))));
    }
    Ok(Address::Unix(name.into()))
}

/// Clients stand in other directories.
pub(super) fn absolute(address: &Address) -> Result<Address> {
    Ok(match address {
        Address::Unix(path) => Address::Unix(std::path::absolute(path)?),
        tcp @ Address::Tcp(..) => tcp.clone(),
    })
}

/// Accepts clients until either shutdown, then waits for the last of them; `stop` ends them too.
async fn accept_all(
    (acceptor, closing): (Acceptor, oneshot::Sender<()>),
    failures: AcceptFailures,
    offered: Arc<RwLock<Exports>>,
    workers: Arc<Workers>,
    stop: Shutdown,
    mut no_longer: Shutdown,
) {
    let mut clients = JoinSet::new();
    let mut shutdown = stop.clone();
    loop {
        let stop = stop.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => break,
            () = no_longer.requested() => break,
            // Before accepting, so that those who come do not keep those who went in memory.
            Some(_) = clients.join_next() => {}
            accepted = acceptor.accept() => {
                let exports = offered.read().clone();
                match accepted {
                    // Here, in the order in which they come; workers may be busy.
                    Ok(client) => match client.admit(&exports) {
                        Ok(client) => {
                            clients.spawn(workers.carry(carry(client, exports, stop)));
                        }
                        Err(error) => tracing::debug!(%error, "connection ended"),
                    },
                    Err(error) => failures.recover(&error, &exports).await,
                }
            }
        }
    }
    // No more clients come while the last ones finish.
    drop(acceptor);
    drop(closing);
    while clients.join_next().await.is_some() {}
}

async fn carry(client: Admitted, exports: Exports, shutdown: Shutdown) {
    if let Err(error) = client.serve(&exports, shutdown).await {
        tracing::debug!(%error, "connection ended");
    }
}
