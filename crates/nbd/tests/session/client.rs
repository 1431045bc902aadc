//! A client that sends whatever a test requests, including invalid data.

use std::sync::Arc;
use std::time::Duration;

use nbd::option::{ClientOption, InfoQuery, MetaContextQuery};
use nbd::option_reply::OptionReplyHeader;
use nbd::protocol::*;
use nbd::reply::{ChunkHeader, SimpleReply};
use nbd::request::RequestHeader;
use nbd::testing::MemoryDevice;
use nbd::{
    Access, ConnectionError, Export, Exports, Peer, Presence, ServerConfig, ShutdownTrigger, serve_connection,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const CAPACITY_BYTES: u64 = 128 << 20;
const PATIENCE: Duration = Duration::from_secs(100);

/// A server of one connection, and the client's side of it.
pub(crate) struct Session {
    pub(crate) client: Client<DuplexStream>,
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) trigger: ShutdownTrigger,
    server: JoinHandle<Result<(), ConnectionError>>,
}

impl Session {
    /// Disconnects and returns the result of the connection on the server's side.
    pub(crate) async fn ended(self) -> Result<(), ConnectionError> {
        drop(self.client);
        timeout(PATIENCE, self.server).await.expect("the connection ends").expect("no panic")
    }

    /// Returns the result of the connection on the server's side while the client stays connected.
    pub(crate) async fn ends(&mut self) -> Result<(), ConnectionError> {
        timeout(PATIENCE, &mut self.server).await.expect("the connection ends").expect("no panic")
    }
}

pub(crate) fn device() -> MemoryDevice {
    MemoryDevice::new(CAPACITY_BYTES, 512)
}

pub(crate) fn shared_of(device: &Arc<MemoryDevice>, config: ServerConfig) -> Arc<Exports<MemoryDevice>> {
    let first = Export {
        name: "first".into(),
        description: "the one".into(),
        device: Arc::clone(device),
        access: Access::Everyone,
        sharing: nbd::Sharing::default(),
    };
    let second = Arc::new(MemoryDevice::new(1 << 20, 4096));
    let second = Export {
        name: "second".into(),
        description: String::new(),
        device: second,
        access: Access::Everyone,
        sharing: nbd::Sharing::default(),
    };
    Exports::new(vec![first, second], config).expect("a valid configuration")
}

/// A client of `exports`, before the greeting.
pub(crate) fn connect_to(
    exports: &Arc<Exports<MemoryDevice>>,
    device: &Arc<MemoryDevice>,
    pipe_bytes: usize,
) -> Session {
    connect_from(Peer::Unknown, exports, device, pipe_bytes)
}

/// A client of `exports` with a given peer, before the greeting.
pub(crate) fn connect_from(
    peer: Peer,
    exports: &Arc<Exports<MemoryDevice>>,
    device: &Arc<MemoryDevice>,
    pipe_bytes: usize,
) -> Session {
    connect_seen(Box::new(|| Presence::Here), peer, exports, device, pipe_bytes)
}

/// A client of `exports` with a given peer and presence, before the greeting. The presence has one type, for
/// which the server is compiled.
pub(crate) fn connect_seen(
    presence: Box<dyn Fn() -> Presence + Send + Sync>,
    peer: Peer,
    exports: &Arc<Exports<MemoryDevice>>,
    device: &Arc<MemoryDevice>,
    pipe_bytes: usize,
) -> Session {
    let (near, far) = tokio::io::duplex(pipe_bytes);
    let trigger = ShutdownTrigger::new();
    let (exports, shutdown) = (Arc::clone(exports), trigger.subscribe());
    let server =
        tokio::spawn(async move { serve_connection(far, |_| presence(), peer, &exports, shutdown).await });
    Session { client: Client { stream: near }, device: Arc::clone(device), trigger, server }
}

/// A client of the first and the second export, before the greeting.
pub(crate) fn connect(device: MemoryDevice, config: ServerConfig) -> Session {
    let device = Arc::new(device);
    connect_to(&shared_of(&device, config), &device, 1 << 20)
}

/// A client that has negotiated the first export with structured replies and `base:allocation`.
pub(crate) async fn structured(device: MemoryDevice) -> Session {
    let mut session = connect(device, ServerConfig::default());
    session.client.greet().await;
    session.client.negotiate_structured().await;
    session.client.go("").await;
    session
}

