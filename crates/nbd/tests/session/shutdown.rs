//! Stopping a server.

use std::time::Duration;

use nbd::protocol::*;
use nbd::{ConnectionError, ServerConfig};

use crate::client::{connect, device, simple};

#[tokio::test]
async fn shutdown_answers_what_is_in_flight() {
    let mut session = simple(device()).await;
    session.device.delay_by(Duration::from_millis(50));
    session.client.request(CMD_FLUSH, 0, 0, 0).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    session.trigger.trigger();
    assert_eq!(session.client.error().await, 0);
    assert!(session.client.is_closed().await);
    assert!(session.ended().await.is_ok());
}

#[tokio::test]
async fn shutdown_ends_idle_connections_and_handshakes() {
    let mut idle = simple(device()).await;
    idle.trigger.trigger();
    assert!(idle.ends().await.is_ok());
    let mut greeting = connect(device(), ServerConfig::default());
    greeting.client.greet().await;
    greeting.trigger.trigger();
    assert!(greeting.ends().await.is_ok());
}

#[tokio::test]
async fn shutdown_drops_a_write_that_is_only_half_there() {
    let mut session = simple(device()).await;
    session.client.request(CMD_WRITE, CMD_FLAG_FUA, 0, 1 << 20).await;
    session.client.send(&[1; 1000]).await;
    session.trigger.trigger();
    assert!(session.ends().await.is_ok());
    assert_eq!(session.device.durable_writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_no_longer_than_the_grace_period() {
    let mut session = simple(device()).await;
    session.device.delay_by(Duration::from_secs(1000));
    session.client.request(CMD_FLUSH, 0, 0, 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    session.trigger.trigger();
    assert!(matches!(session.ends().await, Err(ConnectionError::GraceExpired)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_does_not_stop_what_it_started() {
    let mut session = simple(device()).await;
    let device = std::sync::Arc::clone(&session.device);
    device.delay_by(Duration::from_millis(100));
    session.client.request(CMD_FLUSH, 0, 0, 0).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let _ = session.ended().await;
    assert_eq!(device.flushes(), 1);
}
