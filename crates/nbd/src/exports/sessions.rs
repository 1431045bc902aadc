//! Sessions of an export. A client that chose the export has one until it leaves, the export is removed, or
//! the client may no longer use it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::limits::config::TlsPolicy;
use crate::peers::peer::Peer;
use crate::shutdown::{Shutdown, ShutdownTrigger};
use crate::trust::access::{Access, Right};
use crate::trust::identity::Identity;

/// A client that chooses an export.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Number of its connection.
    pub(crate) number: u64,
    pub(crate) peer: Peer,
    /// `None` without a certificate.
    pub(crate) identity: Option<Arc<Identity>>,
}

/// The sessions of an export.
#[derive(Debug)]
pub(crate) struct Sessions {
    state: Mutex<SessionTable>,
    count: watch::Sender<usize>,
}

#[derive(Debug)]
struct SessionTable {
    access: Access,
    removed: bool,
    /// By number of the connection.
    sessions: HashMap<u64, Session>,
}

#[derive(Debug)]
struct Session {
    client: Client,
    right: Right,
    end: ShutdownTrigger,
}

impl Sessions {
    pub(crate) fn new(access: Access) -> Sessions {
        let state = SessionTable { access, removed: false, sessions: HashMap::new() };
        Sessions { state: Mutex::new(state), count: watch::Sender::new(0) }
    }

    /// Number of sessions.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until there is none.
    pub(crate) async fn none(&self) {
        // Cannot fail: `self` holds the sender.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Returns what a client may do with the export.
    pub(crate) fn right_of(&self, client: &Client) -> Option<Right> {
        self.state.lock().access.right_of(client.identity.as_deref())
    }

    /// Begins a session. Returns the receiver of requests to end it, or `None` if the client may no longer
    /// use the export. Pair it with [`Sessions::end`].
    pub(crate) fn begin(&self, client: Client, right: Right) -> Option<Shutdown> {
        let mut state = self.state.lock();
        if state.access.right_of(client.identity.as_deref()) < Some(right) {
            return None;
        }
        let end = ShutdownTrigger::new();
        let requested = end.subscribe();
        if state.removed {
            end.trigger();
        }
        let earlier = state.sessions.insert(client.number, Session { client, right, end });
        debug_assert!(earlier.is_none(), "a connection has one session");
        self.count.send_replace(state.sessions.len());
        Some(requested)
    }

    pub(crate) fn end(&self, number: u64) {
        let mut state = self.state.lock();
        let ended = state.sessions.remove(&number);
        debug_assert!(ended.is_some(), "a session that began ends once");
        self.count.send_replace(state.sessions.len());
    }

    /// Requests the end of all sessions, also of those that begin later.
    pub(crate) fn remove(&self) {
        let mut state = self.state.lock();
        state.removed = true;
        state.sessions.values().for_each(|session| session.end.trigger());
    }

    /// Changes the access to the export, and requests the end of sessions whose clients exceed it.
    pub(crate) fn set_access(&self, access: Access, export: &str) {
        let mut state = self.state.lock();
        state.access = access;
        let SessionTable { access, sessions, .. } = &*state;
        let lost =
            |session: &&Session| access.right_of(session.client.identity.as_deref()) < Some(session.right);
        sessions.values().filter(lost).for_each(|session| session.end_for(export, "its access was revoked"));
    }

    /// Requests the end of sessions whose clients would no longer be admitted.
    pub(crate) fn check(&self, tls: &TlsPolicy, export: &str) {
        let TlsPolicy::Required(tls) = tls else { return };
        // Not under the lock, because verifying a certificate takes time.
        let clients: Vec<Client> =
            self.state.lock().sessions.values().map(|session| session.client.clone()).collect();
        let lost = clients.iter().filter(|client| !tls.admits(client.identity.as_deref()));
        for client in lost {
            if let Some(session) = self.state.lock().sessions.get(&client.number) {
                session.end_for(export, "its certificate is no longer valid");
            }
        }
    }
}

impl Session {
    fn end_for(&self, export: &str, why: &str) {
        let Client { number, peer, identity } = &self.client;
        let identity = identity.as_ref().map(tracing::field::display);
        tracing::warn!(client = number, %peer, identity, export, "the client is disconnected: {why}");
        self.end.trigger();
    }
}
