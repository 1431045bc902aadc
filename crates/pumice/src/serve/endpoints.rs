//! Listening addresses of the server, which can change while it runs.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use front::Exports;
use nbd::{
    AcceptFailures, Acceptor, Address, Admitted, Inherited, Listener, ServerConfig, Shutdown,
    ShutdownTrigger, TlsPolicy,
};
use parking_lot::RwLock;
use service::{ServedDrive, Workers};
use status::shown;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::names::Names;
use super::printer::Printer;

/// An address that the server listens at.
struct Endpoint {
    /// The configured address.
    address: Address,
    /// The address with the actual port.
    bound: Address,
    /// Other machines can connect.
    is_networked: bool,
    /// Exports for new clients. Another drive may take over the address.
    exports: Arc<RwLock<Exports>>,
    /// Stops accepting. Connected clients stay.
    stop: ShutdownTrigger,
    /// Completes when the socket is closed.
    closed: oneshot::Receiver<()>,
}

/// An address that is bound but does not accept clients yet.
pub(super) struct Bound {
    address: Address,
    listener: Listener,
}

/// All listening addresses of a server.
pub(super) struct Endpoints {
    workers: Arc<Workers>,
    stop: Shutdown,
    /// Sockets that the service manager has bound.
    activated: Vec<Inherited>,
    open: Vec<Endpoint>,
    accepting: JoinSet<()>,
    /// Address and export pairs already printed on standard output.
    announced: HashSet<(String, String)>,
}

impl Endpoints {
    /// Creates an empty set. `stop` ends accepting at all addresses, and all connections. Addresses of the
    /// sockets in `activated` are not bound: these are used.
    pub(super) fn new(workers: Arc<Workers>, stop: Shutdown, activated: Vec<Inherited>) -> Endpoints {
        Endpoints {
            workers,
            stop,
            activated,
            open: Vec::new(),
            accepting: JoinSet::new(),
            announced: HashSet::new(),
        }
    }

    /// Checks the addresses in `wanted` that the server listens at already with new settings: the client CA
    /// may be gone. Names of hosts are not resolved again: that could take long, or fail.
    ///
    /// # Errors
    /// Fails for an address that would be open to anyone on the network.
    pub(super) fn check_open(&self, wanted: &[Address], config: &ServerConfig) -> Result<()> {
        let mut stays = self.open.iter().filter(|open| wanted.contains(&open.address));
        Ok(stays.try_for_each(|open| Listener::check(&open.address, open.is_networked, config))?)
    }

    /// Returns the hosts of the addresses in `wanted` that the server does not listen at yet.
    pub(super) fn missing_hosts(&self, wanted: &[Address]) -> Vec<(String, u16)> {
        let host = |address: &Address| match address {
            Address::Tcp(host, port) => Some((host.clone(), *port)),
            Address::Unix(_) => None,
        };
        self.missing(wanted).filter_map(host).collect()
    }

    fn missing<'a>(&'a self, wanted: &'a [Address]) -> impl Iterator<Item = &'a Address> {
        wanted.iter().filter(|address| self.open.iter().all(|open| open.address != **address))
    }

    /// Binds the addresses in `wanted` that the server does not listen at yet. `names` are those of
    /// [`Endpoints::missing_hosts`].
    ///
    /// # Errors
    /// Fails for an address that cannot be bound or is listed twice. No address stays bound then.
    pub(super) fn bind(
        &self,
        wanted: &[Address],
        names: &Names,
        config: &ServerConfig,
    ) -> Result<Vec<Bound>> {
        let mut seen = HashSet::new();
        if let Some(twice) = wanted.iter().find(|address| !seen.insert(address.to_string())) {
            bail!("{twice} would be the address of two drives; choose another for one of them");
        }
        let bind = |address: &Address| {
            let listener = match self.activated.iter().find(|socket| socket.address() == address) {
                Some(socket) => socket.listener(config)?,
                None => Listener::bind_at(address, config, |name, port| names.get(name, port))?,
            };
            Ok(Bound { address: address.clone(), listener })
        };
        self.missing(wanted).map(bind).collect()
    }

    /// Accepts clients at those bound addresses that are in `wanted`, and returns the others.
    pub(super) fn accept(
        &mut self,
        bound: Vec<Bound>,
        wanted: &[(Address, Exports)],
        config: &ServerConfig,
    ) -> Result<Vec<Bound>> {
        let mut others = Vec::new();
        for bound in bound {
            let Some((_, exports)) = wanted.iter().find(|(address, _)| bound.address == *address) else {
                others.push(bound);
                continue;
            };
            let Bound { address, listener } = bound;
            let (found, is_networked) = (listener.address().clone(), listener.is_networked());
            if listener.is_open(config) {
                tracing::warn!(
                    address = %found,
                    "whoever can connect can use the drives: every user of this machine, if the address is loopback or \
                     a socket that all may write to"
                );
            }
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
            self.open.push(Endpoint { address, bound: found, is_networked, exports, stop: trigger, closed });
        }
        Ok(others)
    }

