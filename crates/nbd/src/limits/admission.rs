//! Limits on connections: in total, per peer, and of clients that are still in their handshake.
//!
//! A connection counts from the moment it is accepted. A client that finds no free place takes the place of a
//! handshake: one of its own peer if that peer is at its limit, otherwise one of any peer. The oldest
//! handshake in which the client has sent nothing is closed first, then the oldest handshake. Connections
//! past their handshake are never closed for others. If there is no handshake to close, the new client is
//! refused.
//!
//! While handshakes hold more than three quarters of the places, or no place is free, the shorter limit
//! [`ServerConfig::handshake_timeout_scarce`] applies to handshakes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::audit::refusal::RefusalReason;
use crate::audit::{Audit, Refused};
use crate::error::ConnectionError;
use crate::limits::config::ServerConfig;
use crate::peers::peer::Peer;

/// Interval at which a handshake checks whether the shorter time limit applies.
const LOOK: Duration = Duration::from_secs(1);

/// Order in which handshakes are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The client has sent something.
    heard: bool,
    /// Number of the connection, in the order of arrival.
    number: u64,
}

/// The places of a server and their holders.
pub(crate) struct Admissions {
    state: Mutex<Occupancy>,
    places: usize,
    places_per_peer: usize,
    audit: Arc<Audit>,
}

#[derive(Default)]
struct Occupancy {
    connections: usize,
    /// By peers as they are counted.
    peers: HashMap<Peer, PeerOccupancy>,
    handshakes: BTreeMap<Rank, Handshaking>,
    next_number: u64,
}

#[derive(Default)]
struct PeerOccupancy {
    connections: usize,
    handshakes: BTreeSet<Rank>,
}

struct Handshaking {
    /// As it is counted.
    peer: Peer,
    closed: Arc<Notify>,
}

impl Occupancy {
    /// Removes a handshake and its connection, and notifies the connection.
    fn close(&mut self, rank: Rank) {
        if let Some(handshaking) = self.end_handshake(rank) {
            self.leave(handshaking.peer);
            handshaking.closed.notify_one();
        }
    }

    fn end_handshake(&mut self, rank: Rank) -> Option<Handshaking> {
        let handshaking = self.handshakes.remove(&rank)?;
        if let Some(peer) = self.peers.get_mut(&handshaking.peer) {
            let known = peer.handshakes.remove(&rank);
            debug_assert!(known, "a handshake is listed in total and for its peer");
        }
        Some(handshaking)
    }

    fn begin_handshake(&mut self, rank: Rank, handshaking: Handshaking) {
        self.peers.entry(handshaking.peer).or_default().handshakes.insert(rank);
        let earlier = self.handshakes.insert(rank, handshaking);
        debug_assert!(earlier.is_none(), "numbers of connections are unique");
    }

    fn leave(&mut self, peer: Peer) {
        debug_assert!(self.connections > 0 && self.peers.contains_key(&peer), "a connection leaves once");
        self.connections -= 1;
        if let Some(state) = self.peers.get_mut(&peer) {
            state.connections -= 1;
            debug_assert!(state.handshakes.len() <= state.connections, "handshakes are connections");
            if state.connections == 0 {
                self.peers.remove(&peer);
            }
        }
    }
}

impl Admissions {
    pub(crate) fn new(config: &ServerConfig, audit: Arc<Audit>) -> Admissions {
        Admissions {
            state: Mutex::default(),
            places: config.connections_max,
            places_per_peer: config.connections_per_peer_max,
            audit,
        }
    }

    /// Number of connections that have a place.
    pub(crate) fn connections(&self) -> usize {
        self.state.lock().connections
    }

    /// Gives a client of `peer` a place for as long as the returned admission lives, or until it is closed.
    ///
    /// # Errors
    /// If no place is free and there is no handshake to close.
    pub(crate) fn admit(self: &Arc<Self>, peer: Peer) -> Result<Admission, ConnectionError> {
        let counted = peer.counted();
        let mut state = self.state.lock();
        let of_peer = state.peers.get(&counted);
        let peer_full = peer != Peer::Unknown
            && of_peer.is_some_and(|of_peer| of_peer.connections >= self.places_per_peer);
        let victim = if peer_full {
            let oldest = of_peer.and_then(|of_peer| of_peer.handshakes.first()).copied();
            Some(oldest.ok_or(ConnectionError::TooManyOfPeer(peer)))
        } else if state.connections >= self.places {
            let oldest = state.handshakes.first_key_value().map(|(rank, _)| *rank);
            Some(oldest.ok_or(ConnectionError::TooManyConnections))
        } else {
            None
        };
        match victim {
            None => {}
            Some(Ok(rank)) => state.close(rank),
            Some(Err(error)) => {
                drop(state);
                if let Some(reason) = RefusalReason::of(&error) {
                    self.audit.refused(reason, Refused::peer(peer), &error);
                }
                return Err(error);
            }
        }
        let rank = Rank { heard: false, number: state.next_number };
        state.next_number += 1;
        state.connections += 1;
        let of_peer = state.peers.entry(counted).or_default();
        of_peer.connections += 1;
        let of_peer = of_peer.connections;
        let closed = Arc::new(Notify::new());
        state.begin_handshake(rank, Handshaking { peer: counted, closed: Arc::clone(&closed) });
        assert!(state.connections <= self.places, "a connection needs a free place");
        assert!(
            peer == Peer::Unknown || of_peer <= self.places_per_peer,
            "so it does among those of its peer"
        );
        assert!(state.handshakes.len() <= state.connections, "handshakes are connections");
        Ok(Admission {
            admissions: Arc::clone(self),
            peer,
            rank,
            in_handshake: true,
            since: Instant::now(),
            closed,
        })
    }

