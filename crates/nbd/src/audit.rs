//! Record of clients that came and left, or were refused: counters, and lines in the log.
//!
//! Each client that is admitted has a line when it connects and when it leaves. Refusals can come in floods
//! and have at most one line in ten seconds for each peer and reason.

pub(crate) mod hold_back;
pub(crate) mod refusal;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::audit::hold_back::HoldBack;
use crate::audit::refusal::RefusalReason;
use crate::peers::peer::Peer;
use crate::peers::short::Short;
use crate::trust::identity::Identity;

/// The record of a server.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    connected: AtomicU64,
    refused: [AtomicU64; RefusalReason::ALL.len()],
    hold_back: HoldBack,
}

/// A client that is refused, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) peer: Peer,
    /// `None` without a certificate, and before TLS.
    pub(crate) identity: Option<&'a Identity>,
    /// Export that the client requested, if that is the reason.
    pub(crate) export: Option<&'a str>,
}

impl Refused<'_> {
    /// A client of which only the peer is known.
    pub(crate) fn peer(peer: Peer) -> Refused<'static> {
        Refused { peer, identity: None, export: None }
    }
}

impl Audit {
    /// Counts a client that was admitted. The caller logs it.
    pub(crate) fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal, and logs it unless one of this peer for this reason was logged within the last ten
    /// seconds.
    pub(crate) fn refused(&self, reason: RefusalReason, client: Refused<'_>, detail: &dyn Display) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
        let Refused { peer, identity, export } = client;
        if let Some(held_back) = self.hold_back.pass(peer.counted(), reason) {
            let identity = identity.map(tracing::field::display);
            let export = export.map(|export| Short(export).to_string());
            let (reason, detail) = (reason.as_str(), Short(detail));
            tracing::warn!(%peer, identity, export, reason, held_back, "a client is refused: {detail}");
        }
    }

    /// Number of clients admitted so far.
    pub(crate) fn connected_count(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Number of refusals so far.
    pub(crate) fn refused_count(&self, reason: RefusalReason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }
}
