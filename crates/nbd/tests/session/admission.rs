//! Admission when places are short: silent clients make room, working ones stay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use nbd::protocol::*;
use nbd::testing::MemoryDevice;
use nbd::{ConnectionError, Exports, Peer, ServerConfig};
use tokio::time::sleep;

use crate::client::{Session, connect_from, device, shared_of};

const ONE: Peer = Peer::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
const OTHER: Peer = Peer::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));

/// A server with few places.
struct House {
    device: Arc<MemoryDevice>,
    exports: Arc<Exports<MemoryDevice>>,
}

impl House {
    fn of(connections_max: usize, connections_per_peer_max: usize) -> House {
        let device = Arc::new(device());
        let config = ServerConfig { connections_max, connections_per_peer_max, ..ServerConfig::default() };
        House { exports: shared_of(&device, config), device }
    }

    /// A client that is greeted and sends nothing.
    async fn silent(&self, peer: Peer) -> Session {
        let mut session = connect_from(peer, &self.exports, &self.device, 4096);
        session.client.receive(18).await;
        session
    }

    /// A client that has negotiated structured replies and goes no further.
    async fn hesitant(&self, peer: Peer) -> Session {
        let mut session = connect_from(peer, &self.exports, &self.device, 4096);
        session.client.greet().await;
        // The reply to an option shows that the server has received it.
        session.client.negotiate_structured().await;
        session
    }

    /// A client that has chosen an export.
    async fn working(&self, peer: Peer) -> Session {
        let mut session = self.hesitant(peer).await;
        session.client.go("").await;
        session
    }

    /// Connects a client that must be refused. Returns the error.
    async fn refused(&self, peer: Peer) -> ConnectionError {
        let mut session = connect_from(peer, &self.exports, &self.device, 4096);
        assert!(session.client.is_closed().await, "without a word");
        session.ended().await.expect_err("refused")
    }
}

async fn works(session: &mut Session) {
    assert_eq!(session.client.ask(CMD_FLUSH, 0, 0, 0).await, 0);
}