    /// Closes up to `count` handshakes because something other than places has run out. Returns the number
    /// closed.
    pub(crate) fn close_handshakes(&self, count: usize) -> usize {
        let mut state = self.state.lock();
        let oldest: Vec<Rank> = state.handshakes.keys().take(count).copied().collect();
        oldest.iter().for_each(|rank| state.close(*rank));
        oldest.len()
    }

    /// Returns true if the shorter time limit for handshakes applies.
    fn scarce(&self) -> bool {
        let state = self.state.lock();
        state.handshakes.len() * 4 > self.places * 3 || state.connections >= self.places
    }
}

/// Place of a connection.
pub(crate) struct Admission {
    admissions: Arc<Admissions>,
    peer: Peer,
    rank: Rank,
    in_handshake: bool,
    since: Instant,
    closed: Arc<Notify>,
}

impl Admission {
    /// Number of the connection, in the order of arrival.
    pub(crate) fn number(&self) -> u64 {
        self.rank.number
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Notes that the client has sent something.
    pub(crate) fn heard(&mut self) {
        let mut state = self.admissions.state.lock();
        if let Some(handshaking) = state.end_handshake(self.rank) {
            self.rank.heard = true;
            state.begin_handshake(self.rank, handshaking);
        }
    }

    /// Notes that the handshake is done. The place can no longer be taken.
    ///
    /// # Errors
    /// If the place was taken before.
    pub(crate) fn established(&mut self) -> Result<(), ConnectionError> {
        let ended = self.admissions.state.lock().end_handshake(self.rank);
        ended.ok_or(ConnectionError::MadeRoom)?;
        self.in_handshake = false;
        Ok(())
    }

    /// Notification that the place was taken. It fires at no other time.
    pub(crate) fn closed(&self) -> Arc<Notify> {
        Arc::clone(&self.closed)
    }

    /// Waits until the time for the handshake has run out.
    pub(crate) fn patience(&self, config: &ServerConfig) -> impl Future<Output = ()> + use<> {
        let end = self.since + config.handshake_timeout;
        let scarce_end = self.since + config.handshake_timeout_scarce();
        let admissions = Arc::clone(&self.admissions);
        async move {
            sleep_until(scarce_end.min(end)).await;
            while Instant::now() < end && !admissions.scarce() {
                sleep_until((Instant::now() + LOOK).min(end)).await;
            }
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut state = self.admissions.state.lock();
        // A handshake that was closed no longer counts.
        if !self.in_handshake || state.end_handshake(self.rank).is_some() {
            state.leave(self.peer.counted());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_network_are_counted_together() {
        let counted = |text: &str| Peer::Address(text.parse().expect("an address")).counted();
        let same = |one, other| counted(one) == counted(other);
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("::ffff:192.0.2.1", "::ffff:192.0.2.2"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert_eq!(Peer::User(7).counted(), Peer::User(7));
        // All machines of a link have this network.
        assert!(!same("fe80::1", "fe80::2"));
        assert!(!same("febf:ffff::1", "febf:ffff::2") && same("fec0::1", "fec0::2"));
        // A translator's clients.
        assert!(same("64:ff9b::192.0.2.1", "192.0.2.1"));
        assert!(!same("64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2"));
        assert!(same("64:ff9b:0:0:1::1", "64:ff9b:0:0:2::1"), "another prefix");
    }

    #[test]
    fn messages_name_what_is_counted() {
        let shown = |text: &str| {
            let peer = Peer::Address(text.parse().expect("an address"));
            ConnectionError::TooManyOfPeer(peer).to_string()
        };
        for (address, named) in [
            ("2001:db8:1:2::5", "2001:db8:1:2::/64 has"),
            ("fe80::1", "fe80::1 has"),
            ("64:ff9b::192.0.2.1", "192.0.2.1 has"),
            ("::ffff:192.0.2.1", "192.0.2.1 has"),
        ] {
            assert!(shown(address).starts_with(named), "{}", shown(address));
        }
    }
}
