//! Clients that stay silent, and peers with too many connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome};

/// Read timeout of a client.
const LIMIT: Duration = Duration::from_secs(60);

/// A client of the default export, which it selects with the oldest method.
struct Client<S>(S);

impl<S: Read + Write> Client<S> {
    fn connect(mut stream: S) -> Outcome<Client<S>> {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert!(greeting.starts_with(b"NBDMAGIC"), "{greeting:?}");
        // Client flags: fixed newstyle and no zeroes. Then EXPORT_NAME with an empty name.
        let asks = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &1_u32.to_be_bytes(), &0_u32.to_be_bytes()];
        stream.write_all(&asks.concat())?;
        // Size and flags.
        stream.read_exact(&mut [0; 10])?;
        Ok(Client(stream))
    }

    /// Reads a sector.
    fn read(&mut self) -> Outcome {
        self.read_bytes(512)
    }

    /// Reads the beginning of the drive.
    fn read_bytes(&mut self, bytes: u32) -> Outcome {
        let request =
            [&0x2560_9513_u32.to_be_bytes()[..], &[0; 2], &[0; 2], &[7; 8], &[0; 8], &bytes.to_be_bytes()];
        self.0.write_all(&request.concat())?;
        let mut answer = vec![0; 16 + bytes as usize];
        self.0.read_exact(&mut answer)?;
        assert_eq!(answer[4..8], [0; 4], "no error");
        Ok(())
    }
}

fn unix(drive: &Drive) -> Outcome<UnixStream> {
    let stream = UnixStream::connect(drive.file("drive.nbd"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// Returns connections that send nothing.
fn silent_clients(drive: &Drive, count: usize) -> Outcome<Vec<UnixStream>> {
    (0..count).map(|_| unix(drive)).collect()
}

/// Returns clients that have read something.
fn reading_clients(drive: &Drive, count: usize) -> Outcome<Vec<Client<UnixStream>>> {
    let one = || {
        let mut client = Client::connect(unix(drive)?)?;
        client.read()?;
        Ok(client)
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn silent_clients_do_not_use_up_the_descriptors() -> Outcome {
    const DESCRIPTORS: usize = 64;
    let drive = Drive::create(&["--size", "64M"]);
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {DESCRIPTORS} && exec \"$@\"");
    command.args([
        "-c",
        &limited,
        "sh",
        env!("CARGO_BIN_EXE_pumice"),
        "serve",
        &text(&drive.path()),
        "--threads",
        "1",
    ]);
    let server = drive.start(command, 1);
    let mut first = Client::connect(unix(&drive)?)?;
    first.read()?;
    // As many connections as the server can have, and as many again in the accept queue.
    let silent = silent_clients(&drive, 2 * DESCRIPTORS)?;
    let mut clients = reading_clients(&drive, 4)?;
    first.read()?;
    let log = drive.log();
    let lines = log.lines().filter(|line| line.contains("cannot accept a client")).count();
    // The server logs one line in ten seconds. The test may take a minute for each response.
    assert!((1..=30).contains(&lines), "{lines} lines: {log}");
    assert!(log.contains("ulimit -n"), "{log}");
    assert!(log.lines().count() < 50, "{log}");
    drop(silent);
    clients.iter_mut().try_for_each(Client::read)?;
    assert!(server.stop().success(), "{}", drive.log());
    Ok(())
}

#[test]
fn silent_clients_do_not_use_up_the_places() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&["--max-connections", "8"]);
    let _silent = silent_clients(&drive, 40)?;
    // A user of a Unix socket can have half of the connections.
    let mut clients = reading_clients(&drive, 4)?;
    assert!(Client::connect(unix(&drive)?).is_err(), "a fifth of the same user");
    clients.iter_mut().try_for_each(Client::read)?;
    let log = drive.log();
    assert!(
        log.contains("max-connections-per-peer") && log.contains("to make room for another client"),
        "{log}"
    );
    assert!(server.stop().success(), "{}", drive.log());
    Ok(())
}

/// Resident memory of a process, in bytes.
fn resident_bytes(pid: u32) -> Outcome<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process");
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

#[test]
fn memory_of_requests_is_bounded_and_comes_back_while_clients_go_on() -> Outcome {
    const MIB: u64 = 1 << 20;
    let drive = Drive::create(&["--size", "64M"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["serve", &text(&drive.path()), "--threads", "2"]);
    // The allocator gives the system back what the server frees. By itself it keeps some 48 MiB for each
    // thread, and all that lies below something that is in use.
    command.env("MALLOC_MMAP_THRESHOLD_", (128 << 10).to_string());
    let server = drive.start(command, 1);
    let before = resident_bytes(server.pid())?;
    let mut clients = Vec::new();
    for _ in 0..40 {
        clients.push(Client::connect(unix(&drive)?)?);
    }
    for client in &mut clients {
        client.read_bytes(16 << 20)?;
    }
    let after = resident_bytes(server.pid())?;
    assert!(after < before + 320 * MIB, "{} MiB", (after - before) / MIB);
    wait_until("the memory", || {
        clients.iter_mut().try_for_each(Client::read).expect("read");
        resident_bytes(server.pid()).expect("a process") < before + 100 * MIB
    });
    assert!(server.stop().success(), "{}", drive.log());
    Ok(())
}

/// Connects to the server from another address of this machine.
fn tcp(from: Ipv4Addr, to: SocketAddr) -> Outcome<TcpStream> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(stream)
}

#[test]
fn a_peer_over_its_limit_does_not_keep_others_out() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let limits = ["--max-connections", "6", "--max-connections-per-peer", "2"];
    let server = drive.serve(&[&["--nbd", "tcp:127.0.0.1:0"], &limits[..]].concat());
    let port = server.uri().trim_end_matches('/').rsplit_once(':').expect("a port").1.parse()?;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let [greedy, other] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(Client::connect(tcp(greedy, to)?)?);
    }
    for _ in 0..5 {
        assert!(Client::connect(tcp(greedy, to)?).is_err(), "over its limit");
    }
    let third = Ipv4Addr::new(127, 0, 0, 4);
    let thirds = [Client::connect(tcp(third, to)?)?, Client::connect(tcp(third, to)?)?];
    assert!(Client::connect(tcp(third, to)?).is_err(), "over its limit, too");
    drop(thirds);
    clients.push(Client::connect(tcp(other, to)?)?);
    clients.iter_mut().try_for_each(Client::read)?;
    let log = drive.log();
    let told = |peer: &str| log.lines().filter(|line| line.contains(&format!("{peer} has as many"))).count();
    assert!((1..5).contains(&told("127.0.0.2")), "once in ten seconds: {log}");
    assert!((1..5).contains(&told("127.0.0.4")), "not hidden by another peer: {log}");
    drop(clients);
    let of_other = || {
        drive.log().lines().filter(|line| line.contains("127.0.0.3")).map(str::to_string).collect::<Vec<_>>()
    };
    wait_until("the other one's end", || of_other().len() > 1);
    let of_other = of_other();
    assert!(of_other.len() == 2 && of_other[0].contains("client connected"), "{of_other:?}");
    assert!(of_other[1].contains("client disconnected"), "{of_other:?}");
    assert!(server.stop().success(), "{}", drive.log());
    Ok(())
}