async fn made_room(session: &mut Session) {
    let ended = session.ends().await;
    assert!(matches!(ended, Err(ConnectionError::MadeRoom)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_gets_in_when_silent_ones_have_all_places() {
    let house = House::of(8, 8);
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(house.silent(ONE).await);
    }
    let mut clients = Vec::new();
    for silent in &mut silent {
        let mut working = house.working(ONE).await;
        works(&mut working).await;
        clients.push(working);
        made_room(silent).await;
        assert_eq!(house.exports.connections(), 8);
    }
    // No client is silent any more, and working ones keep their places.
    assert!(matches!(house.refused(OTHER).await, ConnectionError::TooManyConnections));
    for client in &mut clients {
        works(client).await;
    }
    assert!(clients.pop().expect("one").ended().await.is_ok());
    works(&mut house.working(OTHER).await).await;
}

#[tokio::test(start_paused = true)]
async fn who_said_something_stays_longer_than_who_said_nothing() {
    let house = House::of(3, 3);
    let mut hesitant = house.hesitant(ONE).await;
    let mut first = house.silent(ONE).await;
    let mut second = house.silent(ONE).await;
    let _new = house.working(ONE).await;
    made_room(&mut first).await;
    let _newer = house.working(ONE).await;
    made_room(&mut second).await;
    let _newest = house.working(ONE).await;
    made_room(&mut hesitant).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_over_its_limit_is_refused_and_others_are_not() {
    let house = House::of(8, 2);
    let mut silent_other = house.silent(OTHER).await;
    let mut ours = [house.working(ONE).await, house.working(ONE).await];
    let refused = house.refused(ONE).await;
    assert!(matches!(refused, ConnectionError::TooManyOfPeer(peer) if peer == ONE), "{refused}");
    assert!(refused.to_string().contains("192.0.2.1"), "{refused}");
    works(&mut house.working(OTHER).await).await;
    for client in &mut ours {
        works(client).await;
    }
    // The silent client of the other peer was not closed for the first peer.
    silent_other.client.send(&FLAG_C_FIXED_NEWSTYLE.to_be_bytes()).await;
    silent_other.client.go("").await;
    // A client that leaves makes room.
    let [first, _second] = ours;
    assert!(first.ended().await.is_ok());
    works(&mut house.working(ONE).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_at_its_limit_gets_in_for_its_own_silent_ones() {
    let house = House::of(8, 2);
    let _other = house.silent(OTHER).await;
    let mut silent = house.silent(ONE).await;
    let mut working = house.working(ONE).await;
    works(&mut house.working(ONE).await).await;
    made_room(&mut silent).await;
    works(&mut working).await;
}

#[tokio::test(start_paused = true)]
async fn clients_nobody_knows_of_are_limited_together_only() {
    let house = House::of(3, 1);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(house.working(Peer::Unknown).await);
    }
    assert!(matches!(house.refused(Peer::Unknown).await, ConnectionError::TooManyConnections));
}

#[tokio::test(start_paused = true)]
async fn handshakes_have_little_time_when_places_are_short() {
    let config = ServerConfig::default();
    assert!(config.handshake_timeout_scarce() * 3 < config.handshake_timeout);
    for (places, silent, working, closed_early) in
        [(8, 7, 0, true), (8, 6, 0, false), (8, 2, 6, true), (8, 2, 5, false)]
    {
        let case = format!("{silent} silent and {working} working of {places}");
        let house = House::of(places, places);
        let mut workers = Vec::new();
        for _ in 0..working {
            workers.push(house.working(ONE).await);
        }
        let mut sessions = Vec::new();
        for _ in 0..silent {
            sessions.push(house.silent(ONE).await);
        }
        sleep(config.handshake_timeout_scarce() * 2).await;
        let left = house.exports.connections() - working;
        assert_eq!(left < silent, closed_early, "{case}: {left} are left");
        // The remaining handshakes are below the limit and have the full time.
        assert!(left * 4 <= places * 3, "{case}: {left} are left");
        if closed_early {
            let ended = sessions.remove(0).ended().await;
            assert!(matches!(ended, Err(ConnectionError::HandshakeTimeout)), "{case}: {ended:?}");
        }
        sleep(config.handshake_timeout).await;
        assert_eq!(house.exports.connections(), working, "{case}");
        for worker in &mut workers {
            works(worker).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn handshakes_are_closed_on_demand_and_nothing_else_is() {
    let house = House::of(8, 8);
    let mut working = house.working(ONE).await;
    let mut hesitant = house.hesitant(ONE).await;
    let mut silent = house.silent(ONE).await;
    assert_eq!(house.exports.close_handshakes(1), 1);
    made_room(&mut silent).await;
    assert_eq!(house.exports.close_handshakes(5), 1);
    made_room(&mut hesitant).await;
    assert_eq!(house.exports.close_handshakes(5), 0);
    works(&mut working).await;
    sleep(Duration::from_secs(100)).await;
    assert_eq!(house.exports.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_keeps_its_place_from_before_it_is_told_that_it_has_the_export() {
    let house = House::of(1, 1);
    // The reply does not fit into the pipe, so the server is still writing it.
    let mut reading = connect_from(ONE, &house.exports, &house.device, 32);
    reading.client.greet().await;
    let go = nbd::option::ClientOption::Go(crate::client::info(""));
    reading.client.send(&go.encode()).await;
    reading.client.receive(20).await;
    assert!(matches!(house.refused(OTHER).await, ConnectionError::TooManyConnections));
    assert_eq!(house.exports.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_many_addresses_has_no_more_places_than_others() {
    let house = House::of(8, 2);
    let v6 =
        |network, host| Peer::Address(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host)));
    let first = house.working(v6(1, 1)).await;
    let _second = house.working(v6(1, 2)).await;
    assert!(
        matches!(house.refused(v6(1, 3)).await, ConnectionError::TooManyOfPeer(peer) if peer == v6(1, 3))
    );
    let _other = house.working(v6(2, 1)).await;
    drop(first);
    sleep(Duration::from_secs(1)).await;
    let _third = house.working(v6(1, 3)).await;
}
