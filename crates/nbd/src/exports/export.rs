//! A device that a server offers under a name, and its sessions.

use std::ops::Deref;
use std::sync::Arc;

use crate::exports::sessions::{Client, Sessions};
use crate::fence::Fence;
use crate::fence::attachment::Sharing;
use crate::limits::config::TlsPolicy;
use crate::shutdown::Shutdown;
use crate::trust::access::{Access, Right};

/// A device under a name.
pub struct Export<D> {
    /// Name that clients ask for, at most 4096 bytes.
    pub name: String,
    /// Human-readable description, at most 4096 bytes; may be empty.
    pub description: String,
    /// The device.
    pub device: Arc<D>,
    /// Clients that may use it. [`Exports::set_access`](crate::Exports::set_access) changes that later.
    pub access: Access,
    /// Use by others while it is attached.
    pub sharing: Sharing,
}

/// An export that clients can choose, or could until it was removed.
pub struct Offered<D> {
    export: Export<D>,
    sessions: Sessions,
    /// Of its device.
    fence: Arc<Fence>,
}

impl<D> Deref for Offered<D> {
    type Target = Export<D>;
    fn deref(&self) -> &Export<D> {
        &self.export
    }
}

impl<D> Offered<D> {
    pub(crate) fn new(mut export: Export<D>, fence: Arc<Fence>) -> Arc<Self> {
        let sessions = Sessions::new(std::mem::take(&mut export.access));
        Arc::new(Self { export, sessions, fence })
    }

    /// Number of connections that chose it and have not ended.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// Waits until no connection uses it.
    pub async fn unused(&self) {
        self.sessions.none().await;
    }

    /// The fence of its device.
    pub(crate) fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    /// Ends the sessions: it is offered no longer.
    pub(crate) fn remove(&self) {
        self.sessions.remove();
    }

    /// Ends the sessions of clients that `tls` would not admit.
    pub(crate) fn check(&self, tls: &TlsPolicy) {
        self.sessions.check(tls, &self.name);
    }

    /// Changes the access to it, and ends the sessions of clients that lose a right they asked for.
    pub(crate) fn set_access(&self, access: Access) {
        self.sessions.set_access(access, &self.name);
    }

    /// Returns what a client may do with it, or `None` if it may not use it.
    pub(crate) fn right_of(&self, client: &Client) -> Option<Right> {
        self.sessions.right_of(client)
    }
}

/// An export that a connection chose. It counts as a session while it lives.
pub(crate) struct Chosen<D> {
    export: Arc<Offered<D>>,
    number: u64,
    end: Shutdown,
}

impl<D> Chosen<D> {
    /// Begins a session. Returns `None` if the client has lost that right.
    pub(crate) fn new(export: Arc<Offered<D>>, client: &Client, right: Right) -> Option<Chosen<D>> {
        let end = export.sessions.begin(client.clone(), right)?;
        Some(Chosen { export, number: client.number, end })
    }

    /// Subscribes to the end of the session: the export was removed, or the client has lost its right.
    pub(crate) fn end(&self) -> Shutdown {
        self.end.clone()
    }
}

impl<D> Deref for Chosen<D> {
    type Target = Offered<D>;
    fn deref(&self) -> &Offered<D> {
        &self.export
    }
}

impl<D> Drop for Chosen<D> {
    fn drop(&mut self) {
        self.export.sessions.end(self.number);
    }
}