#[test]
fn an_idle_client_is_disconnected_if_asked_for() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&["--idle-timeout", "1"]);
    let mut client = Client::connect(unix(&drive)?)?;
    client.read()?;
    assert_eq!(client.0.read(&mut [0])?, 0, "disconnected");
    wait_until("its line", || {
        drive.log().contains("client disconnected: the client was idle for longer than")
    });
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_handshake_has_the_time_that_the_server_is_told() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&["--handshake-timeout", "1"]);
    let mut silent = unix(&drive)?;
    let mut greeting = Vec::new();
    silent.read_to_end(&mut greeting)?;
    assert_eq!(greeting.len(), 18, "disconnected after the greeting");
    wait_until("its line", || drive.log().contains("reason=\"timeout\""));
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn limits_of_connections_need_a_restart() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let config = |limit: u32| {
        format!(
            "[server]\nmax-connections-per-peer = {limit}\n[[drive]]\npath = \"{}\"\n",
            text(&drive.path())
        )
    };
    let server = drive.serve_config(&config(1), 1);
    let mut only = Client::connect(unix(&drive)?)?;
    assert!(Client::connect(unix(&drive)?).is_err());
    drive.write_config(&config(2));
    server.ask_to_reload();
    crate::common::server::wait_until("the reload", || {
        drive.log().contains("server.max-connections-per-peer changed: takes effect when")
    });
    assert!(Client::connect(unix(&drive)?).is_err());
    only.read()?;
    assert!(server.stop().success());
    Ok(())
}
