//! Clients that leave requests behind and connect again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nbd::option::ClientOption;
use nbd::protocol::*;
use nbd::request::RequestHeader;
use nbd::testing::MemoryDevice;
use nbd::{Access, Address, Export, Exports, Listener, Peer, Presence, RefusalReason, Server, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::client::{Client, connect_seen, connect_to, device, info, shared_of};
use crate::helped::Threads;
use crate::tls::{self, certificates, connector_as};

/// Time that a request of a client that leaves takes.
const DELAY: Duration = Duration::from_millis(300);
/// Time that requests take that never end.
const NEVER: Duration = Duration::from_secs(1000);
/// A grace period that no test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(60);
pub(crate) const LEN: usize = 64 << 10;

/// A server with two threads, on sockets of both kinds.
pub(crate) struct Served {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) exports: Arc<Exports<MemoryDevice>>,
    pub(crate) server: Server,
    folder: tempfile::TempDir,
    port: u16,
}

pub(crate) fn serve(config: ServerConfig) -> Served {
    serve_device(device(), config)
}

fn serve_device(device: MemoryDevice, config: ServerConfig) -> Served {
    let device = Arc::new(device);
    let exports = shared_of(&device, config.clone());
    let folder = tempfile::tempdir().expect("a folder");
    let unix = Listener::unix(&folder.path().join("s")).expect("listens");
    let tcp = Listener::tcp("127.0.0.1", 0, &config).expect("listens");
    let Address::Tcp(_, port) = *tcp.address() else { panic!("not TCP") };
    let server = Server::start(&exports, vec![unix, tcp], 2).expect("starts");
    Served { device, exports, server, folder, port }
}

impl Served {
    pub(crate) async fn unix(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(self.folder.path().join("s")).await.expect("connected");
        started(stream).await
    }

    pub(crate) async fn tcp(&self) -> Client<TcpStream> {
        started(TcpStream::connect(("127.0.0.1", self.port)).await.expect("connected")).await
    }

    /// Waits until the device has delayed or held so many requests.
    pub(crate) async fn delayed(&self, count: u64) {
        while self.device.delayed() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Makes a client send a request which is under way until it is released.
    pub(crate) async fn hold<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        client: &mut Client<S>,
        request: &[u8],
    ) {
        let delayed = self.device.delayed();
        self.device.hold(true);
        client.send(request).await;
        self.delayed(delayed + 1).await;
        self.device.hold(false);
    }
}

async fn started<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> Client<S> {
    let mut client = Client { stream };
    client.greet().await;
    client
}

pub(crate) fn write_request(cookie: u64, byte: u8) -> Vec<u8> {
    let header = RequestHeader { flags: 0, command: CMD_WRITE, cookie, offset: 0, length: LEN as u32 };
    [&header.encode()[..], &[byte; LEN]].concat()
}

pub(crate) async fn read_byte<S: AsyncRead + AsyncWrite + Unpin>(client: &mut Client<S>) -> u8 {
    client.request(CMD_READ, 0, 0, LEN as u32).await;
    assert_eq!(client.error().await, 0);
    let data = client.receive(LEN).await;
    assert!(data.iter().all(|byte| *byte == data[0]), "torn");
    data[0]
}

/// Leaves writes of ones, one of them under way and the others unread, connects again and writes twos.
async fn leave_and_write<S: AsyncRead + AsyncWrite + Unpin>(
    served: &Served,
    mut first: Client<S>,
    mut next: Client<S>,
) {
    first.go("first").await;
    served.device.delay_by(DELAY);
    first.send(&[write_request(1, 1), write_request(2, 1)].concat()).await;
    served.delayed(1).await;
    served.device.delay_by(Duration::ZERO);
    drop(first);
    next.go("first").await;
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    tokio::time::sleep(2 * DELAY).await;
    assert_eq!(read_byte(&mut next).await, 2, "an acknowledged write was overwritten by an earlier one");
}

/// One request at a time, so that others stay in the socket.
fn one_at_a_time() -> ServerConfig {
    ServerConfig { requests_per_connection_max: 1, ..ServerConfig::default() }
}

#[tokio::test]
async fn what_a_client_left_behind_does_not_overwrite_what_it_writes_next() {
    let served = serve(one_at_a_time());
    leave_and_write(&served, served.unix().await, served.unix().await).await;
    let served = serve(ServerConfig::default());
    leave_and_write(&served, served.unix().await, served.unix().await).await;
}