    /// Reports sockets of the service manager at which nobody accepts clients. They connect all the same, and
    /// wait.
    pub(super) fn report_unaccepted(&self) {
        let is_open = |socket: &&Inherited| self.open.iter().any(|open| open.address == *socket.address());
        for socket in self.activated.iter().filter(|socket| !is_open(socket)) {
            tracing::warn!(
                address = %socket.address(),
                "clients of this socket of the service manager wait until its drive is served, or stop its unit"
            );
        }
    }

    /// Stops listening at addresses that are not in `wanted`. Connected clients stay. New clients of the
    /// remaining addresses get the exports given in `wanted`.
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
            // Waits until the address is free to be bound again.
            let _ = endpoint.closed.await;
        }
        // Removes tasks that have ended.
        while self.accepting.try_join_next().is_some() {}
    }

    /// Prints one line for each new export and address, and passes the addresses to the drives for their
    /// status.
    pub(super) fn announce(&mut self, config: &ServerConfig, printer: &Printer) {
        let encrypted = matches!(config.tls, TlsPolicy::Required(_));
        let mut now = HashSet::new();
        let mut uris: Vec<(Arc<ServedDrive>, Vec<String>)> = Vec::new();
        for endpoint in &self.open {
            // If there are several exports, their order determines the default export.
            let exports = endpoint.exports.read();
            let alone = exports.names().len() == 1;
            for export in exports.offered().iter() {
                let name = if alone { "" } else { &export.name };
                let mut uri = endpoint.bound.uri(name);
                if encrypted {
                    // Results in `nbds:` or `nbds+unix:`.
                    uri.insert("nbd".len(), 's');
                }
                match uris.iter_mut().find(|(drive, _)| Arc::ptr_eq(drive, &export.device)) {
                    Some((_, all)) => all.push(uri.clone()),
                    None => uris.push((export.device.clone(), vec![uri.clone()])),
                }
                let key = (endpoint.bound.uri(""), export.name.clone());
                if !self.announced.contains(&key) {
                    printer.print(format!("serving {} at {uri}", shown(export.device.path())));
                }
                now.insert(key);
            }
        }
        for (drive, all) in uris {
            drive.set_nbd_uris(all);
        }
        self.announced = now;
    }

    /// Waits until no task accepts and no client is connected. `stop` causes that.
    pub(super) async fn ended(&mut self) {
        while self.accepting.join_next().await.is_some() {}
    }
}

/// Accepts clients until either shutdown, then waits until the last client has left. `stop` also ends the
/// clients.
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
            // Before accepting, so that ended clients do not stay in memory while new ones arrive.
            Some(_) = clients.join_next() => {}
            accepted = acceptor.accept() => {
                let exports = offered.read().clone();
                match accepted {
                    // Admits clients here, in the order of their arrival. Workers may be busy.
                    Ok(client) => match client.admit(&exports) {
                        Ok(client) => {
                            clients.spawn(workers.run_connection(serve_client(client, exports, stop)));
                        }
                        Err(error) => tracing::debug!(%error, "connection ended"),
                    },
                    Err(error) => failures.recover(&error, &exports).await,
                }
            }
        }
    }
    // Closes the socket while the last clients finish.
    drop(acceptor);
    drop(closing);
    while clients.join_next().await.is_some() {}
}

async fn serve_client(client: Admitted, exports: Exports, shutdown: Shutdown) {
    if let Err(error) = front::serve(client, exports, shutdown).await {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nbd::ListenError;

    #[test]
    fn names_of_hosts_are_resolved_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let workers = Arc::new(Workers::start(Some(1), service::IoChoice::Plain).expect("a worker"));
            let stop = ShutdownTrigger::new();
            let mut endpoints = Endpoints::new(workers, stop.subscribe(), Vec::new());
            let strict = ServerConfig::default();
            let insecure = ServerConfig { insecure: true, ..ServerConfig::default() };
            for host in ["127.0.0.1", "0.0.0.0"] {
                // As if a name server that is gone had known the name at the start.
                let address = Address::Tcp("gone.invalid".into(), 10809);
                let listener = Listener::tcp(host, 0, &insecure).expect("a port");
                let exports = nbd::Exports::empty(insecure.clone()).expect("exports");
                let bound = vec![Bound { address: address.clone(), listener }];
                endpoints.accept(bound, &[(address.clone(), exports)], &insecure).expect("listening");
                let wanted = [address];
                endpoints.check_open(&wanted, &insecure).expect("it stays");
                assert!(endpoints.missing_hosts(&wanted).is_empty());
                assert!(
                    endpoints.bind(&wanted, &Names::default(), &insecure).expect("bound already").is_empty()
                );
                let refused = endpoints.check_open(&wanted, &strict).err();
                assert_eq!(refused.is_some(), host == "0.0.0.0", "{refused:?}");
                assert!(
                    refused
                        .is_none_or(|error| matches!(error.downcast_ref(), Some(ListenError::Insecure(_))))
                );
                endpoints.check_open(&[], &strict).expect("not listened at any more");
                endpoints.retain(&[]).await;
            }
        });
    }
}
