//! Socket activation: sockets that another program has bound.

use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::run::USER;
use crate::common::server::text;
use crate::common::{Drive, Outcome, fails, in_time, needs, succeed};

const PYTHON: &str = "/usr/bin/python3";
const ACTIVATE: &str = "systemd-socket-activate";
const PUMICE: &str = env!("CARGO_BIN_EXE_pumice");

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

#[test]
fn libnbd_starts_the_server() {
    if !needs(&[PYTHON]) || in_time(PYTHON, &["-c", "import nbd"]).code != Some(0) {
        eprintln!("skipped: python3-libnbd is not installed");
        return;
    }
    let drive = Drive::create(&["--size", "32M"]);
    let script = "import sys, nbd\n\
        h = nbd.NBD()\n\
        h.connect_systemd_socket_activation(sys.argv[1:])\n\
        h.pwrite(b'x' * 4096, 8192)\n\
        assert h.pread(8192, 4096) == bytes(4096) + b'x' * 4096\n\
        h.shutdown()\n";
    let own = format!("PUMICE_RUNTIME_DIR={}", text(&drive.runtime_dir()));
    succeed("env", &[&own, PYTHON, "-c", script, PUMICE, "serve", &text(&drive.path())]);
    assert!(!drive.folder().join("drive.nbd").exists(), "no address beside the socket");
}

/// The command that listens at sockets beside the drive, and passes them with these names to `pumice serve`
/// when a client comes.
fn activate(drive: &Drive, sockets: &[&str], names: &str, serve: &[&str]) -> Command {
    let mut command = Command::new(ACTIVATE);
    for variable in ["PUMICE_RUNTIME_DIR", USER] {
        command.args(["-E", variable]);
    }
    for socket in sockets {
        command.args(["-l", &drive.file(socket)]);
    }
    command.arg(format!("--fdname={names}")).args([PUMICE, "serve"]).args(serve);
    command
}

#[test]
fn sockets_offer_all_drives_or_the_one_they_are_named_after() -> Outcome {
    if !needs(&[ACTIVATE, "nbdinfo"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "32M"]);
    let other = Drive::create(&["--size", "64M"]);
    let config = format!(
        "[server]\nnbd = [\"unix:{}\"]\n[[drive]]\npath = \"{}\"\n[[drive]]\npath = \"{}\"\nname = \"other\"\n",
        drive.file("all"),
        text(&drive.path()),
        text(&other.path()),
    );
    drive.write_config(&config);
    let serve = ["--config", &drive.file("pumice.toml")];
    let command = activate(&drive, &["all", "more", "one"], "whatever:pumice.socket:other", &serve);
    // The first client starts it.
    let socket = drive.folder().join("one");
    let first = std::thread::spawn(move || {
        while UnixStream::connect(&socket).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let server = drive.start(command, 5);
    first.join().expect("no panic");
    let uri = |socket: &str, export: &str| format!("nbd+unix:///{export}?socket={}", drive.file(socket));
    let size = |uri: &str| succeed("nbdinfo", &["--size", uri]).trim().to_owned();
    for socket in ["all", "more"] {
        assert_eq!(size(&uri(socket, "drive")), (32 << 20).to_string());
        assert_eq!(size(&uri(socket, "other")), (64 << 20).to_string());
    }
    assert_eq!(size(&uri("one", "")), (64 << 20).to_string());
    assert_ne!(in_time("nbdinfo", &[&uri("one", "drive")]).code, Some(0));
    // Through a reload, and after it.
    drive.reload(&server, &config.replace("nbd = ", "max-connections = 1024\nnbd = "));
    assert_eq!(size(&uri("all", "other")), (64 << 20).to_string());
    assert_eq!(size(&uri("one", "")), (64 << 20).to_string());
    assert!(server.stop().success());
    assert!(
        ["all", "more", "one"].iter().all(|name| is_socket(&drive.folder().join(name))),
        "not the server's"
    );
    Ok(())
}

#[test]
fn what_was_not_meant_is_refused() {
    let drive = Drive::create(&["--size", "32M"]);
    let path = text(&drive.path());
    let serve = |variables: &str| {
        // The shell becomes the server, so that the process id is right. Descriptor 3 is a file.
        let script = format!("export LISTEN_PID=$$ {variables}; exec \"$0\" serve \"$1\" 3< /dev/null");
        in_time("sh", &["-c", &script, PUMICE, &path])
    };
    for (variables, expected) in [
        ("LISTEN_FDS=1", "LISTEN_FDS: descriptor 3 (named \"\"): not a socket"),
        ("LISTEN_FDS=x", "LISTEN_FDS=x: expected a number of sockets"),
        ("LISTEN_FDS=1 LISTEN_FDNAMES=a:b", "expected one for each"),
    ] {
        fails(&serve(variables), &[expected]);
    }
}