/// A client that has negotiated the first export with simple replies.
pub(crate) async fn simple(device: MemoryDevice) -> Session {
    let mut session = connect(device, ServerConfig::default());
    session.client.greet().await;
    session.client.go("").await;
    session
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OptionReply {
    pub(crate) reply_type: u32,
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Client<S> {
    pub(crate) stream: S,
}

pub(crate) fn info(export: &str) -> InfoQuery {
    InfoQuery { export: export.to_owned(), infos: vec![INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE] }
}

pub(crate) fn contexts(export: &str, queries: &[&str]) -> MetaContextQuery {
    let queries = queries.iter().map(|&query| query.to_owned()).collect();
    MetaContextQuery { export: export.to_owned(), queries }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("in time").expect("sent");
        self.stream.flush().await.expect("sent");
    }

    pub(crate) async fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let received = timeout(PATIENCE, self.stream.read_exact(&mut bytes)).await;
        received.expect("in time").expect("received");
        bytes
    }

    /// Returns true if the server closes the connection without sending anything.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let received = timeout(PATIENCE, self.stream.read(&mut [0])).await.expect("in time");
        matches!(received, Ok(0) | Err(_))
    }

    pub(crate) async fn greet(&mut self) {
        self.greet_with(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).await;
    }

    pub(crate) async fn greet_with(&mut self, flags: u32) {
        let greeting = self.receive(18).await;
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\x00\x03");
        self.send(&flags.to_be_bytes()).await;
    }

    pub(crate) async fn option_reply(&mut self, option: u32) -> OptionReply {
        let header = self.receive(20).await;
        let header = OptionReplyHeader::decode(header[..].try_into().expect("20")).expect("a reply");
        assert_eq!(header.option, option);
        let data = self.receive(header.length as usize).await;
        OptionReply { reply_type: header.reply_type, data }
    }

    /// Sends an option, and returns all replies to it.
    pub(crate) async fn option(&mut self, option: &ClientOption) -> Vec<OptionReply> {
        self.send(&option.encode()).await;
        let mut replies = Vec::new();
        loop {
            let reply = self.option_reply(option.number()).await;
            let last = reply.reply_type == REP_ACK || reply.reply_type >= REP_ERR_UNSUP & (1 << 31);
            replies.push(reply);
            if last {
                return replies;
            }
        }
    }

    /// The type of the last reply to an option.
    pub(crate) async fn outcome(&mut self, option: &ClientOption) -> u32 {
        self.option(option).await.last().expect("at least one").reply_type
    }

    /// Names of the exports that the server lists.
    pub(crate) async fn exports(&mut self) -> Vec<String> {
        let replies = self.option(&ClientOption::List).await;
        let servers = replies.iter().filter(|reply| reply.reply_type == REP_SERVER);
        let name = |data: &[u8]| {
            let (len, rest) = data.split_first_chunk().expect("a length");
            String::from_utf8(rest[..u32::from_be_bytes(*len) as usize].to_vec()).expect("a name")
        };
        servers.map(|reply| name(&reply.data)).collect()
    }

    pub(crate) async fn negotiate_structured(&mut self) {
        assert_eq!(self.outcome(&ClientOption::StructuredReply).await, REP_ACK);
        let query = contexts("", &[CONTEXT_BASE_ALLOCATION]);
        assert_eq!(self.outcome(&ClientOption::SetMetaContext(query)).await, REP_ACK);
    }

    pub(crate) async fn go(&mut self, export: &str) {
        assert_eq!(self.outcome(&ClientOption::Go(info(export))).await, REP_ACK);
    }

    pub(crate) async fn request(&mut self, command: u16, flags: u16, offset: u64, length: u32) {
        self.request_as(7, command, flags, offset, length).await;
    }

    pub(crate) async fn request_as(
        &mut self,
        cookie: u64,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
    ) {
        let header = RequestHeader { flags, command, cookie, offset, length };
        self.send(&header.encode()).await;
    }

    pub(crate) async fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.request(CMD_WRITE, flags, offset, data.len() as u32).await;
        self.send(data).await;
        self.error().await
    }

    /// The error code of a simple reply.
    pub(crate) async fn error(&mut self) -> u32 {
        let reply = self.simple_reply().await;
        assert_eq!(reply.cookie, 7);
        reply.error
    }

    pub(crate) async fn simple_reply(&mut self) -> SimpleReply {
        let bytes = self.receive(16).await;
        SimpleReply::decode(bytes[..].try_into().expect("16")).expect("a simple reply")
    }

    /// Sends a request and returns the error code of the simple reply.
    pub(crate) async fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> u32 {
        self.request(command, flags, offset, length).await;
        self.error().await
    }

    pub(crate) async fn chunk(&mut self) -> (ChunkHeader, Vec<u8>) {
        let header = self.receive(20).await;
        let header = ChunkHeader::decode(header[..].try_into().expect("20")).expect("a chunk");
        assert_eq!(header.cookie, 7);
        let data = self.receive(header.length as usize).await;
        (header, data)
    }
}
