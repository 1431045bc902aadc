//! Requests that have not begun when their client leaves, beside another client that is connected all the
//! time.

use std::sync::Arc;
use std::time::Duration;

use nbd::ServerConfig;
use nbd::protocol::*;
use nbd::request::RequestHeader;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::client::Client;
use crate::fence::{LEN, LONG, Served, read_byte, serve, write_request};
use crate::helped::Threads;

/// Time in which what must not happen would happen.
const WHILE: Duration = Duration::from_millis(200);

fn config() -> ServerConfig {
    ServerConfig { shutdown_grace: LONG, ..ServerConfig::default() }
}

/// One request at a time, so that others stay in the socket.
fn one_at_a_time() -> ServerConfig {
    ServerConfig { requests_per_connection_max: 1, ..config() }
}

/// Leaves two writes of ones, of which `taken` wait, writes twos, and lets what waits begin.
async fn leave_waiting<S: AsyncRead + AsyncWrite + Unpin>(
    served: &Served,
    mut first: Client<S>,
    mut other: Client<S>,
    taken: u64,
) {
    first.go("first").await;
    other.go("first").await;
    served.device.wait(true);
    let before = served.device.delayed();
    first.send(&[write_request(1, 1), write_request(2, 1)].concat()).await;
    served.delayed(before + taken).await;
    served.device.wait(false);
    drop(first);
    assert_eq!(other.write(CMD_FLAG_FUA, 0, &[2; LEN]).await, 0);
    served.device.begin();
    tokio::time::sleep(WHILE).await;
    assert_eq!(read_byte(&mut other).await, 2, "a write of a client that has left came over a newer one");
}

#[tokio::test]
async fn what_waits_when_its_client_leaves_does_not_begin() {
    let served = serve(config());
    leave_waiting(&served, served.unix().await, served.unix().await, 2).await;
    leave_waiting(&served, served.tcp().await, served.tcp().await, 2).await;
}

#[tokio::test]
async fn nor_what_is_unread_behind_it() {
    let served = serve(one_at_a_time());
    leave_waiting(&served, served.unix().await, served.unix().await, 1).await;
    let served = serve(one_at_a_time());
    leave_waiting(&served, served.tcp().await, served.tcp().await, 1).await;
}

#[tokio::test]
async fn nor_what_waits_on_another_thread() {
    let threads = Threads::start(2);
    let served = serve(ServerConfig { helpers: Some(Arc::clone(&threads.helpers)), ..config() });
    leave_waiting(&served, served.unix().await, served.unix().await, 2).await;
}

/// The device works at the first request. The second one waits for its place.
async fn leave_unread<S: AsyncRead + AsyncWrite + Unpin>(served: &Served, mut client: Client<S>) {
    client.go("first").await;
    let header =
        RequestHeader { flags: CMD_FLAG_FUA, command: CMD_WRITE, cookie: 1, offset: 0, length: LEN as u32 };
    let request = [&header.encode()[..], &[1; LEN]].concat();
    let before = served.device.durable_writes();
    served.hold(&mut client, &[request.clone(), request].concat()).await;
    drop(client);
    served.device.release();
    tokio::time::sleep(WHILE).await;
    assert_eq!(served.device.durable_writes(), before + 1);
}

#[tokio::test]
async fn what_waits_for_a_place_when_its_client_leaves_is_not_taken() {
    let served = serve(one_at_a_time());
    leave_unread(&served, served.unix().await).await;
    leave_unread(&served, served.tcp().await).await;
}

#[tokio::test]
async fn a_client_that_waits_for_its_replies_gets_them() {
    let served = serve(config());
    for disconnects in [false, true] {
        let mut client = served.unix().await;
        client.go("first").await;
        served.device.wait(true);
        let before = served.device.delayed();
        client.send(&write_request(1, 1)).await;
        served.delayed(before + 1).await;
        if disconnects {
            client.request(CMD_DISC, 0, 0, 0).await;
        } else {
            client.stream.shutdown().await.expect("half closed");
        }
        tokio::time::sleep(WHILE).await;
        served.device.begin();
        let reply = client.simple_reply().await;
        assert_eq!((reply.cookie, reply.error), (1, 0));
        assert!(client.is_closed().await);
    }
}
