//! Counts of clients that were let in or refused, and their lines in the log.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use nbd::option::ClientOption;
use nbd::protocol::*;
use nbd::testing::MemoryDevice;
use nbd::{Access, Export, Exports, Peer, RefusalReason, ServerConfig};
use tokio::time::sleep;

use crate::client::{Session, connect_from, device, info, shared_of};
use crate::log::Log;

const ONE: Peer = Peer::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
const OTHER: Peer = Peer::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));

/// Returns the refusals so far, without reasons that there were none for.
fn refused(exports: &Exports<MemoryDevice>) -> Vec<(RefusalReason, u64)> {
    let all = RefusalReason::ALL.map(|reason| (reason, exports.refused_count(reason)));
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

async fn client(exports: &Arc<Exports<MemoryDevice>>, peer: Peer) -> Session {
    let mut session = connect_from(peer, exports, &Arc::new(device()), 1 << 20);
    session.client.greet().await;
    session
}

#[tokio::test(start_paused = true)]
async fn clients_that_choose_an_export_are_counted() {
    let exports = shared_of(&Arc::new(device()), ServerConfig::default());
    client(&exports, ONE).await.client.go("").await;
    let mut only_asks = client(&exports, ONE).await;
    assert_eq!(only_asks.client.outcome(&ClientOption::Info(info("second"))).await, REP_ACK);
    only_asks.ended().await.expect("a client may leave");
    assert_eq!(exports.connected_count(), 1);
    assert_eq!(refused(&exports), []);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_reason() {
    let config = ServerConfig { connections_max: 3, connections_per_peer_max: 2, ..ServerConfig::default() };
    let patience = config.handshake_timeout * 2;
    let exports = shared_of(&Arc::new(device()), config);
    let mut first = client(&exports, ONE).await;
    // Once a connection, however often it asks.
    for option in [ClientOption::Info(info("none")), ClientOption::Go(info("none either"))] {
        assert_eq!(first.client.outcome(&option).await, REP_ERR_UNKNOWN);
    }
    assert_eq!(refused(&exports), [(RefusalReason::NoExport, 1)]);
    first.client.go("").await;
    let mut silent = client(&exports, ONE).await;
    let mut second = client(&exports, ONE).await;
    silent.ends().await.expect_err("made room");
    second.client.go("").await;
    connect_from(ONE, &exports, &Arc::new(device()), 64).ends().await.expect_err("too many of its peer");
    let mut third = client(&exports, OTHER).await;
    sleep(patience).await;
    third.ends().await.expect_err("too slow");
    let mut third = client(&exports, OTHER).await;
    third.client.send(&[7; 16]).await;
    third.ends().await.expect_err("no option");
    let mut third = client(&exports, OTHER).await;
    third.client.go("").await;
    connect_from(Peer::Unknown, &exports, &Arc::new(device()), 64).ends().await.expect_err("too many");
    let expected = [
        RefusalReason::Connections,
        RefusalReason::PeerConnections,
        RefusalReason::MadeRoom,
        RefusalReason::Timeout,
        RefusalReason::Protocol,
        RefusalReason::NoExport,
    ];
    assert_eq!(refused(&exports), expected.map(|reason| (reason, 1)));
    assert_eq!(exports.connected_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn limits_and_counts_are_those_of_all_addresses_together() {
    let config = ServerConfig { connections_max: 2, connections_per_peer_max: 2, ..ServerConfig::default() };
    let exports = shared_of(&Arc::new(device()), config);
    let others = exports.others();
    let export = Export {
        name: "other".into(),
        description: String::new(),
        device: Arc::new(device()),
        access: Access::Everyone,
        sharing: nbd::Sharing::default(),
    };
    others.add(export).expect("a name of its own");
    let mut first = client(&exports, ONE).await;
    first.client.go("first").await;
    let mut second = client(&others, ONE).await;
    assert_eq!(second.client.outcome(&ClientOption::Go(info("first"))).await, REP_ERR_UNKNOWN);
    second.client.go("other").await;
    for exports in [&exports, &others] {
        connect_from(ONE, exports, &Arc::new(device()), 64).ends().await.expect_err("too many");
        assert_eq!(exports.connections(), 2);
        assert_eq!(exports.connected_count(), 2);
    }
    assert_eq!(refused(&exports), [(RefusalReason::PeerConnections, 2), (RefusalReason::NoExport, 1)]);
}

#[tokio::test(start_paused = true)]
async fn each_refused_peer_has_a_line() {
    let log = Log::start();
    let exports = shared_of(&Arc::new(device()), ServerConfig::default());
    for peer in [ONE, ONE, OTHER, ONE, Peer::User(7), OTHER] {
        let mut session = client(&exports, peer).await;
        assert_eq!(session.client.outcome(&ClientOption::Info(info("none"))).await, REP_ERR_UNKNOWN);
    }
    let line = |peer| {
        let fields = "export=\"none\" reason=\"no-export\" held_back=0";
        format!("a client is refused: there is no export \"none\" peer={peer} {fields}")
    };
    assert_eq!(log.with("refused"), [ONE, OTHER, Peer::User(7)].map(line));
    sleep(Duration::from_secs(10)).await;
    let mut session = client(&exports, ONE).await;
    assert_eq!(session.client.outcome(&ClientOption::Info(info("none"))).await, REP_ERR_UNKNOWN);
    assert_eq!(log.with("held_back=2").len(), 1, "{:?}", log.with("refused"));
}
