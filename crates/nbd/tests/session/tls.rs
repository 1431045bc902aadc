//! STARTTLS.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use nbd::option::ClientOption;
use nbd::protocol::*;
use nbd::{
    Address, ListenError, Listener, RefusalReason, ServerConfig, ShutdownTrigger, TlsConfig, TlsError,
    TlsPolicy,
};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::client::{Client, Session, connect, connect_to, device, info, shared_of};

/// Runs openssl in a folder. Returns what it prints, or `None` if it fails.
pub(crate) fn openssl(folder: &Path, arguments: &str) -> Option<String> {
    let run = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|run| run.status.success())?;
    String::from_utf8(run.stdout).ok()
}

/// Creates a folder with an authority `ca` and its certificates `server`, and `client`, `one` and `two` for
/// clients, the last two with the DNS names `one.example.com` and `two.example.com`. `None` without openssl.
pub(crate) fn certificates() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    let openssl = |arguments: &str| openssl(folder.path(), arguments).is_some();
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    let by_ca = "-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:false";
    let of_client = "-addext extendedKeyUsage=clientAuth";
    let named = |name: &str| {
        let names = format!("-subj /CN={name} -addext subjectAltName=DNS:{name}.example.com");
        format!("{new} {by_ca} {of_client} -keyout {name}.key -out {name}.pem {names}")
    };
    let made = openssl(&format!("{new} -keyout ca.key -out ca.pem -subj /CN=ca"))
        && openssl(&format!(
            "{new} {by_ca} -keyout server.key -out server.pem -subj /CN=s -addext subjectAltName=DNS:localhost"
        ))
        && openssl(&format!("{new} {by_ca} {of_client} -keyout client.key -out client.pem -subj /CN=c"))
        && openssl(&named("one"))
        && openssl(&named("two"));
    if !made {
        eprintln!("skipped: openssl cannot make certificates here");
        return None;
    }
    Some(folder)
}

pub(crate) fn server(folder: &Path, clients_need_certificates: bool) -> ServerConfig {
    let file = |name: &str| folder.join(name);
    let ca: Option<PathBuf> = clients_need_certificates.then(|| file("ca.pem"));
    let tls = TlsConfig::from_pem_files(&file("server.pem"), &file("server.key"), ca.as_deref(), None);
    ServerConfig { tls: TlsPolicy::Required(tls.expect("usable")), ..ServerConfig::default() }
}

#[test]
fn a_key_that_does_not_work_is_described() {
    let Some(folder) = certificates() else { return };
    let file = |name: &str| folder.path().join(name);
    let load = |key: &str| TlsConfig::from_pem_files(&file("server.pem"), &file(key), None, None).err();
    for (name, options, what) in [
        ("short", "RSA -pkeyopt rsa_keygen_bits:1024", "an RSA key of 1024 bits"),
        ("odd", "RSA -pkeyopt rsa_keygen_bits:2560", "an RSA key of 2560 bits"),
        ("other", "EC -pkeyopt ec_paramgen_curve:P-521", "a key of another kind"),
    ] {
        openssl(folder.path(), &format!("genpkey -out {name} -algorithm {options}")).expect("a key");
        let said = load(name).expect("refused").to_string();
        assert!(said.contains(what) && said.contains("2048, 3072 or 4096 bits"), "{said}");
        assert!(said.starts_with(&file(name).display().to_string()), "{said}");
    }
    openssl(folder.path(), "rsa -in short -traditional -out older").expect("a key");
    assert!(load("older").expect("refused").to_string().contains("1024 bits"));
    std::fs::write(
        file("noise"),
        "-----BEGIN PRIVATE KEY-----\nMIIBBwIBADCBnw==\n-----END PRIVATE KEY-----\n",
    )
    .expect("written");
    assert!(matches!(load("noise"), Some(TlsError::Key { .. })));
}

