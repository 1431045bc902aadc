//! Exports that only listed clients may use, and clients that may no longer.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nbd::option::ClientOption;
use nbd::protocol::*;
use nbd::testing::MemoryDevice;
use nbd::{Access, ClientName, Exports, RefusalReason, ServerConfig, TlsConfig, TlsPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::client::{connect_to, device, info, shared_of};
use crate::log::Log;
use crate::tls::{TlsClient, certificates, connector_as, openssl, server, start_tls};

/// A server with the exports `first` and `second`.
struct House {
    folder: tempfile::TempDir,
    device: Arc<MemoryDevice>,
    exports: Arc<Exports<MemoryDevice>>,
}

fn listed(read_write: &[&str], read_only: &[&str]) -> Access {
    let names = |list: &[&str]| list.iter().map(|name| name.parse::<ClientName>().expect("a name")).collect();
    Access::Listed { read_write: names(read_write), read_only: names(read_only) }
}

impl House {
    /// `None` without openssl.
    fn new() -> Option<House> {
        let folder = certificates()?;
        let device = Arc::new(device());
        let exports = shared_of(&device, server(folder.path(), true));
        Some(House { folder, device, exports })
    }

    /// A client with the certificate of this name, inside TLS.
    async fn client(&self, name: &str) -> (TlsClient, nbd::ShutdownTrigger) {
        let mut session = connect_to(&self.exports, &self.device, 1 << 20);
        session.client.greet().await;
        start_tls(session, connector_as(self.folder.path(), Some(name))).await.expect("TLS")
    }

    fn not_listed(&self) -> u64 {
        self.exports.refused_count(RefusalReason::NotListed)
    }
}

#[tokio::test]
async fn clients_see_and_use_what_lists_them() {
    let Some(house) = House::new() else { return };
    house.exports.set_access("first", listed(&["ONE.example.com"], &[]));
    let (mut one, _running) = house.client("one").await;
    assert_eq!(one.exports().await, ["first", "second"]);
    one.go("first").await;
    assert_eq!(one.write(0, 0, &[1; 512]).await, 0);
    assert_eq!(house.not_listed(), 0);
    let (mut two, _running) = house.client("two").await;
    assert_eq!(two.exports().await, ["second"]);
    for option in [
        ClientOption::Info(info("first")),
        ClientOption::Go(info("first")),
        // The first export is what clients get that name none.
        ClientOption::Go(info("")),
    ] {
        assert_eq!(two.outcome(&option).await, REP_ERR_UNKNOWN);
    }
    assert_eq!(house.not_listed(), 1, "counted once a connection");
    two.go("second").await;
    assert_eq!(two.write(0, 0, &[1; 4096]).await, 0);
}

#[tokio::test]
async fn export_name_does_not_get_around_the_list() {
    let Some(house) = House::new() else { return };
    house.exports.set_access("first", listed(&["one.example.com"], &[]));
    let (mut two, _running) = house.client("two").await;
    two.send(&ClientOption::ExportName("first".into()).encode()).await;
    assert!(two.is_closed().await);
    assert_eq!(house.not_listed(), 1);
}

#[tokio::test]
async fn some_may_only_read() {
    let Some(house) = House::new() else { return };
    house.exports.set_access("first", listed(&["one.example.com"], &["two.example.com", "one.example.com"]));
    for (name, written) in [("one", 0), ("two", Errno::Perm as u32)] {
        let (mut client, _running) = house.client(name).await;
        client.go("first").await;
        assert_eq!(client.write(0, 0, &[1; 512]).await, written, "{name}");
        for command in [CMD_TRIM, CMD_WRITE_ZEROES] {
            assert_eq!(client.ask(command, 0, 0, 512).await, written, "{name}");
        }
        assert_eq!(client.ask(CMD_FLUSH, 0, 0, 0).await, 0, "{name}");
    }
}

#[tokio::test]
async fn a_fingerprint_is_a_name() {
    let Some(house) = House::new() else { return };
    let file = house.folder.path().join("one.pem");
    let Some(printed) =
        openssl(house.folder.path(), &format!("x509 -noout -fingerprint -sha256 -in {}", file.display()))
    else {
        panic!("openssl made the certificate")
    };
    let digits = printed.trim().rsplit_once('=').expect("a fingerprint").1;
    house.exports.set_access("first", listed(&[&format!("sha256:{digits}")], &[]));
    house.client("one").await.0.go("first").await;
    let (mut two, _running) = house.client("two").await;
    assert_eq!(two.outcome(&ClientOption::Go(info("first"))).await, REP_ERR_UNKNOWN);
}

#[tokio::test]
async fn without_certificates_lists_let_nobody_in() {
    let device = Arc::new(device());
    let exports = shared_of(&device, ServerConfig::default());
    exports.set_access("first", listed(&["one.example.com"], &[]));
    let mut session = connect_to(&exports, &device, 1 << 20);
    session.client.greet().await;
    assert_eq!(session.client.outcome(&ClientOption::Go(info("first"))).await, REP_ERR_UNKNOWN);
    session.client.go("second").await;
}

#[tokio::test]
async fn a_client_that_loses_its_right_is_disconnected_and_others_stay() {
    let Some(house) = House::new() else { return };
    let clients = ["one.example.com", "two.example.com"];
    house.exports.set_access("first", listed(&clients, &[]));
    let (mut one, _one_runs) = house.client("one").await;
    let (mut two, _two_runs) = house.client("two").await;
    one.go("first").await;
    two.go("first").await;
    house.exports.set_access("first", listed(&["two.example.com", "one.example.com"], &[]));
    for client in [&mut one, &mut two] {
        assert_eq!(client.write(0, 0, &[1; 512]).await, 0, "in another order");
    }
    house.exports.set_access("first", listed(&["two.example.com"], &["one.example.com"]));
    assert!(one.is_closed().await, "it wrote, and may only read");
    let (mut one, _one_runs) = house.client("one").await;
    one.go("first").await;
    house.exports.set_access("first", listed(&clients, &[]));
    assert_eq!(one.ask(CMD_FLUSH, 0, 0, 0).await, 0, "may do more");
    house.exports.set_access("first", listed(&["two.example.com"], &[]));
    assert!(one.is_closed().await);
    assert_eq!(two.write(0, 0, &[1; 512]).await, 0);
    house.exports.set_access("first", Access::Everyone);
    house.client("one").await.0.go("first").await;
}

#[tokio::test]
async fn lines_of_clients_have_their_identities() {
    let log = Log::start();
    let Some(house) = House::new() else { return };
    house.exports.set_access("first", listed(&["one.example.com"], &[]));
    let (mut one, _one_runs) = house.client("one").await;
    one.go("first").await;
    let (mut two, _two_runs) = house.client("two").await;
    assert_eq!(two.outcome(&ClientOption::Go(info("first"))).await, REP_ERR_UNKNOWN);
    let [refused] = &log.with("a client is refused")[..] else { panic!("{:?}", log.with("")) };
    let fields = "identity=two.example.com export=\"first\" reason=\"not-listed\"";
    assert!(refused.contains(fields), "{refused}");
    one.request(CMD_DISC, 0, 0, 0).await;
    assert!(one.is_closed().await);
    two.go("second").await;
    two.send(&[0; 28]).await;
    assert!(two.is_closed().await, "no request");
    for (name, message) in [("one", "client disconnected client="), ("two", "client disconnected: ")] {
        let lines = log.with("client disconnected");
        let identity = format!(" identity={name}.example.com ");
        let [line] = &lines.iter().filter(|line| line.contains(&identity)).collect::<Vec<_>>()[..] else {
            panic!("{name}: {lines:?}")
        };
        assert!(line.starts_with(message) && line.contains("seconds="), "{line}");
    }
}

/// Makes a certificate for `brief.example.com` that expires after `seconds`.
fn make_brief(folder: &Path, seconds: i64) {
    let request = "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=brief";
    openssl(folder, &format!("{request} -keyout brief.key -out brief.csr")).expect("a request");
    std::fs::write(folder.join("brief.txt"), "").expect("a file");
    let settings = "[ca]\ndefault_ca=d\n[d]\ndatabase=brief.txt\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n\
                    rand_serial=yes\nx509_extensions=x\n[p]\ncommonName=supplied\n[x]\n\
                    basicConstraints=critical,CA:false\nextendedKeyUsage=clientAuth\n\
                    subjectAltName=DNS:brief.example.com\n";
    std::fs::write(folder.join("brief.cnf"), settings).expect("a file");
    let mut date = Command::new("date");
    date.args(["-u", "+%y%m%d%H%M%SZ", "-d", &format!("{seconds} seconds")]);
    let end = String::from_utf8(date.output().expect("coreutils").stdout).expect("digits");
    let by_ca =
        "ca -batch -notext -config brief.cnf -cert ca.pem -keyfile ca.key -in brief.csr -out brief.pem";
    openssl(folder, &format!("{by_ca} -enddate {}", end.trim())).expect("a certificate");
}

/// TLS as the server of the house has it, with its revocation list.
fn with_crl(folder: &Path) -> TlsPolicy {
    let file = |name: &str| folder.join(name);
    let [certificate, key, ca, crl] = ["server.pem", "server.key", "ca.pem", "crl.pem"].map(file);
    TlsPolicy::Required(TlsConfig::from_pem_files(&certificate, &key, Some(&ca), Some(&crl)).expect("usable"))
}

#[tokio::test]
async fn revoked_certificates_are_refused_and_their_clients_disconnected() {
    let Some(house) = House::new() else { return };
    let folder = house.folder.path();
    let (mut one, _one_runs) = house.client("one").await;
    let (mut two, _two_runs) = house.client("two").await;
    one.go("first").await;
    two.go("first").await;
    let (mut late, _late_runs) = house.client("one").await;
    std::fs::write(folder.join("index.txt"), "").expect("a file");
    std::fs::write(folder.join("number"), "01").expect("a file");
    let settings = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ncrlnumber=number\ndefault_md=sha256\n";
    std::fs::write(folder.join("crl.cnf"), settings).expect("a file");
    let by_ca = "ca -config crl.cnf -cert ca.pem -keyfile ca.key";
    openssl(folder, &format!("{by_ca} -gencrl -crldays 2 -out crl.pem")).expect("a list");
    house.exports.renew_tls(with_crl(folder));
    for client in [&mut one, &mut two] {
        assert_eq!(client.write(0, 0, &[1; 512]).await, 0, "nobody is revoked");
    }
    openssl(folder, &format!("{by_ca} -revoke one.pem")).expect("revoked");
    openssl(folder, &format!("{by_ca} -gencrl -crldays 2 -out crl.pem")).expect("a list");
    house.exports.renew_tls(with_crl(folder));
    assert!(timeout(Duration::from_secs(60), one.is_closed()).await.expect("closed"));
    assert_eq!(two.write(0, 0, &[1; 512]).await, 0);
    // A client that came before, and chooses only now.
    late.send(&ClientOption::Go(info("first")).encode()).await;
    assert!(late.is_closed().await);
    // With TLS 1.3 a client learns of it only at its first read.
    let mut session = connect_to(&house.exports, &house.device, 1 << 20);
    session.client.greet().await;
    if let Ok((mut client, _running)) = start_tls(session, connector_as(folder, Some("one"))).await {
        let _ = client.stream.write_all(&ClientOption::List.encode()).await;
        assert!(client.is_closed().await);
    }
    assert_eq!(house.exports.refused_count(RefusalReason::Tls), 1);
    house.client("two").await.0.go("first").await;
}

#[tokio::test]
async fn a_client_whose_certificate_expires_is_disconnected_at_a_reload() {
    let log = Log::start();
    let Some(house) = House::new() else { return };
    let folder = house.folder.path();
    let (mut two, _two_runs) = house.client("two").await;
    two.go("first").await;
    // On a busy machine the certificate may expire before the client has used it.
    for seconds in [3, 15, 60] {
        make_brief(folder, seconds);
        let mut session = connect_to(&house.exports, &house.device, 1 << 20);
        session.client.greet().await;
        let Ok((mut brief, _brief_runs)) = start_tls(session, connector_as(folder, Some("brief"))).await
        else {
            continue;
        };
        let _ = brief.stream.write_all(&ClientOption::Go(info("first")).encode()).await;
        let _ = brief.stream.flush().await;
        let mut stayed = false;
        let lost = async {
            loop {
                house.exports.renew_tls(server(folder, true).tls);
                match timeout(Duration::from_millis(200), brief.stream.read(&mut [0; 4096])).await {
                    Ok(Ok(0) | Err(_)) => break,
                    Ok(Ok(_)) => {}
                    Err(_) => stayed = true,
                }
            }
        };
        timeout(Duration::from_secs(120), lost).await.expect("disconnected");
        if !stayed {
            continue;
        }
        let lines = log.with("its certificate is no longer valid");
        let line = lines.last().unwrap_or_else(|| panic!("{:?}", log.with("")));
        assert!(line.contains("identity=brief.example.com"), "{line}");
        assert_eq!(two.write(0, 0, &[1; 512]).await, 0, "others stay");
        return;
    }
    panic!("no client was served before its certificate expired");
}
