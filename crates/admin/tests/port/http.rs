//! The HTTP port under good and bad clients.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use admin::{HttpAddress, HttpServer, Limits, Monitored, Reports};
use status::{DriveState, ServerReport, StatusReport};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// No answer takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

fn report(path: &str, state: DriveState) -> StatusReport {
    StatusReport {
        path: PathBuf::from(path),
        state,
        state_reason: (state != DriveState::Online).then(|| "a\nreason".to_string()),
        server: Some(ServerReport::default()),
        ..StatusReport::default()
    }
}

/// A server on a thread of its own.
struct Server {
    address: String,
    asked: Arc<AtomicUsize>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Server {
    fn start(limits: Limits, drives: Vec<StatusReport>) -> Result<Server, Box<dyn std::error::Error>> {
        Server::start_at("127.0.0.1:0", limits, drives)
    }

    fn start_at(
        address: &str,
        limits: Limits,
        drives: Vec<StatusReport>,
    ) -> Result<Server, Box<dyn std::error::Error>> {
        let here: HttpAddress = address.parse()?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (started, address) = std::sync::mpsc::channel();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let reports: Reports = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Monitored { drives: drives.clone(), ..Monitored::default() }
        });
        std::thread::spawn(move || -> std::io::Result<()> {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let server =
                    HttpServer::listen(&here, false, limits, reports).map_err(std::io::Error::other)?;
                let _ = started.send(server.address().to_string());
                let _ = stopped.await;
                Ok(())
            })
        });
        Ok(Server { address: address.recv()?, asked, _stop: stop })
    }

    fn usual() -> Result<Server, Box<dyn std::error::Error>> {
        Server::start(Limits::default(), vec![report("/srv/a", DriveState::Online)])
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends bytes as they are; answers all that comes back until the server hangs up.
    fn say(&self, bytes: &[u8]) -> std::io::Result<String> {
        let mut stream = self.connect()?;
        // A server that has heard enough hangs up before it heard all.
        let _ = stream.write_all(bytes);
        read_all(&mut stream)
    }

    fn get(&self, path: &str) -> std::io::Result<String> {
        self.say(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
    }

    /// It still answers as it should.
    fn assert_well(&self) -> Outcome {
        let answer = self.get("/healthz")?;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
        Ok(())
    }
}

fn read_all(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            // Closed over what it did not want to hear.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn assert_code(answer: &str, code: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{code} wanted: {answer:?}");
}

#[test]
fn answers_what_it_has() -> Outcome {
    let server = Server::usual()?;
    let metrics = server.get("/metrics")?;
    assert_code(&metrics, 200);
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.contains("\npumice_state{drive=\"/srv/a\",state=\"online\"} 1\n"), "{metrics}");
    let status = server.get("/status")?;
    assert_code(&status, 200);
    let (_, body) = status.split_once("\r\n\r\n").ok_or("no body")?;
    let answer: status::StatusAnswer = serde_json::from_str(body)?;
    assert_eq!(answer.drives[0].path, PathBuf::from("/srv/a"));
    let root = server.get("/")?;
    assert_code(&root, 200);
    assert!(root.contains("/metrics") && root.contains("/healthz") && root.contains("/status"), "{root}");
    assert_code(&server.get("/metrics?x=y")?, 200);
    server.assert_well()
}