#[test]
fn tcp_beyond_this_machine_needs_client_certificates() {
    let Some(folder) = certificates() else { return };
    let check = |config: &ServerConfig| Listener::check(&Address::Tcp("0.0.0.0".into(), 0), true, config);
    let anonymous = server(folder.path(), false);
    assert!(matches!(check(&anonymous), Err(ListenError::Anonymous(_))));
    assert!(matches!(Listener::tcp("0.0.0.0", 0, &anonymous), Err(ListenError::Anonymous(_))));
    let loopback = |config: &ServerConfig| Listener::tcp("127.0.0.1", 0, config).expect("loopback");
    assert!(
        loopback(&anonymous).is_open(&anonymous) && loopback(&anonymous).is_open(&ServerConfig::default())
    );
    let authenticating = server(folder.path(), true);
    assert!(!loopback(&authenticating).is_open(&authenticating));
    check(&authenticating).expect("with client certificates");
    check(&ServerConfig { tls_anonymous: true, ..anonymous.clone() }).expect("allowed explicitly");
    check(&ServerConfig { insecure: true, ..anonymous }).expect("allowed even without TLS");
}

fn connector(folder: &Path, with_certificate: bool) -> TlsConnector {
    connector_as(folder, with_certificate.then_some("client"))
}

/// A client's side of TLS, with the certificate of this name.
pub(crate) fn connector_as(folder: &Path, name: Option<&str>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(folder.join("ca.pem")).expect("readable");
    roots.add(ca).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match name {
        Some(name) => {
            let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
            let certificate = CertificateDer::from_pem_file(file("pem")).expect("readable");
            let key = PrivateKeyDer::from_pem_file(file("key")).expect("readable");
            builder.with_client_auth_cert(vec![certificate], key).expect("usable")
        }
        None => builder.with_no_client_auth(),
    };
    TlsConnector::from(Arc::new(config))
}

pub(crate) type TlsClient = Client<tokio_rustls::client::TlsStream<tokio::io::DuplexStream>>;

/// Returns the client inside TLS, and the trigger, which must be kept: dropping it shuts the server down.
pub(crate) async fn start_tls(
    mut session: Session,
    connector: TlsConnector,
) -> std::io::Result<(TlsClient, ShutdownTrigger)> {
    assert_eq!(session.client.outcome(&ClientOption::StartTls).await, REP_ACK);
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = connector.connect(name, session.client.stream).await?;
    Ok((Client { stream }, session.trigger))
}

#[tokio::test]
async fn a_session_inside_tls() {
    let Some(folder) = certificates() else { return };
    let mut session = connect(device(), server(folder.path(), false));
    session.client.greet().await;
    let (mut client, _running) = start_tls(session, connector(folder.path(), false)).await.expect("TLS");
    client.negotiate_structured().await;
    client.go("").await;
    let data = vec![7; 4 << 20];
    assert_eq!(client.write(0, 0, &data).await, 0);
    client.request(CMD_READ, 0, 0, 4 << 20).await;
    assert!(client.chunk().await.1[8..] == data);
    assert_eq!(client.ask(CMD_FLUSH, 0, 0, 0).await, 0);
    client.request(CMD_DISC, 0, 0, 0).await;
    // A clean end of the TLS stream: a truncated one would be an error here.
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut client.stream, &mut rest).await.expect("close_notify");
}

#[tokio::test]
async fn nothing_is_told_before_tls() {
    let Some(folder) = certificates() else { return };
    let mut session = connect(device(), server(folder.path(), false));
    session.client.greet().await;
    for option in [
        ClientOption::List,
        ClientOption::Info(info("")),
        ClientOption::Go(info("")),
        ClientOption::StructuredReply,
        ClientOption::Unknown(99),
    ] {
        assert_eq!(session.client.outcome(&option).await, REP_ERR_TLS_REQD);
    }
    assert_eq!(session.client.outcome(&ClientOption::Abort).await, REP_ACK);
}

#[tokio::test]
async fn export_name_before_tls_closes() {
    let Some(folder) = certificates() else { return };
    let device = Arc::new(device());
    let exports = shared_of(&device, server(folder.path(), false));
    let mut session = connect_to(&exports, &device, 1 << 20);
    session.client.greet().await;
    session.client.send(&ClientOption::ExportName(String::new()).encode()).await;
    assert!(session.client.is_closed().await);
    assert_eq!(exports.refused_count(RefusalReason::NoTls), 1);
    assert_eq!(exports.refused_count(RefusalReason::Protocol), 0);
}