#[tokio::test]
async fn nor_over_tcp() {
    let served = serve(one_at_a_time());
    leave_and_write(&served, served.tcp().await, served.tcp().await).await;
}

#[tokio::test]
async fn nor_after_a_reset() {
    let served = serve(one_at_a_time());
    let first = served.tcp().await;
    first.stream.set_zero_linger().expect("set");
    leave_and_write(&served, first, served.tcp().await).await;
}

/// The end of a TCP connection comes behind the data. A server that reads nothing does not see it.
#[tokio::test]
async fn nor_over_tcp_when_its_end_waits_behind_data() {
    let served = serve(one_at_a_time());
    let mut first = served.tcp().await;
    first.go("first").await;
    served.hold(&mut first, &write_request(1, 1)).await;
    let more = write_request(1, 1);
    while timeout(DELAY / 2, first.stream.write_all(&more)).await.is_ok() {}
    drop(first);
    let mut next = served.tcp().await;
    {
        let mut go = Box::pin(next.go("first"));
        assert!(timeout(DELAY, &mut go).await.is_err(), "a request is under way");
        served.device.release();
        go.await;
    }
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    tokio::time::sleep(DELAY).await;
    assert_eq!(read_byte(&mut next).await, 2);
}

#[tokio::test]
async fn nor_inside_tls() {
    let Some(folder) = certificates() else { return };
    let served = serve(ServerConfig { requests_per_connection_max: 1, ..tls::server(folder.path(), false) });
    let secure = async || {
        let mut client = served.tcp().await;
        assert_eq!(client.outcome(&ClientOption::StartTls).await, REP_ACK);
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = connector_as(folder.path(), None).connect(name, client.stream).await.expect("TLS");
        Client { stream }
    };
    leave_and_write(&served, secure().await, secure().await).await;
}

#[tokio::test]
async fn nor_at_another_address_of_the_drive() {
    let served = serve(ServerConfig::default());
    let other = served.exports.others();
    let (name, device) = ("own".to_owned(), Arc::clone(&served.device));
    other
        .add(Export {
            name,
            description: String::new(),
            device,
            access: Access::Everyone,
            sharing: nbd::Sharing::default(),
        })
        .expect("added");
    let path = served.folder.path().join("own");
    let _server = Server::start(&other, vec![Listener::unix(&path).expect("listens")], 1).expect("starts");
    let mut first = started(UnixStream::connect(path).await.expect("connected")).await;
    first.go("own").await;
    served.device.delay_by(DELAY);
    first.send(&write_request(1, 1)).await;
    served.delayed(1).await;
    served.device.delay_by(Duration::ZERO);
    drop(first);
    let mut next = served.unix().await;
    next.go("first").await;
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    tokio::time::sleep(2 * DELAY).await;
    assert_eq!(read_byte(&mut next).await, 2);
}

#[tokio::test]
async fn clients_that_are_there_are_not_waited_for() {
    let served = serve(ServerConfig { shutdown_grace: LONG, ..ServerConfig::default() });
    let (mut first, mut second) = (served.unix().await, served.tcp().await);
    first.go("first").await;
    second.go("first").await;
    served.hold(&mut first, &write_request(1, 1)).await;
    served.hold(&mut second, &write_request(1, 1)).await;
    let since = Instant::now();
    let mut next = served.tcp().await;
    next.go("first").await;
    // Nor are those of another drive.
    drop(first);
    let mut other = served.unix().await;
    other.go("second").await;
    assert!(since.elapsed() < LONG / 6, "{:?}", since.elapsed());
    served.device.release();
}

#[tokio::test]
async fn clients_that_may_only_read_wait_for_nobody_and_nobody_for_them() {
    let config = ServerConfig { shutdown_grace: LONG, ..ServerConfig::default() };
    let served = serve_device(device().read_only(), config);
    let mut first = served.unix().await;
    first.go("first").await;
    let read = RequestHeader { flags: 0, command: CMD_READ, cookie: 7, offset: 0, length: 512 };
    served.hold(&mut first, &read.encode()).await;
    drop(first);
    let since = Instant::now();
    let mut next = served.unix().await;
    next.go("first").await;
    assert!(since.elapsed() < LONG / 6, "{:?}", since.elapsed());
    assert_eq!(read_byte(&mut next).await, 0);
    served.device.release();
}

