//! A connection with TLS, fed from bytes of a client before and within TLS.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore};

use super::MemoryDevice;
use super::session::{RUNTIME, exports, greeting_flags, negotiations, run_over};
use crate::wire::option::ClientOption;
use crate::{Exports, Peer, Presence, ServerConfig, ShutdownTrigger, TlsConfig, TlsPolicy, serve_connection};

/// A certificate for `localhost` and its key, for tests alone.
const CERTIFICATE: &[u8] = include_bytes!("pem/server.pem");
const KEY: &[u8] = include_bytes!("pem/server.key");
const PIPE_BYTES: usize = 64 << 10;
/// Length of a server's greeting and of its reply to STARTTLS.
const BEFORE_TLS_BYTES: usize = 18 + 20;

thread_local! {
    static EXPORTS: Arc<Exports<MemoryDevice>> = secure_exports();
    static CLIENT: Arc<ClientConfig> = client();
}

#[allow(clippy::expect_used, reason = "a test needs")]
fn secure_exports() -> Arc<Exports<MemoryDevice>> {
    let tls = TlsConfig::from_pem(CERTIFICATE, KEY).expect("a certificate and its key");
    let config = ServerConfig { tls: TlsPolicy::Required(tls), ..ServerConfig::default() };
    Exports::new(exports(false), config).expect("the default is valid")
}

#[allow(clippy::expect_used, reason = "a test needs")]
fn client() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(builder.expect("versions").with_root_certificates(roots).with_no_client_auth())
}

#[allow(clippy::expect_used, reason = "a constant")]
fn server_name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// Returns what a client sends first in a TLS handshake: something to begin with for [`fuzz_tls`].
///
/// # Panics
/// If the certificate of the tests cannot be used.
#[allow(clippy::expect_used, reason = "a test needs")]
pub fn client_hello() -> Vec<u8> {
    let mut hello = Vec::new();
    let mut connection = ClientConnection::new(CLIENT.with(Arc::clone), server_name()).expect("usable");
    connection.write_tls(&mut hello).expect("memory");
    hello
}

/// Fuzz target: a connection to a server that requires TLS. The first byte is the mode:
/// - bits 0 and 1: whether the rest is sent in plain text behind STARTTLS, where the TLS handshake is
///   expected, or within TLS: first, after a negotiation with simple replies, or after one with structured
///   replies
/// - bits 2 to 6: size of the reads of what is sent in plain text
pub fn fuzz_tls(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    let exports = EXPORTS.with(Arc::clone);
    let start_tls: Vec<u8> = greeting_flags().into_iter().chain(ClientOption::StartTls.encode()).collect();
    let [simple, structured, _] = negotiations();
    let within: Vec<u8> = match mode & 3 {
        0 => {
            let sent = [&start_tls, rest].concat();
            // Any result is acceptable as long as nothing panics.
            let _ = run_over(&exports, &sent, 1 << ((mode >> 2) & 31).min(24));
            return;
        }
        1 => rest.to_vec(),
        2 => [&simple, rest].concat(),
        _ => [&structured, rest].concat(),
    };
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let trigger = ShutdownTrigger::new();
    let both = async {
        let server = serve_connection(far, |_| Presence::Here, Peer::Unknown, &exports, trigger.subscribe());
        // The server may disconnect at any time, but it offers TLS to all clients.
        let (_, ()) = tokio::join!(server, send_within_tls(near, &start_tls, &within));
    };
    RUNTIME.with(|runtime| runtime.block_on(both));
}

/// A client that sends bytes within TLS, takes all answers, and leaves.
#[allow(clippy::expect_used, reason = "this is what is tested")]
async fn send_within_tls(mut stream: DuplexStream, start_tls: &[u8], within: &[u8]) {
    let mut before = [0; BEFORE_TLS_BYTES];
    stream.write_all(start_tls).await.expect("sent");
    stream.read_exact(&mut before).await.expect("a greeting, and a reply to STARTTLS");
    let connector = TlsConnector::from(CLIENT.with(Arc::clone));
    let stream = connector.connect(server_name(), stream).await.expect("a TLS handshake");
    let (mut reader, mut writer) = tokio::io::split(stream);
    let send = async {
        writer.write_all(within).await?;
        writer.shutdown().await
    };
    let mut nowhere = tokio::io::sink();
    let take = tokio::io::copy(&mut reader, &mut nowhere);
    let _: (io::Result<()>, io::Result<u64>) = tokio::join!(send, take);
}