#[test]
fn head_is_an_answer_without_its_body() -> Outcome {
    let server = Server::usual()?;
    let answer = server.say(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    assert_code(&answer, 200);
    assert!(answer.contains("content-length: ") && answer.ends_with("\r\n\r\n"), "{answer}");
    Ok(())
}

#[test]
fn health_is_that_of_all_drives() -> Outcome {
    let drives = |states: [DriveState; 2]| vec![report("/srv/a", states[0]), report("/srv/b", states[1])];
    for (states, code) in [
        ([DriveState::Online, DriveState::Online], 200),
        ([DriveState::Online, DriveState::ReadOnly], 200),
        ([DriveState::Online, DriveState::Poisoned], 503),
        ([DriveState::Closed, DriveState::Online], 503),
    ] {
        let server = Server::start(Limits::default(), drives(states))?;
        assert_code(&server.get("/healthz")?, code);
    }
    let server = Server::start(Limits::default(), drives([DriveState::Online, DriveState::Poisoned]))?;
    let answer = server.get("/healthz")?;
    assert!(answer.ends_with("\r\n\r\n/srv/b: poisoned: a reason\n"), "{answer}");
    let mut damaged = report("/srv/c", DriveState::ReadOnly);
    damaged.critical_warning.bits = 0xc;
    let server = Server::start(Limits::default(), vec![damaged])?;
    assert_code(&server.get("/healthz")?, 503);
    let server = Server::start(Limits::default(), Vec::new())?;
    assert_code(&server.get("/healthz")?, 200);
    Ok(())
}

#[test]
fn requests_it_does_not_know_are_refused() -> Outcome {
    let server = Server::usual()?;
    for (request, code) in [
        // Unknown paths, also such as try to get out of somewhere.
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /%6detrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        // Methods that would change something, or that are none.
        ("POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 405),
        ("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("PUT /status HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 405),
        ("EXPLODE /status HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("CONNECT x:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 421),
        // Not HTTP.
        ("{\"command\":\"status\"}\n\n", 400),
        ("GET /metrics\r\n\r\n", 400),
        ("GET /metrics HTTP/9.9\r\n\r\n", 400),
        ("GET  /metrics HTTP/1.1\r\n\r\n", 400),
        ("\r\nG\0T /metrics HTTP/1.1\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    ] {
        let answer = server.say(request.as_bytes())?;
        assert_code(&answer, code);
    }
    // A TLS hello, and bytes that are no text.
    for bytes in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[0xff; 2000]] {
        assert_code(&server.say(bytes)?, 400);
    }
    assert_eq!(server.asked.load(Ordering::Relaxed), 0, "nobody asked the drives");
    let refused = server.say(b"POST /status HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    assert!(refused.contains("allow: GET, HEAD") && refused.contains("read-only"), "{refused}");
    server.assert_well()
}

#[test]
fn huge_requests_are_refused_before_they_are_read() -> Outcome {
    let server = Server::usual()?;
    let long = "x".repeat(64 << 10);
    assert_code(&server.get(&format!("/{long}"))?, 431);
    let header = server.say(format!("GET /metrics HTTP/1.1\r\nX: {long}\r\n\r\n").as_bytes())?;
    assert_code(&header, 431);
    let many: String = (0..1000).map(|n| format!("x{n}: y\r\n")).collect();
    let headers = server.say(format!("GET /metrics HTTP/1.1\r\n{many}\r\n").as_bytes())?;
    assert_code(&headers, 431);
    assert_eq!(server.asked.load(Ordering::Relaxed), 0);
    server.assert_well()
}

#[test]
fn a_header_without_end_does_not_fill_the_memory() -> Outcome {
    let server = Server::usual()?;
    let mut stream = server.connect()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ")?;
    let megabyte = vec![b'x'; 1 << 20];
    // It hangs up long before this is all said.
    let said = (0..1024).take_while(|_| stream.write_all(&megabyte).is_ok()).count();
    assert!(said < 1024, "a gigabyte of header was taken");
    server.assert_well()
}

#[test]
fn a_body_is_not_waited_for() -> Outcome {
    let server = Server::usual()?;
    let answer =
        server.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n")?;
    assert_code(&answer, 200);
    server.assert_well()
}

#[test]
fn one_request_a_connection() -> Outcome {
    let server = Server::usual()?;
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = server.say(request.repeat(100).as_bytes())?;
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    Ok(())
}

#[test]
fn slow_clients_are_disconnected() -> Outcome {
    let limits = Limits {
        headers: Duration::from_millis(100),
        connection: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = Server::start(limits, vec![report("/srv/a", DriveState::Online)])?;
    // Says nothing; says a part; hangs up half way.
    let mut silent = server.connect()?;
    let mut part = server.connect()?;
    part.write_all(b"GET /metrics HTTP/1.1\r\nHo")?;
    let mut half = server.connect()?;
    half.write_all(b"GET /metrics HT")?;
    half.shutdown(Shutdown::Write)?;
    for stream in [&mut silent, &mut part, &mut half] {
        let answer = read_all(stream)?;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    server.assert_well()
}

#[test]
fn who_does_not_take_the_answer_is_disconnected() -> Outcome {
    let limits = Limits { connection: Duration::from_millis(300), ..Limits::default() };
    // More than the buffers of a connection hold.
    let drives = (0..2000).map(|n| report(&format!("/srv/{n}"), DriveState::Online)).collect();
    let server = Server::start(limits, drives)?;
    // Long after the server has given up, unless the machine is slow.
    for seconds in [1, 8, 60] {
        let mut stream = server.connect()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        std::thread::sleep(Duration::from_secs(seconds));
        let answer = read_all(&mut stream)?;
        assert_code(&answer, 200);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).ok_or("no length")?;
        if body.len() < length.parse()? {
            return Ok(());
        }
    }
    Err("all came, after the time was over".into())
}

#[test]
fn many_idle_connections_keep_nobody_out() -> Outcome {
    let limits = Limits { connections: 8, headers: PATIENCE, connection: PATIENCE };
    let server = Server::start(limits, vec![report("/srv/a", DriveState::Online)])?;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(server.connect()?);
    }
    server.assert_well()?;
    // The oldest were sent away, and were not kept waiting.
    assert_eq!(read_all(&mut idle[0])?, "");
    server.assert_well()
}

/// A page of another origin may have its own name resolve to a loopback address.
#[test]
fn clients_that_have_another_name_for_this_machine_are_refused() -> Outcome {
    let server = Server::usual()?;
    let get = |host: &str| server.say(format!("GET /status HTTP/1.1\r\n{host}\r\n").as_bytes());
    assert_code(&get("Host: evil.example\r\n")?, 421);
    for target in
        ["http://evil.example/status", "http://evil.example:9841/status", "https://evil.example/status"]
    {
        let asked = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_code(&server.say(asked.as_bytes())?, 421);
    }
    assert_eq!(server.asked.load(Ordering::Relaxed), 0, "nobody asked the drives");
    for host in ["Host: localhost:9841\r\n", "Host: 127.0.0.1\r\n", "Host: [::1]:9841\r\n"] {
        assert_code(&get(host)?, 200);
    }
    assert_code(&server.say(b"GET http://127.0.0.1:80/status HTTP/1.1\r\nHost: localhost\r\n\r\n")?, 200);
    Ok(())
}

#[test]
fn requests_without_one_valid_host_are_refused() -> Outcome {
    let server = Server::usual()?;
    let get = |version: &str, host: &str| {
        server.say(format!("GET /status HTTP/{version}\r\n{host}\r\n").as_bytes())
    };
    for host in [
        "",
        "Host: localhost\r\nHost: localhost\r\n",
        "Host: localhost\r\nHost: evil.example:9841\r\n",
        "Host: \u{e9}\r\n",
        "Host: [::1]:99999\r\n",
        "Host: user@localhost\r\n",
    ] {
        assert_code(&get("1.1", host)?, 400);
    }
    assert_code(&server.say(b"GET http://user@localhost/status HTTP/1.1\r\nHost: localhost\r\n\r\n")?, 400);
    assert_eq!(server.asked.load(Ordering::Relaxed), 0, "nobody asked the drives");
    // HTTP/1.0 knows no header for the host.
    let old = get("1.0", "")?;
    assert!(old.starts_with("HTTP/1.0 200 "), "{old}");
    server.assert_well()
}

#[test]
fn a_unix_socket_is_for_its_owner_and_goes_with_the_server() -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("http.sock");
    let address = format!("unix:{}", path.display());
    let drives = || vec![report("/srv/a", DriveState::Online)];
    let server = Server::start_at(&address, Limits::default(), drives())?;
    assert!(Server::start_at(&address, Limits::default(), drives()).is_err(), "two servers at one socket");
    assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    let mut stream = std::os::unix::net::UnixStream::connect(&path)?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: anything\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert_code(&answer, 200);
    drop(server);
    let since = std::time::Instant::now();
    while path.exists() {
        assert!(since.elapsed() < PATIENCE, "the socket stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn beyond_this_machine_only_if_allowed() -> Outcome {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listen = |address: &str, insecure| -> Result<HttpServer, Box<dyn std::error::Error>> {
            Ok(HttpServer::listen(
                &address.parse()?,
                insecure,
                Limits::default(),
                Arc::new(Monitored::default),
            )?)
        };
        for address in ["0.0.0.0:0", "[::]:0"] {
            let error = listen(address, false).err().ok_or("it listens to the network")?.to_string();
            assert!(error.contains("--insecure"), "{error}");
        }
        let open = listen("0.0.0.0:0", true)?;
        let HttpAddress::Tcp(_, port) = *open.address() else { return Err("not TCP".into()) };
        let taken = listen(&format!("127.0.0.1:{port}"), false);
        let error = taken.err().ok_or("two servers on one port")?.to_string();
        assert!(error.contains("cannot listen"), "{error}");
        let unknown = listen("no-such-host.invalid:80", false);
        assert!(unknown.is_err());
        listen("localhost:0", false)?;
        Ok(())
    })
}