/// A socket's buffer does not hold the reply.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_the_reply_keeps_nobody_out() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    let mut idle = connect_to(&exports, &device, 64);
    idle.client.greet().await;
    idle.client.send(&ClientOption::Go(info("first")).encode()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let since = tokio::time::Instant::now();
    let mut next = connect_to(&exports, &device, 1 << 20);
    next.client.greet().await;
    next.client.go("first").await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(next.client.write(0, 0, &[2; 512]).await, 0);
}

#[tokio::test]
async fn requests_that_do_not_end_are_dropped_when_the_grace_period_ends() {
    let grace = Duration::from_millis(200);
    let served = serve(ServerConfig { shutdown_grace: grace, ..ServerConfig::default() });
    let mut first = served.unix().await;
    first.go("first").await;
    served.device.delay_by(NEVER);
    first.send(&write_request(1, 1)).await;
    served.delayed(1).await;
    served.device.delay_by(Duration::ZERO);
    drop(first);
    let since = Instant::now();
    // Neither waits for the other.
    let (mut next, mut another) = (served.unix().await, served.unix().await);
    tokio::join!(next.go("first"), another.go("first"));
    assert!(since.elapsed() >= grace / 2 && since.elapsed() < 20 * grace, "{:?}", since.elapsed());
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    assert_eq!(read_byte(&mut another).await, 2);
}

/// Its end may come to be known just after its requests were taken. A connection at which nothing else
/// happens then ends at once, not when the grace period does.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_found_to_have_left_on_a_second_look_keeps_nobody_out() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    let looks = Arc::new(Mutex::new(VecDeque::new()));
    let of_first = Arc::clone(&looks);
    let presence = move || of_first.lock().expect("no panic").pop_front().unwrap_or(Presence::Here);
    let mut first = connect_seen(Box::new(presence), Peer::Unknown, &exports, &device, 1 << 20);
    first.client.greet().await;
    first.client.go("first").await;
    looks.lock().expect("no panic").extend([Presence::Unread, Presence::Left]);
    let mut next = connect_to(&exports, &device, 1 << 20);
    next.client.greet().await;
    next.client.go("first").await;
    let end = first.ends().await;
    assert!(end.is_ok(), "it waited for nothing: {end:?}");
}

#[tokio::test]
async fn a_client_that_sends_no_more_gets_all_its_replies_first() {
    let served = serve(one_at_a_time());
    let mut first = served.unix().await;
    first.go("first").await;
    served.device.delay_by(DELAY / 3);
    first.send(&(1..=3).flat_map(|cookie| write_request(cookie, 1)).collect::<Vec<u8>>()).await;
    first.stream.shutdown().await.expect("half closed");
    served.delayed(1).await;
    let mut next = served.unix().await;
    next.go("first").await;
    assert_eq!(served.device.delayed(), 3, "all were carried out before");
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    for cookie in 1..=3 {
        let reply = first.simple_reply().await;
        assert_eq!((reply.cookie, reply.error), (cookie, 0));
    }
    assert_eq!(read_byte(&mut next).await, 2);
}

/// A thread that works at a request does not notice that the connection is over.
#[tokio::test]
async fn a_request_that_another_thread_works_at_ends_first_or_the_next_client_is_refused() {
    let threads = Threads::start(2);
    let helpers = Some(Arc::clone(&threads.helpers));
    let shutdown_grace = Duration::from_millis(100);
    let fence_timeout = Duration::from_millis(300);
    let served = serve(ServerConfig { shutdown_grace, fence_timeout, helpers, ..ServerConfig::default() });
    let mut first = served.unix().await;
    first.go("first").await;
    // The two writes wait for a third one, which the next client would send.
    served.device.meet(3);
    // The beginning of a fourth one: a request that nothing follows would stay on the connection's thread.
    let writes = [write_request(1, 1), write_request(2, 1), write_request(4, 1)].concat();
    first.send(&writes[..writes.len() - LEN - 1]).await;
    while served.device.writes().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(first);
    let mut next = served.unix().await;
    let mut replies = next.option(&ClientOption::Go(info("first"))).await;
    let refused = replies.pop().expect("a reply");
    assert_eq!(refused.reply_type, REP_ERR_POLICY);
    let message = String::from_utf8(refused.data).expect("text");
    assert!(message.contains("(clients [0] in the server's log)"), "{message}");
    assert!(next.is_closed().await);
    assert_eq!(served.exports.refused_count(RefusalReason::UnderWay), 1);
    served.device.meet(1);
    let mut next = served.unix().await;
    next.go("first").await;
    assert_eq!(next.write(0, 0, &[2; LEN]).await, 0);
    assert_eq!(read_byte(&mut next).await, 2);
}
