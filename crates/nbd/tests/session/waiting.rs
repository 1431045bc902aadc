//! Clients that wait at the fence for requests of another one that has left.

use std::time::{Duration, Instant};

use nbd::option::ClientOption;
use nbd::protocol::*;
use nbd::request::RequestHeader;
use nbd::{RefusalReason, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::client::{Client, info};
use crate::fence::{LEN, LONG, Served, read_byte, serve, write_request};

/// Length of writes that must not be carried out.
const SHORT: usize = 512;
/// Time in which all threads get their turn.
const MOMENT: Duration = Duration::from_millis(200);

/// A server with a request under way of a client that has left. The device records writes.
async fn blocked() -> Served {
    let served = serve(ServerConfig { shutdown_grace: LONG, ..ServerConfig::default() });
    served.device.meet(1);
    let mut left = served.unix().await;
    left.go("first").await;
    served.hold(&mut left, &write_request(1, 1)).await;
    served
}

fn go() -> Vec<u8> {
    ClientOption::Go(info("first")).encode()
}

fn short_write(cookie: u64) -> Vec<u8> {
    let header = RequestHeader { flags: 0, command: CMD_WRITE, cookie, offset: 0, length: SHORT as u32 };
    [&header.encode()[..], &[1; SHORT]].concat()
}

fn disconnect() -> Vec<u8> {
    RequestHeader { flags: 0, command: CMD_DISC, cookie: 0, offset: 0, length: 0 }.encode().to_vec()
}

/// Receives the replies to the option that [`go`] returns.
async fn is_let_in<S: AsyncRead + AsyncWrite + Unpin>(client: &mut Client<S>) {
    while client.option_reply(OPT_GO).await.reply_type != REP_ACK {}
}

/// Makes another client choose the export, and ends the request that both wait for. Writes twos, which must
/// stay.
async fn let_in<S: AsyncRead + AsyncWrite + Unpin>(served: &Served, next: &mut Client<S>) {
    next.send(&go()).await;
    sleep(MOMENT).await;
    served.device.release();
    is_let_in(next).await;
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    sleep(MOMENT).await;
    assert_eq!(read_byte(next).await, 2);
    let lengths: Vec<usize> = served.device.writes().iter().map(|(len, _)| *len).collect();
    assert_eq!(lengths, [LEN, LEN], "that of the client that left, and that of the next one");
}

#[tokio::test]
async fn what_a_client_has_sent_that_gave_up_waiting_is_not_carried_out() {
    let served = blocked().await;
    let mut gave_up = served.tcp().await;
    gave_up.send(&go()).await;
    // It is there when it is looked at first, and has left when the wait is over.
    sleep(MOMENT).await;
    gave_up.send(&short_write(1)).await;
    drop(gave_up);
    let_in(&served, &mut served.unix().await).await;
}

/// Sends requests while the client waits, and then nothing more. Returns the client.
async fn send_ahead<S: AsyncRead + AsyncWrite + Unpin>(mut client: Client<S>) -> Client<S> {
    client.send(&go()).await;
    sleep(MOMENT).await;
    client.send(&(1..=3).flat_map(short_write).chain(disconnect()).collect::<Vec<u8>>()).await;
    client.stream.shutdown().await.expect("half closed");
    client
}

async fn gets_all_replies<S: AsyncRead + AsyncWrite + Unpin>(mut client: Client<S>) {
    is_let_in(&mut client).await;
    for _ in 1..=3 {
        assert_eq!(client.simple_reply().await.error, 0);
    }
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_client_that_sends_everything_ahead_gets_all_its_replies() {
    let served = blocked().await;
    let unix = send_ahead(served.unix().await).await;
    let tcp = send_ahead(served.tcp().await).await;
    served.device.release();
    tokio::join!(gets_all_replies(unix), gets_all_replies(tcp));
}

/// Over TCP it cannot be told from one that has left.
#[tokio::test]
async fn unless_another_one_has_come_over_tcp() {
    let served = blocked().await;
    let mut overtaken = send_ahead(served.tcp().await).await;
    let_in(&served, &mut served.unix().await).await;
    is_let_in(&mut overtaken).await;
    assert!(overtaken.is_closed().await, "without a reply");
}

#[tokio::test]
async fn the_place_of_a_client_that_gives_up_waiting_is_free_again() {
    let served = blocked().await;
    let mut waiting = served.unix().await;
    waiting.send(&go()).await;
    sleep(MOMENT).await;
    assert_eq!(served.exports.connections(), 2);
    drop(waiting);
    let since = Instant::now();
    while served.exports.connections() > 1 {
        assert!(since.elapsed() < LONG / 6, "still there");
        sleep(Duration::from_millis(10)).await;
    }
    served.device.release();
}

#[tokio::test]
async fn a_client_that_waits_is_disconnected_when_the_export_is_removed() {
    let served = blocked().await;
    let mut waiting = served.unix().await;
    waiting.send(&go()).await;
    sleep(MOMENT).await;
    served.exports.remove("first").expect("offered");
    assert!(timeout(LONG / 6, waiting.is_closed()).await.expect("in time"));
    served.device.release();
}

#[tokio::test]
async fn a_client_that_waits_is_disconnected_at_shutdown() {
    let served = blocked().await;
    let mut waiting = served.unix().await;
    waiting.send(&go()).await;
    sleep(MOMENT).await;
    let Served { device, exports, server, .. } = served;
    let stopping = tokio::task::spawn_blocking(move || server.shutdown());
    assert!(timeout(LONG / 6, waiting.is_closed()).await.expect("in time"));
    device.release();
    stopping.await.expect("no panic");
    assert_eq!(exports.refused_count(RefusalReason::UnderWay), 0);
}

/// It has sent its last request, and may connect again before it gets the reply.
#[tokio::test]
async fn a_client_that_disconnects_is_waited_for_while_it_takes_its_replies() {
    let served = serve(ServerConfig { shutdown_grace: LONG, ..ServerConfig::default() });
    let mut closing = served.unix().await;
    closing.go("first").await;
    served.hold(&mut closing, &write_request(1, 1)).await;
    closing.send(&disconnect()).await;
    sleep(MOMENT).await;
    let mut next = served.unix().await;
    next.send(&go()).await;
    assert!(timeout(MOMENT, is_let_in(&mut next)).await.is_err(), "a request is under way");
    served.device.release();
    is_let_in(&mut next).await;
    assert_eq!(closing.simple_reply().await.error, 0);
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    assert_eq!(read_byte(&mut next).await, 2);
}
