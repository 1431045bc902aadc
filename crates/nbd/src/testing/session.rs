//! A whole connection, fed from a byte slice.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::MemoryDevice;
use crate::wire::option::{ClientOption, InfoQuery, MetaContextQuery};
use crate::wire::protocol::{CONTEXT_BASE_ALLOCATION, FLAG_C_FIXED_NEWSTYLE, FLAG_C_NO_ZEROES};
use crate::{
    Access, ConnectionError, Export, Exports, Peer, Presence, ServerConfig, Sharing, ShutdownTrigger,
    serve_connection,
};

/// Capacity of the device that sessions run against, in bytes.
const CAPACITY_BYTES: u64 = 1 << 20;

/// Stream of a client: its input ends after `unread`, at most `chunk_bytes` a read. Output of the server is
/// collected.
struct Script<'a> {
    unread: &'a [u8],
    chunk_bytes: usize,
    answers: Vec<u8>,
}

impl AsyncRead for Script<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = self.unread.len().min(self.chunk_bytes).min(buf.remaining());
        let (now, later) = self.unread.split_at(len);
        buf.put_slice(now);
        self.unread = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answers.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Runs a connection that receives `sent`, at most `chunk_bytes` a read, against a device of 1 MiB. The
/// device completes requests at once or, with `yields`, only at the second poll. Returns the output of the
/// server and the result of the connection.
///
/// # Panics
/// If no tokio runtime can be created.
#[allow(clippy::expect_used, reason = "a test needs a runtime")]
pub fn run_session(sent: &[u8], chunk_bytes: usize, yields: bool) -> (Vec<u8>, Result<(), ConnectionError>) {
    let exports = Exports::new(exports(yields), ServerConfig::default()).expect("the default is valid");
    run_over(&exports, sent, chunk_bytes)
}

thread_local! {
    #[allow(clippy::expect_used, reason = "a test needs a runtime")]
    pub(super) static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without sockets needs nothing that can fail");
}

/// The export of all sessions.
pub(super) fn exports(yields: bool) -> Vec<Export<MemoryDevice>> {
    let device = Arc::new(MemoryDevice::new(CAPACITY_BYTES, 512));
    device.yield_once(yields);
    let (name, description) = ("memory".to_owned(), String::new());
    vec![Export { name, description, device, access: Access::Everyone, sharing: Sharing::default() }]
}

/// Runs a connection that receives `sent`. Returns the output of the server and the result of the connection.
pub(super) fn run_over(
    exports: &Exports<MemoryDevice>,
    sent: &[u8],
    chunk_bytes: usize,
) -> (Vec<u8>, Result<(), ConnectionError>) {
    let trigger = ShutdownTrigger::new();
    let mut script = Script { unread: sent, chunk_bytes: chunk_bytes.max(1), answers: Vec::new() };
    let result = RUNTIME.with(|runtime| {
        let presence = |_: &_| Presence::Here;
        runtime.block_on(serve_connection(&mut script, presence, Peer::Unknown, exports, trigger.subscribe()))
    });
    (script.answers, result)
}

/// The flags that a client sends first.
pub(super) fn greeting_flags() -> [u8; 4] {
    (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes()
}

/// The options of negotiations with simple, structured and extended replies.
pub(super) fn negotiations() -> [Vec<u8>; 3] {
    let query = InfoQuery { export: String::new(), infos: Vec::new() };
    let contexts =
        MetaContextQuery { export: String::new(), queries: vec![CONTEXT_BASE_ALLOCATION.to_owned()] };
    let simple = vec![ClientOption::Go(query.clone())];
    let [structured, extended] =
        [ClientOption::StructuredReply, ClientOption::ExtendedHeaders].map(|first| {
            vec![first, ClientOption::SetMetaContext(contexts.clone()), ClientOption::Go(query.clone())]
        });
    [simple, structured, extended].map(|options| options.iter().flat_map(ClientOption::encode).collect())
}

/// Fuzz target: a whole connection on arbitrary bytes. The first byte is the mode:
/// - bits 0 and 1: whether the rest is sent first, after the greeting, or after a negotiation with simple or
///   with structured replies
/// - bits 2 to 5: size of the reads
/// - bit 6: extended replies in place of structured ones
/// - bit 7: whether requests yield once before they complete
pub fn fuzz_session(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    let [simple, structured, extended] = negotiations();
    let mut sent = match mode & 3 {
        0 => Vec::new(),
        1 => greeting_flags().to_vec(),
        2 => [&greeting_flags()[..], &simple].concat(),
        _ if mode & 0x40 != 0 => [&greeting_flags()[..], &extended].concat(),
        _ => [&greeting_flags()[..], &structured].concat(),
    };
    sent.extend_from_slice(rest);
    let chunk_bytes = 1 << ((mode >> 2) & 15);
    // Any result is acceptable as long as nothing panics.
    let _ = run_session(&sent, chunk_bytes, mode & 0x80 != 0);
}
