//! Devices that are offered, and the clients that use them.

pub(crate) mod export;
pub(crate) mod resources;
pub(crate) mod sessions;

use std::sync::Arc;

use device::Device;
use parking_lot::RwLock;

use crate::audit::refusal::RefusalReason;
use crate::exports::export::{Export, Offered};
use crate::exports::resources::Resources;
use crate::limits::config::{ConfigError, ServerConfig, TlsPolicy};
use crate::trust::access::Access;
use crate::wire::protocol::MAX_STRING_BYTES;

/// Exports among which clients of an address choose, and what all connections of the server share:
/// configuration, places, memory.
pub struct Exports<D> {
    offers: RwLock<Arc<[Arc<Offered<D>>]>>,
    /// Names of all configured exports, in order, whether offered now or not.
    names: RwLock<Arc<[String]>>,
    tls: RwLock<TlsPolicy>,
    pub(crate) resources: Arc<Resources>,
}

fn check_lengths<D>(export: &Export<D>) -> Result<(), ConfigError> {
    if export.name.len() > MAX_STRING_BYTES || export.description.len() > MAX_STRING_BYTES {
        return Err(ConfigError::LongName(export.name.chars().take(32).collect()));
    }
    Ok(())
}

impl<D: Device> Exports<D> {
    /// Offers `exports`. The first one is also the default export, which clients get for the empty name while
    /// it is offered.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no export, two have the same name, or a limit is out of range.
    pub fn new(exports: Vec<Export<D>>, config: ServerConfig) -> Result<Arc<Self>, ConfigError> {
        if exports.is_empty() {
            return Err(ConfigError::NoExport);
        }
        let this = Self::empty(config)?;
        this.arrange(exports.iter().map(|export| export.name.clone()).collect());
        exports.into_iter().try_for_each(|export| this.add(export))?;
        Ok(this)
    }

    /// Creates a server that offers nothing yet. The empty name finds nothing until [`Exports::arrange`]
    /// names the first export.
    ///
    /// # Errors
    /// [`ConfigError`] if a limit is out of range.
    pub fn empty(config: ServerConfig) -> Result<Arc<Self>, ConfigError> {
        let tls = config.tls.clone();
        Ok(Self::with(Resources::new(config)?, tls))
    }

    /// Creates an empty set of other exports of the same server, for other addresses. Limits apply to the
    /// clients of both together.
    pub fn others(&self) -> Arc<Self> {
        Self::with(Arc::clone(&self.resources), self.tls())
    }

    fn with(resources: Arc<Resources>, tls: TlsPolicy) -> Arc<Self> {
        Arc::new(Self {
            offers: RwLock::new(Arc::new([])),
            names: RwLock::new(Arc::new([])),
            tls: RwLock::new(tls),
            resources,
        })
    }

    /// Sets the names of the configured exports, offered now or not, in the order in which clients see them.
    /// Clients that ask for the empty name get the first one. While it is not offered they get none: a client
    /// that connects again must not find another device in its place.
    pub fn arrange(&self, names: Vec<String>) {
        let mut offers = self.offers.write();
        *self.names.write() = names.into();
        *offers = self.in_order(offers.iter().cloned());
    }

    /// Sorts exports by the configured names. Others follow in the order in which they were added.
    fn in_order(&self, offers: impl Iterator<Item = Arc<Offered<D>>>) -> Arc<[Arc<Offered<D>>]> {
        let names = self.names.read();
        let mut offers: Vec<_> = offers.collect();
        let place = |offer: &Arc<Offered<D>>| names.iter().position(|name| *name == offer.name);
        offers.sort_by_cached_key(|offer| place(offer).unwrap_or(usize::MAX));
        offers.into()
    }

    /// Offers another export, at its place among the configured names, otherwise after them.
    ///
    /// # Errors
    /// [`ConfigError`] if an export of this name is already offered, or its name or description is too long.
    pub fn add(&self, export: Export<D>) -> Result<(), ConfigError> {
        check_lengths(&export)?;
        let mut offers = self.offers.write();
        if offers.iter().any(|earlier| earlier.name == export.name) {
            return Err(ConfigError::SameName(export.name));
        }
        let fence = self.resources.fences.of(&export.device);
        *offers = self.in_order(offers.iter().cloned().chain([Offered::new(export, fence)]));
        Ok(())
    }

    /// Removes an export. New clients no longer find it. Clients that use it get the replies to their
    /// requests in flight and are disconnected (see [`Offered::unused`]). Other exports and their clients are
    /// not affected. The last export can be removed too.
    pub fn remove(&self, name: &str) -> Option<Arc<Offered<D>>> {
        let mut offers = self.offers.write();
        let gone = offers.iter().find(|offer| offer.name == name).cloned()?;
        *offers = offers.iter().filter(|offer| !Arc::ptr_eq(offer, &gone)).cloned().collect();
        drop(offers);
        gone.remove();
        Some(gone)
    }

    /// Names of the configured exports; see [`Exports::arrange`].
    pub fn names(&self) -> Arc<[String]> {
        self.names.read().clone()
    }

    /// All exports offered now, in order.
    pub fn offered(&self) -> Arc<[Arc<Offered<D>>]> {
        self.offers.read().clone()
    }

    /// Finds the export of that name. The empty name means the first configured one, whether that is offered
    /// or not.
    pub fn find(&self, name: &str) -> Option<Arc<Offered<D>>> {
        let offers = self.offers.read();
        let names = self.names.read();
        let name = if name.is_empty() { names.first()?.as_str() } else { name };
        offers.iter().find(|export| export.name == name).cloned()
    }

    /// Replaces the TLS configuration of future connections, for example with renewed certificates. Clients
    /// that would no longer be admitted are disconnected. It does not turn TLS on or off.
    pub fn renew_tls(&self, tls: TlsPolicy) {
        let mut now = self.tls.write();
        if !matches!((&*now, &tls), (TlsPolicy::Required(_), TlsPolicy::Required(_))) {
            return;
        }
        *now = tls.clone();
        drop(now);
        for export in self.offered().iter() {
            export.check(&tls);
        }
    }

    /// Changes the access to an export. Clients that lose a right they asked for are disconnected, after the
    /// replies to their requests in flight.
    pub fn set_access(&self, name: &str, access: Access) {
        if let Some(export) = self.offers.read().iter().find(|export| export.name == name) {
            export.set_access(access);
        }
    }

    pub(crate) fn tls(&self) -> TlsPolicy {
        self.tls.read().clone()
    }

    /// Number of connections of the server now, including those in their handshake.
    pub fn connections(&self) -> usize {
        self.resources.admissions.connections()
    }

    /// Closes up to `count` connections that are in their handshake: first those whose clients have sent
    /// nothing, and among them the oldest first. Returns the number closed.
    pub fn close_handshakes(&self, count: usize) -> usize {
        self.resources.admissions.close_handshakes(count)
    }

    /// Number of clients of the server that chose an export so far.
    pub fn connected_count(&self) -> u64 {
        self.resources.audit.connected_count()
    }

    /// Number of clients of the server refused so far for this reason.
    pub fn refused_count(&self, reason: RefusalReason) -> u64 {
        self.resources.audit.refused_count(reason)
    }
}
