//! The client of this crate over TLS, against the server of this crate.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use nbd::client::{ClientTls, ClientTlsFiles, Connection, ExportUri};
use nbd::{Exports, Listener, RefusalReason, Server, ServerConfig};

use crate::client::{CAPACITY_BYTES, device, shared_of};
use crate::tls::{certificates, server};

/// A server with its own threads, at a port of loopback and at a Unix socket in `folder`.
struct Serving {
    exports: Arc<Exports<nbd::testing::MemoryDevice>>,
    port: String,
    _server: Server,
}

fn serve(folder: &Path, config: ServerConfig) -> Serving {
    let exports = shared_of(&Arc::new(device()), config.clone());
    let tcp = Listener::tcp("127.0.0.1", 0, &config).expect("a port");
    let unix = Listener::unix(&folder.join("s")).expect("a socket");
    let port = tcp.address().to_string().rsplit(':').next().expect("a port").to_owned();
    let server = Server::start(&exports, vec![tcp, unix], 1).expect("threads");
    Serving { exports, port, _server: server }
}

fn tls(folder: &Path, ca: Option<&str>, client: Option<&str>) -> ClientTls {
    let file = |name: String| folder.join(name);
    let identity = client.map(|name| (file(format!("{name}.pem")), file(format!("{name}.key"))));
    let ca = ca.map(|name| file(format!("{name}.pem")));
    ClientTls::from_pem_files(&ClientTlsFiles { ca, identity }).expect("usable files")
}

fn open(uri: &str, tls: &ClientTls) -> io::Result<Connection> {
    Connection::open(&ExportUri::parse(uri).expect("a URI"), Some(tls))
}

fn refusal(uri: &str, tls: &ClientTls) -> String {
    open(uri, tls).map(|_| ()).expect_err("refused").to_string()
}

#[test]
fn an_export_is_read_over_tls() {
    let Some(folder) = certificates() else { return };
    let folder = folder.path();
    let serving = serve(folder, server(folder, true));
    let port = &serving.port;
    let as_client = tls(folder, Some("ca"), Some("client"));
    // The certificate of the server is for `localhost`.
    for uri in [
        format!("nbds://localhost:{port}/first"),
        format!("nbds://127.0.0.1:{port}/first?tls-hostname=localhost"),
        format!("nbds+unix:///first?socket={}", folder.join("s").display()),
    ] {
        let mut connection = open(&uri, &as_client).expect("connected");
        assert_eq!(connection.size_bytes(), CAPACITY_BYTES);
        let mut bytes = vec![1; 5 << 20];
        assert_eq!(connection.read_at(4096, &mut bytes).expect("read"), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 0));
        connection.data_ranges().expect("ranges");
    }
    assert!(refusal(&format!("nbds://localhost:{port}/none"), &as_client).contains("no export named"));
    for reason in [RefusalReason::Tls, RefusalReason::Protocol, RefusalReason::NoTls] {
        assert_eq!(serving.exports.refused_count(reason), 0, "{reason:?}");
    }
}

#[test]
fn servers_must_prove_who_they_are() {
    let (Some(folder), Some(other)) = (certificates(), certificates()) else { return };
    let folder = folder.path();
    let serving = serve(folder, server(folder, false));
    let uri = format!("nbds://localhost:{}/first", serving.port);
    open(&uri, &tls(folder, Some("ca"), None)).expect("connected");
    let why = refusal(&uri, &tls(other.path(), Some("ca"), None));
    assert!(why.contains("TLS") && why.contains("invalid peer certificate"), "{why}");
    // The machine does not trust an authority made a moment ago.
    let why = refusal(&uri, &tls(folder, None, None));
    assert!(why.contains("TLS") && why.contains("invalid peer certificate"), "{why}");
    let by_address = format!("nbds://127.0.0.1:{}/first", serving.port);
    let why = refusal(&by_address, &tls(folder, Some("ca"), None));
    assert!(why.contains("TLS") && why.contains("not valid for name"), "{why}");
}

#[test]
fn a_client_without_a_certificate_is_told_so() {
    let Some(folder) = certificates() else { return };
    let folder = folder.path();
    let serving = serve(folder, server(folder, true));
    let uri = format!("nbds://localhost:{}/first", serving.port);
    let why = refusal(&uri, &tls(folder, Some("ca"), None));
    assert!(why.contains("the server requires a certificate of the client"), "{why}");
}

#[test]
fn nothing_is_asked_in_plain_text_if_there_is_no_tls() {
    let Some(folder) = certificates() else { return };
    let folder = folder.path();
    let serving = serve(folder, ServerConfig::default());
    let (secure, plain) = (
        format!("nbds://localhost:{}/first", serving.port),
        format!("nbd://127.0.0.1:{}/first", serving.port),
    );
    let with_ca = tls(folder, Some("ca"), None);
    assert!(refusal(&secure, &with_ca).contains("the server has no TLS"));
    open(&plain, &with_ca).expect("TLS was not asked for");
    let missing = Connection::open(&ExportUri::parse(&secure).expect("a URI"), None).map(|_| ());
    assert_eq!(missing.expect_err("no files").kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_server_that_requires_tls_is_named_to_clients_without() {
    let Some(folder) = certificates() else { return };
    let folder = folder.path();
    let serving = serve(folder, server(folder, false));
    let why = refusal(&format!("nbd://127.0.0.1:{}/first", serving.port), &tls(folder, Some("ca"), None));
    assert!(why.contains("nbds://"), "{why}");
}

/// A server that sends more in plain text than its reply to STARTTLS: it must not count as sent within TLS.
#[test]
fn plain_text_behind_the_reply_is_no_part_of_tls() {
    let Some(folder) = certificates() else { return };
    let path = folder.path().join("injected");
    let listener = UnixListener::bind(&path).expect("bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut sent = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
        let reply = |option: u32, kind: u32| {
            [
                &0x0003_e889_0455_65a9_u64.to_be_bytes()[..],
                &option.to_be_bytes(),
                &kind.to_be_bytes(),
                &[0; 4],
            ]
            .concat()
        };
        // The reply to STARTTLS, and one to the option that a client sends next.
        sent.extend([reply(5, 1), reply(8, 1)].concat());
        io::Write::write_all(&mut stream, &sent).expect("sent");
        io::Read::read_to_end(&mut stream, &mut Vec::new())
    });
    let uri = format!("nbds+unix:///first?socket={}", path.display());
    let why = refusal(&uri, &tls(folder.path(), Some("ca"), None));
    assert!(why.starts_with("TLS: "), "{why}");
    let _ = server.join().expect("no panic");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let Some(folder) = certificates() else { return };
    let file = |name: &str| folder.path().join(name);
    let refused = |files: &ClientTlsFiles| {
        ClientTls::from_pem_files(files).map(|_| ()).expect_err("refused").to_string()
    };
    let none = ClientTlsFiles { ca: Some(file("none.pem")), identity: None };
    assert!(refused(&none).contains("none.pem"));
    let no_certificate = ClientTlsFiles { ca: Some(file("server.key")), identity: None };
    assert!(refused(&no_certificate).contains("holds no certificate"));
    let mismatch =
        ClientTlsFiles { ca: Some(file("ca.pem")), identity: Some((file("client.pem"), file("server.key"))) };
    assert!(refused(&mismatch).contains("cannot be used"));
}
