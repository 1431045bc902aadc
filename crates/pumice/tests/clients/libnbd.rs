//! libnbd from Python: what no client should send.

use crate::common::{Drive, in_time, needs, succeed};

const PYTHON: &str = "/usr/bin/python3";
const ILLEGAL_REQUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nbd/tests/illegal_requests.py");

/// Whether Python has the bindings; says so if not.
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
