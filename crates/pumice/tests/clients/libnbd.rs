//! libnbd from Python: requests that no proper client sends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::server::text;
use crate::common::{Drive, Outcome, in_time, needs, succeed};
use crate::tools;

const PYTHON: &str = "/usr/bin/python3";
const ILLEGAL_REQUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nbd/tests/illegal_requests.py");

const VERSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/versions.py");

/// Returns whether Python has the bindings. Prints a message if not.
fn usable() -> bool {
    let found = needs(&[PYTHON]) && in_time(PYTHON, &["-c", "import nbd"]).code == Some(0);
    if !found {
        eprintln!("skipped: python3-libnbd is not installed");
    }
    found
}

#[test]
fn illegal_requests_are_refused_and_change_nothing() {
    if !usable() {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--sector", "4096"]);
    let server = drive.serve(&[]);
    let socket = server.socket();
    let said = succeed(PYTHON, &[ILLEGAL_REQUESTS.as_ref(), socket.as_os_str()]);
    assert!(said.starts_with("ok: "), "{said}");
    assert_eq!(drive.status()["state"], "online");
    assert!(server.stop().success());
}

#[test]
fn any_range_is_legal_without_block_sizes() {
    if !usable() {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--sector", "4096"]);
    let server = drive.serve(&[]);
    let script = "import sys, nbd\n\
        h = nbd.NBD(); h.set_request_block_size(False); h.connect_uri(sys.argv[1])\n\
        assert h.get_block_size(nbd.SIZE_MINIMUM) == 0\n\
        h.pwrite(b'over a border', 4090)\n\
        h.pwrite(b'B', 4097, nbd.CMD_FLAG_FUA)\n\
        h.zero(2, 4091)\n\
        h.trim(10, 4090)\n\
        assert h.pread(15, 4089) == b'\\0o\\0\\0r a Border\\0', h.pread(15, 4089)\n\
        assert h.pread(1, 0) == b'\\0'\n";
    succeed(PYTHON, &["-c", script, server.uri()]);
    assert!(server.stop().success());
}

#[test]
fn a_flush_on_one_connection_covers_the_others() {
    if !usable() {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    let script = "import sys, nbd\n\
        handles = [nbd.NBD() for _ in range(4)]\n\
        [h.connect_uri(sys.argv[1]) for h in handles]\n\
        assert all(h.can_multi_conn() for h in handles)\n\
        [h.pwrite(bytes([i + 1]) * 65536, i << 20) for i, h in enumerate(handles)]\n\
        handles[0].flush()\n";
    succeed(PYTHON, &["-c", script, server.uri()]);
    server.kill();
    let server = drive.serve(&[]);
    let script = "import sys, nbd\n\
        h = nbd.NBD(); h.connect_uri(sys.argv[1])\n\
        for i in range(4):\n    assert h.pread(65536, i << 20) == bytes([i + 1]) * 65536, i\n";
    succeed(PYTHON, &["-c", script, server.uri()]);
}

/// Four clients write concurrently, on all workers, while the server is killed repeatedly. Flushed data must
/// be intact, and every block must contain data that was written.
#[test]
fn flushed_writes_of_many_clients_survive_kills() -> Outcome {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 5;
    if !usable() {
        return Ok(());
    }
    // Small enough that cleaning and checkpoints run all the time.
    let drive = Drive::create(&["--size", "32M", "--capacity", "64M"]);
    let state = |client: usize| drive.file(&format!("state-{client}"));
    for round in 0..ROUNDS {
        let server = drive.serve(&["--threads", "3"]);
        let socket = text(&server.socket());
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let arguments = [VERSIONS, "write", &socket, &state(client), &client.to_string()];
            let mut child =
                Command::new(PYTHON).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let mut line = String::new();
            BufReader::new(child.stdout.take().ok_or("piped")?).read_line(&mut line)?;
            clients.push(child);
        }
        std::thread::sleep(Duration::from_millis(500 + 150 * round as u64));
        server.kill();
        for mut client in clients {
            let ended = tools::wait_until(Duration::from_secs(60), "a client", || Ok(client.try_wait()?));
            if ended.is_err() {
                tools::kill(&mut client);
            }
            assert!(ended?.success(), "round {round}");
        }
        let server = drive.serve(&[]);
        let socket = text(&server.socket());
        for client in 0..CLIENTS {
            succeed(PYTHON, &[VERSIONS, "verify", &socket, &state(client), &client.to_string()]);
        }
        assert!(server.stop().success());
        let run = drive.pumice(&["check", "--deep", &drive.file("drive")]);
        assert_eq!(run.code, Some(0), "round {round}: {run:?}");
    }
    Ok(())
}
