//! Large requests of one connection on several threads.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::ThreadId;

use nbd::protocol::*;
use nbd::request::RequestHeader;
use nbd::{Helpers, ServerConfig, Worker};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::client::{Session, connect_to, device, shared_of};

const LARGE_BYTES: usize = 128 << 10;

/// Threads that help, until they are dropped.
pub(crate) struct Threads {
    ends: Vec<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    pub(crate) helpers: Arc<Helpers>,
    ids: HashSet<ThreadId>,
}

impl Threads {
    /// Starts `count` of them, for connections on this thread.
    pub(crate) fn start(count: usize) -> Threads {
        let (mut handles, mut ends, mut ids) = (Vec::new(), Vec::new(), HashSet::new());
        for _ in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            handles.push(runtime.handle().clone());
            let (end, ended) = oneshot::channel::<()>();
            let thread = std::thread::spawn(move || _ = runtime.block_on(ended));
            ids.insert(thread.thread().id());
            ends.push((end, thread));
        }
        let here = Worker::new(std::thread::current().id(), Arc::default());
        Threads { ends, helpers: Arc::new(Helpers::new([here], handles)), ids }
    }

    /// Ends them, whatever they are doing.
    fn end(&mut self) {
        for (end, thread) in self.ends.drain(..) {
            drop(end);
            thread.join().expect("no panic");
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

async fn session(threads: &Threads, config: ServerConfig) -> Session {
    let config = ServerConfig { helpers: Some(Arc::clone(&threads.helpers)), ..config };
    let device = Arc::new(device());
    let mut session = connect_to(&shared_of(&device, config), &device, 4 << 20);
    session.client.greet().await;
    session.client.go("").await;
    session
}

fn write_request(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let header = RequestHeader { flags: 0, command: CMD_WRITE, cookie, offset, length: data.len() as u32 };
    [&header.encode()[..], data].concat()
}

/// Sends `count` writes of `len` bytes in one go, each of its own number.
async fn send_writes(session: &mut Session, count: usize, len: usize) {
    let write = |at: usize| write_request(at as u64, (at * len) as u64, &vec![at as u8 + 1; len]);
    session.client.send(&(0..count).flat_map(write).collect::<Vec<u8>>()).await;
}

/// Receives simple replies without data. Returns the sum of the cookies; all must be without an error.
async fn receive_replies(session: &mut Session, count: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..count {
        let reply = session.client.simple_reply().await;
        assert_eq!(reply.error, 0);
        sum += reply.cookie;
    }
    sum
}

#[tokio::test]
async fn a_stream_of_large_writes_uses_all_threads_at_a_time() {
    let threads = Threads::start(3);
    let mut session = session(&threads, ServerConfig::default()).await;
    // Each of four threads waits for the three others.
    session.device.meet(4);
    send_writes(&mut session, 16, LARGE_BYTES).await;
    assert_eq!(receive_replies(&mut session, 16).await, (0..16).sum());
    let writes = session.device.writes();
    let used: HashSet<ThreadId> = writes.iter().map(|(_, thread)| *thread).collect();
    assert!(used.len() == 4 && used.is_superset(&threads.ids), "{used:?}");
    for at in 0..16 {
        session.client.request(CMD_READ, 0, (at * LARGE_BYTES) as u64, LARGE_BYTES as u32).await;
        assert_eq!(session.client.error().await, 0);
        let data = session.client.receive(LARGE_BYTES).await;
        assert!(data.iter().all(|byte| *byte == at as u8 + 1), "request {at}");
    }
    assert!(session.ended().await.is_ok());
}

#[tokio::test]
async fn small_writes_and_writes_that_are_alone_stay_on_the_thread_of_the_connection() {
    let threads = Threads::start(2);
    let mut session = session(&threads, ServerConfig::default()).await;
    session.device.meet(1);
    send_writes(&mut session, 64, 4096).await;
    receive_replies(&mut session, 64).await;
    for _ in 0..8 {
        send_writes(&mut session, 1, LARGE_BYTES).await;
        receive_replies(&mut session, 1).await;
    }
    let writes = session.device.writes();
    assert_eq!(writes.len(), 72);
    assert!(writes.iter().all(|(_, thread)| !threads.ids.contains(thread)), "{writes:?}");
}

/// Each thread carries out a request, and each helper has one more that waits: then the client waits, and the
/// memory for requests is bounded as ever.
#[tokio::test]
async fn no_more_is_taken_from_a_stream_than_its_limit() {
    const MOST: usize = 6;
    let threads = Threads::start(2);
    let config = ServerConfig { requests_per_connection_max: MOST, ..ServerConfig::default() };
    let mut session = session(&threads, config).await;
    session.device.delay_by(std::time::Duration::from_millis(200));
    let since = std::time::Instant::now();
    send_writes(&mut session, 2 * MOST, LARGE_BYTES).await;
    receive_replies(&mut session, 2 * MOST).await;
    assert!(since.elapsed() >= std::time::Duration::from_millis(390), "{MOST} at a time");
}

/// Its memory is free again, and the helpers have places for others.
#[tokio::test]
async fn what_a_client_left_behind_is_dropped() {
    let threads = Threads::start(1);
    let config = ServerConfig {
        total_buffer_bytes_max: 32 << 20,
        connection_buffer_bytes_max: 32 << 20,
        shutdown_grace: std::time::Duration::from_millis(50),
        ..ServerConfig::default()
    };
    for _ in 0..3 {
        let mut session = session(&threads, config.clone()).await;
        session.device.delay_by(std::time::Duration::from_secs(1000));
        send_writes(&mut session, 4, LARGE_BYTES).await;
        // All are in flight once the next one, of which a part is missing, is waited for.
        session.client.stream.write_all(&write_request(9, 0, &[0; LARGE_BYTES])[..1000]).await.expect("sent");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(session.ended().await.is_err());
    }
    let mut session = session(&threads, config).await;
    session.device.meet(2);
    send_writes(&mut session, 8, LARGE_BYTES).await;
    assert_eq!(receive_replies(&mut session, 8).await, (0..8).sum());
    assert!(session.ended().await.is_ok());
}

/// A server ends its helpers after its connections. Whoever does it in another order gets errors, no false
/// success.
#[tokio::test]
async fn helpers_that_are_gone_fail_their_requests() {
    let mut threads = Threads::start(1);
    let mut session = session(&threads, ServerConfig::default()).await;
    session.device.delay_by(std::time::Duration::from_millis(300));
    send_writes(&mut session, 4, LARGE_BYTES).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    threads.end();
    let mut errors = Vec::new();
    for _ in 0..4 {
        errors.push(session.client.simple_reply().await.error);
    }
    errors.sort_unstable();
    assert!(errors[0] == 0 && errors[3] == Errno::Shutdown as u32, "{errors:?}");
    assert!(session.ended().await.is_ok());
}
