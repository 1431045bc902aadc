//! Bounds on memory, and clients that stall.

use std::sync::Arc;
use std::time::Duration;

use nbd::protocol::*;
use nbd::testing::MemoryDevice;
use nbd::{ConfigError, ConnectionError, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::client::{Session, connect, connect_to, device, shared_of, simple};

/// Sends until the server takes no more for 200 ms. Returns the bytes sent.
async fn sends_until_stuck(session: &mut Session, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while let Ok(written) = timeout(Duration::from_millis(200), session.client.stream.write(bytes)).await {
        sent += written.expect("still open");
        assert!(sent < 512 << 20, "the server takes everything");
    }
    sent
}

fn read_request(length: u32) -> Vec<u8> {
    let header = nbd::request::RequestHeader { flags: 0, command: CMD_READ, cookie: 7, offset: 0, length };
    header.encode().to_vec()
}

#[tokio::test]
async fn requests_in_flight_are_limited() {
    let config = ServerConfig { requests_per_connection_max: 4, ..ServerConfig::default() };
    let device = Arc::new(device());
    let mut session = connect_to(&shared_of(&device, config), &device, 4096);
    session.client.greet().await;
    session.client.go("").await;
    session.device.delay_by(Duration::from_millis(200));
    for _ in 0..8 {
        session.client.request(CMD_FLUSH, 0, 0, 0).await;
    }
    let started = std::time::Instant::now();
    for _ in 0..8 {
        session.client.error().await;
    }
    assert!(started.elapsed() >= Duration::from_millis(390), "eight at a time");
}

#[tokio::test]
async fn block_status_in_flight_is_limited() {
    let device = Arc::new(device());
    let mut session = connect_to(&shared_of(&device, ServerConfig::default()), &device, 64 << 10);
    session.client.greet().await;
    session.client.negotiate_structured().await;
    session.client.go("").await;
    session.device.delay_by(Duration::from_millis(200));
    let started = std::time::Instant::now();
    for _ in 0..16 {
        session.client.request(CMD_BLOCK_STATUS, 0, 0, 256 << 10).await;
    }
    for _ in 0..16 {
        let (header, _) = session.client.chunk().await;
        assert_eq!(header.kind, REPLY_TYPE_BLOCK_STATUS);
    }
    assert!(started.elapsed() >= Duration::from_millis(390), "eight at a time");
}

#[tokio::test(start_paused = true)]
async fn long_trims_and_zeroings_in_flight_are_limited() {
    let mut session = simple(MemoryDevice::new(1 << 30, 512)).await;
    session.device.delay_by(Duration::from_millis(200));
    for (length, seconds) in [(33 << 20, 0.4), (32 << 20, 0.2)] {
        let started = tokio::time::Instant::now();
        for command in [CMD_TRIM, CMD_WRITE_ZEROES].repeat(8) {
            session.client.request(command, 0, 0, length).await;
        }
        for _ in 0..16 {
            assert_eq!(session.client.error().await, 0);
        }
        let took = started.elapsed().as_secs_f64();
        assert!((seconds..seconds + 0.1).contains(&took), "{took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_long_trims_does_not_wait_for_them() {
    let mut session = simple(MemoryDevice::new(1 << 30, 512)).await;
    session.device.delay_by(Duration::from_millis(200));
    for _ in 0..9 {
        session.client.request(CMD_TRIM, 0, 0, 33 << 20).await;
    }
    while session.device.delayed() < 8 {
        tokio::task::yield_now().await;
    }
    session.device.delay_by(Duration::ZERO);
    session.client.request_as(1, CMD_FLUSH, 0, 0, 0).await;
    assert_eq!(session.client.simple_reply().await.cookie, 1, "the first reply");
    for _ in 0..9 {
        assert_eq!(session.client.error().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_replies_is_not_read_from() {
    let device = Arc::new(device());
    let mut session = connect_to(&shared_of(&device, ServerConfig::default()), &device, 64 << 10);
    session.client.greet().await;
    session.client.go("").await;
    let flushes = read_request(1 << 20).repeat(10);
    let sent = sends_until_stuck(&mut session, &flushes).await;
    // At least the requests of 64 MiB of replies, and what the pipe and the receive buffer hold.
    assert!((64 * 28..512 << 10).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn errors_nobody_reads_are_limited_too() {
    let device = Arc::new(device());
    let mut session = connect_to(&shared_of(&device, ServerConfig::default()), &device, 16 << 10);
    session.client.greet().await;
    session.client.negotiate_structured().await;
    session.client.go("").await;
    let sent = sends_until_stuck(&mut session, &read_request(1).repeat(100)).await;
    assert!(sent < 1 << 20, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_greedy_client_does_not_stop_small_requests_of_others() {
    let config = ServerConfig {
        connection_buffer_bytes_max: 32 << 20,
        total_buffer_bytes_max: 32 << 20,
        ..ServerConfig::default()
    };
    let device = Arc::new(device());
    let exports = shared_of(&device, config);
    let mut greedy = connect_to(&exports, &device, 4096);
    greedy.client.greet().await;
    greedy.client.go("").await;
    greedy.client.request(CMD_READ, 0, 0, 32 << 20).await;
    sleep(Duration::from_millis(10)).await;
    let mut modest = connect_to(&exports, &device, 1 << 20);
    modest.client.greet().await;
    modest.client.go("").await;
    for _ in 0..100 {
        assert_eq!(modest.client.ask(CMD_READ, 0, 0, 128 << 10).await, 0);
        modest.client.receive(128 << 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_client_is_dropped_when_others_need_the_memory() {
    let config = ServerConfig { total_buffer_bytes_max: 32 << 20, ..ServerConfig::default() };
    let device = Arc::new(device());
    let exports = shared_of(&device, config);
    let mut stalled = connect_to(&exports, &device, 4096);
    stalled.client.greet().await;
    stalled.client.go("").await;
    stalled.client.request(CMD_READ, 0, 0, 32 << 20).await;
    // Nobody else needs the memory, so the client may stall.
    sleep(Duration::from_secs(200)).await;
    let mut other = connect_to(&exports, &device, 1 << 20);
    other.client.greet().await;
    other.client.go("").await;
    assert_eq!(other.client.ask(CMD_READ, 0, 0, 32 << 20).await, 0);
    assert!(matches!(stalled.ends().await, Err(ConnectionError::Stalled)));
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_memory_and_get_it() {
    let config = ServerConfig {
        connection_buffer_bytes_max: 32 << 20,
        total_buffer_bytes_max: 32 << 20,
        ..ServerConfig::default()
    };
    let device = Arc::new(device());
    let exports = shared_of(&device, config);
    let clients = (0..4).map(|_| {
        let mut session = connect_to(&exports, &device, 1 << 20);
        tokio::spawn(async move {
            let session = &mut session; // borrow all of it, or dropping a part would shut the server down
            session.client.greet().await;
            session.client.go("").await;
            for length in [32 << 20, 1 << 20, 20 << 20, 4096] {
                assert_eq!(session.client.write(0, 0, &vec![1; length]).await, 0);
                assert_eq!(session.client.ask(CMD_READ, 0, 0, length as u32).await, 0);
                session.client.receive(length).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no panic");
    }
}

#[tokio::test]
async fn connections_are_limited() {
    let config = ServerConfig { connections_max: 1, ..ServerConfig::default() };
    let device = Arc::new(device());
    let exports = shared_of(&device, config);
    let mut first = connect_to(&exports, &device, 4096);
    first.client.greet().await;
    first.client.go("").await;
    assert_eq!(exports.connections(), 1);
    let mut second = connect_to(&exports, &device, 4096);
    assert!(second.client.is_closed().await);
    assert!(matches!(second.ended().await, Err(ConnectionError::TooManyConnections)));
    assert!(first.ended().await.is_ok());
    let mut third = connect_to(&exports, &device, 4096);
    third.client.greet().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_stays() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet().await;
    session.client.go("").await;
    assert_eq!(session.client.write(0, 0, &[1; 1 << 20]).await, 0);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(session.client.ask(CMD_READ, 0, 0, 512).await, 0);
    assert_eq!(session.client.receive(512).await, [1; 512]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_with_idle_timeout() {
    let patience = Duration::from_secs(60);
    let config = ServerConfig { idle_timeout: Some(patience), ..ServerConfig::default() };
    let device = Arc::new(device());
    let exports = shared_of(&device, config);
    let mut idle = connect_to(&exports, &device, 1 << 20);
    let mut busy = connect_to(&exports, &device, 1 << 20);
    let mut waiting = connect_to(&exports, &device, 1 << 20);
    for session in [&mut idle, &mut busy, &mut waiting] {
        session.client.greet().await;
        session.client.go("").await;
    }
    // Its request takes longer than it may be idle.
    device.delay_by(patience * 4);
    waiting.client.request(CMD_FLUSH, 0, 0, 0).await;
    sleep(Duration::from_secs(1)).await;
    device.delay_by(Duration::ZERO);
    for _ in 0..6 {
        sleep(patience / 2).await;
        assert_eq!(busy.client.ask(CMD_READ, 0, 0, 512).await, 0);
        busy.client.receive(512).await;
    }
    assert_eq!(exports.connections(), 2, "the idle one is gone");
    let ended = idle.ends().await;
    assert!(matches!(ended, Err(ConnectionError::Idle)), "{ended:?}");
    sleep(patience * 2).await;
    assert_eq!(waiting.client.error().await, 0, "an answer");
    sleep(patience * 2).await;
    assert_eq!(exports.connections(), 0);
    for mut session in [busy, waiting] {
        assert!(matches!(session.ends().await, Err(ConnectionError::Idle)));
    }
}

#[tokio::test]
async fn a_failed_read_shows_nothing() {
    let mut session = connect(device(), ServerConfig::default());
    session.client.greet().await;
    session.client.go("").await;
    assert_eq!(session.client.write(0, 0, &[0xaa; 4096]).await, 0);
    session.device.fail_with(Some(device::DeviceError::Io("broken".into())));
    assert_eq!(session.client.ask(CMD_READ, 0, 0, 4096).await, Errno::Io.code());
    session.client.request(CMD_DISC, 0, 0, 0).await;
    let mut rest = Vec::new();
    session.client.stream.read_to_end(&mut rest).await.expect("closed");
    assert!(rest.is_empty());
}

#[test]
fn limits_out_of_range_are_refused() {
    let small = ServerConfig { total_buffer_bytes_max: 1 << 20, ..ServerConfig::default() };
    let error = small.validate().expect_err("too small");
    assert!(matches!(error, ConfigError::Range { name: "total_buffer_bytes_max", .. }));
    let none = ServerConfig { requests_per_connection_max: 0, ..ServerConfig::default() };
    assert!(none.validate().is_err());
}