#[tokio::test]
async fn renewed_certificates_are_for_those_who_connect_afterwards() {
    let (Some(old), Some(new)) = (certificates(), certificates()) else { return };
    let device = Arc::new(device());
    let exports = shared_of(&device, server(old.path(), false));
    let connect = async |folder: &Path| {
        let mut session = connect_to(&exports, &device, 1 << 20);
        session.client.greet().await;
        start_tls(session, connector(folder, false)).await
    };
    let (mut before, _running) = connect(old.path()).await.expect("TLS");
    before.go("").await;
    exports.renew_tls(server(new.path(), false).tls);
    assert!(connect(old.path()).await.is_err(), "another authority");
    let (mut after, _running) = connect(new.path()).await.expect("TLS");
    after.go("").await;
    // TLS cannot be turned off.
    exports.renew_tls(TlsPolicy::Off);
    connect(new.path()).await.expect("TLS still");
    assert_eq!(before.write(0, 0, &[1; 512]).await, 0, "the old connection goes on");
}

#[tokio::test]
async fn tls_does_not_start_twice() {
    let Some(folder) = certificates() else { return };
    let mut session = connect(device(), server(folder.path(), false));
    session.client.greet().await;
    let (mut client, _running) = start_tls(session, connector(folder.path(), false)).await.expect("TLS");
    assert_eq!(client.outcome(&ClientOption::StartTls).await, REP_ERR_INVALID);
    client.go("").await;
}

#[tokio::test]
async fn client_certificates_are_demanded() {
    let Some(folder) = certificates() else { return };
    let device = Arc::new(device());
    let exports = shared_of(&device, server(folder.path(), true));
    for with_certificate in [true, false] {
        let mut session = connect_to(&exports, &device, 1 << 20);
        session.client.greet().await;
        let client = start_tls(session, connector(folder.path(), with_certificate)).await;
        // With TLS 1.3 a client learns of its missing certificate only at the first read.
        let served = match client {
            Err(_) => false,
            Ok((mut client, _running)) => {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, &ClientOption::List.encode())
                    .await;
                !client.is_closed().await
            }
        };
        assert_eq!(served, with_certificate);
        assert_eq!(exports.refused_count(RefusalReason::Tls), u64::from(!with_certificate));
    }
}

#[tokio::test]
async fn plain_text_sent_ahead_does_not_get_into_tls() {
    let Some(folder) = certificates() else { return };
    let mut session = connect(device(), server(folder.path(), false));
    session.client.greet().await;
    let ahead = [ClientOption::StartTls.encode(), ClientOption::List.encode()].concat();
    session.client.send(&ahead).await;
    assert_eq!(session.client.option_reply(OPT_STARTTLS).await.reply_type, REP_ACK);
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut session.client.stream, &mut rest).await;
    assert!(!rest.windows(5).any(|window| window == b"first"), "no export was listed");
    assert!(session.ended().await.is_err());
}

#[test]
fn unusable_files_are_named() {
    let Some(folder) = certificates() else { return };
    let file = |name: &str| folder.path().join(name);
    let missing = TlsConfig::from_pem_files(&file("none.pem"), &file("server.key"), None, None);
    assert!(matches!(missing, Err(TlsError::Pem { path, .. }) if path.ends_with("none.pem")));
    for other in [Path::new("/dev/null"), folder.path()] {
        let refused = TlsConfig::from_pem_files(other, &file("server.key"), None, None).err();
        let said = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains("neither a regular file nor a pipe"), "{}: {said}", other.display());
    }
    let no_certificate = TlsConfig::from_pem_files(&file("server.key"), &file("server.key"), None, None);
    assert!(matches!(no_certificate, Err(TlsError::NoCertificate { .. })));
    let mismatch = TlsConfig::from_pem_files(&file("server.pem"), &file("client.key"), None, None);
    assert!(matches!(mismatch, Err(TlsError::Unusable(_))));
}
