//! Who may connect: so many in all, so many of one peer, and those who say nothing make room for those who come.
//!
//! A connection counts from its first moment. Whoever finds no room takes the place of a handshake: of his own peer's where that
//! one is at its limit, else of anybody's. The one that has said nothing and waits longest goes first, then the one that waits
//! longest. Connections past their handshake are never closed for others; where all are, the newcomer is refused.
//!
//! While handshakes hold more than three quarters of the places, or none is free, they have little time:
//! `handshake_timeout_scarce`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use log_limit::LogLimit;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::config::ServerConfig;
use crate::error::ConnectionError;

/// How often a handshake looks whether its time has become short.
const LOOK: Duration = Duration::from_secs(1);

/// Whom a connection counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The address of a TCP client.
    Address(IpAddr),
    /// The user of a process that connected to a Unix socket.
    User(u32),
    /// Nobody knows: only the limit of all connections holds.
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::User(user) => write!(f, "user {user}"),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}

/// The order in which handshakes are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The client has said something.
    heard: bool,
    /// Of the connection, in the order they came.
    number: u64,
}

/// The places of a server and who has them.
pub(crate) struct Admissions {
    state: Mutex<State>,
    places: usize,
    places_per_peer: usize,
    refused: LogLimit,
    peer_refused: LogLimit,
    closed: LogLimit,
}

#[derive(Default)]
struct State {
    connections: usize,
    peers: HashMap<Peer, PeerState>,
    handshakes: BTreeMap<Rank, Handshaking>,
    next_number: u64,
}

#[derive(Default)]
struct PeerState {
    connections: usize,
    handshakes: BTreeSet<Rank>,
}

struct Handshaking {
    peer: Peer,
    closed: Arc<Notify>,
}

impl State {
    /// Takes a handshake out, and with it the connection.
    fn close(&mut self, rank: Rank) {
        if let Some(handshaking) = self.end_handshake(rank) {
            self.leave(handshaking.peer);
            handshaking.closed.notify_one();
        }
    }

    fn end_handshake(&mut self, rank: Rank) -> Option<Handshaking> {
        let handshaking = self.handshakes.remove(&rank)?;
        if let Some(peer) = self.peers.get_mut(&handshaking.peer) {
            peer.handshakes.remove(&rank);
        }
        Some(handshaking)
    }

    fn begin_handshake(&mut self, rank: Rank, handshaking: Handshaking) {
        self.peers.entry(handshaking.peer).or_default().handshakes.insert(rank);
        self.handshakes.insert(rank, handshaking);
    }

    fn leave(&mut self, peer: Peer) {
        self.connections -= 1;
        if let Some(state) = self.peers.get_mut(&peer) {
            state.connections -= 1;
            if state.connections == 0 {
                self.peers.remove(&peer);
            }
        }
    }
}

impl Admissions {
    pub(crate) fn new(config: &ServerConfig) -> Admissions {
        Admissions {
            state: Mutex::default(),
            places: config.connections_max,
            places_per_peer: config.connections_per_peer_max,
            refused: LogLimit::new(),
            peer_refused: LogLimit::new(),
            closed: LogLimit::new(),
        }
    }

    /// Connections that have a place.
    pub(crate) fn connections(&self) -> usize {
        self.state.lock().connections
    }

    /// Gives a client of `peer` a place for as long as the admission lives, or until it is closed.
    ///
    /// # Errors
    /// Where there is no place, and no handshake to take it from.
    pub(crate) fn admit(self: &Arc<Self>, peer: Peer) -> Result<Admission, ConnectionError> {
        let mut state = self.state.lock();
        let of_peer = state.peers.get(&peer);
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
            Some(Ok(rank)) => {
                state.close(rank);
                self.log_closed();
            }
            Some(Err(error)) => {
                drop(state);
                self.log_refused(&error);
                return Err(error);
            }
        }
        let rank = Rank { heard: false, number: state.next_number };
        state.next_number += 1;
        state.connections += 1;
        state.peers.entry(peer).or_default().connections += 1;
        let closed = Arc::new(Notify::new());
        state.begin_handshake(rank, Handshaking { peer, closed: Arc::clone(&closed) });
        Ok(Admission {
            admissions: Arc::clone(self),
            peer,
            rank,
            in_handshake: true,
            since: Instant::now(),
            closed,
        })
    }

    /// Closes up to `count` handshakes, for want of something else than places. Answers how many.
    pub(crate) fn close_handshakes(&self, count: usize) -> usize {
        let mut state = self.state.lock();
        let oldest: Vec<Rank> = state.handshakes.keys().take(count).copied().collect();
        oldest.iter().for_each(|rank| state.close(*rank));
        oldest.len()
    }

    /// Whether handshakes have little time.
    fn scarce(&self) -> bool {
        let state = self.state.lock();
        state.handshakes.len() * 4 > self.places * 3 || state.connections >= self.places
    }

    fn log_refused(&self, error: &ConnectionError) {
        let limit = match error {
            ConnectionError::TooManyConnections => &self.refused,
            _ => &self.peer_refused,
        };
        if let Some(held_back) = limit.pass() {
            tracing::warn!(held_back, "a client is refused: {error}");
        }
    }

    fn log_closed(&self) {
        if let Some(held_back) = self.closed.pass() {
            tracing::warn!(
                held_back,
                "a client in its handshake is disconnected: another one needs its place"
            );
        }
    }
}

/// A connection's place.
pub(crate) struct Admission {
    admissions: Arc<Admissions>,
    peer: Peer,
    rank: Rank,
    in_handshake: bool,
    since: Instant,
    closed: Arc<Notify>,
}

impl Admission {
    /// Of the connection, in the order they came.
    pub(crate) fn number(&self) -> u64 {
        self.rank.number
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// The client has said something.
    pub(crate) fn heard(&mut self) {
        let mut state = self.admissions.state.lock();
        if let Some(handshaking) = state.end_handshake(self.rank) {
            self.rank.heard = true;
            state.begin_handshake(self.rank, handshaking);
        }
    }

    /// The handshake is done: nobody takes the place any more.
    ///
    /// # Errors
    /// Where somebody has.
    pub(crate) fn established(&mut self) -> Result<(), ConnectionError> {
        let ended = self.admissions.state.lock().end_handshake(self.rank);
        ended.ok_or(ConnectionError::MadeRoom)?;
        self.in_handshake = false;
        Ok(())
    }

    /// What tells that the place is taken, which says nothing before it does.
    pub(crate) fn closed(&self) -> Arc<Notify> {
        Arc::clone(&self.closed)
    }

    /// Waits for as long as the handshake may take.
    pub(crate) fn patience(&self, config: &ServerConfig) -> impl Future<Output = ()> + use<> {
        let end = self.since + config.handshake_timeout;
        let scarce_end = self.since + config.handshake_timeout_scarce;
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
        // A handshake that was closed has left already.
        if !self.in_handshake || state.end_handshake(self.rank).is_some() {
            state.leave(self.peer);
        }
    }
}
