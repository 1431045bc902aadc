//! `pumice serve`

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use crate::common::mounts::DROP_COPIES;
use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, fails, in_time, needs, succeed};

#[test]
fn listens_beside_the_drive_for_its_owner_only() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    assert_eq!(server.socket(), drive.folder().join("drive.nbd"));
    assert_eq!(std::fs::metadata(server.socket())?.permissions().mode() & 0o777, 0o600);
    UnixStream::connect(server.socket())?;
    let socket = server.socket();
    assert!(server.stop().success());
    assert!(!socket.exists(), "the socket is gone with the server");
    Ok(())
}

#[test]
fn every_socket_is_for_its_owner_only() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let runtime = drive.folder().join("run");
    let mut command = std::process::Command::new("env");
    let own = format!("PUMICE_RUNTIME_DIR={}", text(&runtime));
    let nbd = format!("unix:{}", drive.file("nbd"));
    let admin = format!("unix:{}", drive.file("admin"));
    // Independent of the umask.
    command.args(["sh", "-c", "umask 0; exec env \"$@\"", "sh", &own, env!("CARGO_BIN_EXE_pumice")]);
    command.args(["serve", &text(&drive.path()), "--nbd", &nbd, "--admin", &admin]);
    let server = drive.start(command, 1);
    let mode = |path: &std::path::Path| -> Outcome<u32> {
        Ok(std::fs::metadata(path)?.permissions().mode() & 0o777)
    };
    assert_eq!(mode(&runtime)?, 0o700);
    let mut sockets = vec![drive.folder().join("nbd"), drive.folder().join("admin")];
    for entry in std::fs::read_dir(&runtime)? {
        sockets.push(entry?.path());
    }
    assert_eq!(sockets.len(), 3, "NBD, the further admin socket, the drive's own: {sockets:?}");
    for socket in &sockets {
        assert_eq!(mode(socket)?, 0o600, "{}", socket.display());
        UnixStream::connect(socket)?;
    }
    assert!(server.stop().success());
    assert!(sockets.iter().all(|socket| !socket.exists()), "sockets are left");
    Ok(())
}

#[test]
fn a_second_server_is_refused() {
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let run =
        drive.pumice(&["serve", &text(&drive.path()), "--nbd", &format!("unix:{}", drive.file("other"))]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("in use"), "{run:?}");
}

#[test]
fn sigterm_closes_the_drive() {
    let drive = Drive::create(&["--size", "64M"]);
    for clean in [true, true, false, true] {
        let server = drive.serve(&[]);
        if clean {
            assert!(server.stop().success());
        } else {
            server.kill();
        }
        assert_eq!(drive.status()["recovery"]["clean"], clean);
    }
}

#[test]
fn a_client_that_stays_does_not_keep_the_server() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    let _idle = UnixStream::connect(server.socket())?;
    assert!(server.stop().success());
    assert_eq!(drive.status()["recovery"]["clean"], true);
    Ok(())
}

/// Two signals at once, as `timeout` sends them. They are of different kinds, because equal pending signals
/// are merged.
#[test]
fn two_signals_in_one_instant_are_one() -> Outcome {
    use rustix::process::{Pid, Signal, kill_process};
    for _ in 0..5 {
        let drive = Drive::create(&["--size", "64M"]);
        let mut server = drive.serve(&[]);
        let pid = Pid::from_raw(server.pid() as i32).ok_or("no pid")?;
        kill_process(pid, Signal::TERM)?;
        kill_process(pid, Signal::INT)?;
        assert!(server.wait().success(), "{}", drive.log());
        assert_eq!(drive.status()["recovery"]["clean"], true);
    }
    Ok(())
}

/// A client that asks for more than the sockets hold and reads none of it. Its requests stay in flight.
fn client_that_does_not_read(socket: &std::path::Path) -> Outcome<UnixStream> {
    const READS: u64 = 8;
    const READ_BYTES: u32 = 4 << 20;
    let mut client = UnixStream::connect(socket)?;
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting)?;
    // Fixed newstyle without zeros, then NBD_OPT_EXPORT_NAME of the default export.
    let mut hello = 3_u32.to_be_bytes().to_vec();
    hello.extend(b"IHAVEOPT");
    hello.extend([1_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat());
    client.write_all(&hello)?;
    let mut export = [0; 10];
    client.read_exact(&mut export)?;
    for number in 0..READS {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend([0; 4]);
        request.extend(number.to_be_bytes());
        request.extend(0_u64.to_be_bytes());
        request.extend(READ_BYTES.to_be_bytes());
        client.write_all(&request)?;
    }
    Ok(client)
}

/// The server waits for its client for some seconds after the first signal. The second one arrives when the
/// first is no longer the same request.
#[test]
fn a_second_signal_ends_the_server_at_once() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let mut server = drive.serve(&[]);
    let client = client_that_does_not_read(&server.socket())?;
    wait_until("the client", || drive.log().contains("client connected"));
    server.ask_to_stop();
    wait_until("the first signal", || drive.log().contains("a second signal stops at once"));
    // Longer than two signals count as one.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    server.ask_to_stop();
    assert_eq!(server.wait().code(), Some(1), "{}", drive.log());
    assert!(drive.log().contains("stopped at once; the drives recover"), "{}", drive.log());
    drop(client);
    let status = drive.status();
    assert_eq!(status["recovery"]["clean"], false);
    assert_eq!(drive.pumice(&["check", &text(&drive.path())]).code, Some(0));
    Ok(())
}

#[test]
fn several_drives_several_addresses() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let second = drive.folder().join("second");
    let run = drive.pumice(&["create", &text(&second), "--size", "32M", "--capacity", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let socket = format!("unix:{}", drive.file("both"));
    let paths = [drive.path(), second];
    let server = drive.serve_paths(
        &[paths[0].as_path(), paths[1].as_path()],
        &["--nbd", &socket, "--nbd", "tcp:127.0.0.1:0"],
    );
    let list = succeed("nbdinfo", &["--list", server.uri()]);
    assert!(list.contains("export=\"drive\"") && list.contains("export=\"second\""), "{list}");
    let size = succeed("nbdinfo", &["--size", &server.uris()[1]]);
    assert_eq!(size.trim(), (32 << 20).to_string());
    let all = drive.pumice(&["status", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&all.stdout).expect("JSON");
    assert_eq!(all["drives"].as_array().map(Vec::len), Some(2));
    assert!(server.stop().success());
}

#[test]
fn each_drive_has_its_own_socket_unless_said() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let second = drive.folder().join("second");
    let run = drive.pumice(&["create", &text(&second), "--size", "32M", "--capacity", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let server = drive.serve_paths(&[&drive.path(), &second], &[]);
    let sizes: Vec<_> =
        server.uris().iter().map(|uri| succeed("nbdinfo", &["--size", uri]).trim().to_string()).collect();
    assert_eq!(sizes, [(64 << 20).to_string(), (32 << 20).to_string()]);
}

#[test]
fn read_only_refuses_writes_and_changes_nothing() -> Outcome {
    if !needs(&["qemu-io"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 7 0 1M", "-c", "flush", server.uri()]);
    server.kill();
    let before = std::fs::read(drive.path())?;
    let server = drive.serve(&["--read-only"]);
    succeed("qemu-io", &["-r", "-f", "raw", "-c", "read -P 7 0 1M", server.uri()]);
    assert!(succeed("nbdinfo", &[server.uri()]).contains("is_read_only: true"));
    assert!(server.stop().success());
    assert!(std::fs::read(drive.path())? == before, "a read-only server wrote");
    Ok(())
}

#[test]
fn without_write_cache_every_write_survives() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&["--write-cache", "off"]);
    assert_eq!(drive.status()["write_cache"], false);
    succeed("qemu-io", &["-t", "writeback", "-f", "raw", "-c", "write -P 9 4k 8k", server.uri()]);
    server.kill();
    let server = drive.serve(&["--io", "plain", "--direct", "off"]);
    assert_eq!(drive.status()["server"]["io_backend"], "plain");
    assert_eq!(drive.status()["server"]["direct_io"], false);
    succeed("qemu-io", &["-f", "raw", "-c", "read -P 9 4k 8k", server.uri()]);
}

#[test]
fn tcp_beyond_this_machine_wants_tls_or_insecure() {
    let drive = Drive::create(&["--size", "64M"]);
    let run = drive.pumice(&["serve", &text(&drive.path()), "--nbd", "tcp:0.0.0.0:0"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("--insecure"), "{run:?}");
    assert_eq!(drive.status()["recovery"]["clean"], true, "closed again");
}

#[test]
fn tls_keeps_plain_clients_out() -> Outcome {
    if !needs(&["openssl", "nbdinfo"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let authority = drive.folder().join("authority");
    std::fs::create_dir(&authority)?;
    let (cert, key) = (text(&authority.join("ca-cert.pem")), drive.file("key"));
    let request =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
    succeed("openssl", &[&request[..], &names[..], &["-keyout", &key, "-out", &cert]].concat());
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let path = text(&drive.path());
    let run = drive.pumice(&[&["serve", &path, "--nbd", "tcp:0.0.0.0:0"], &tls[..]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("--tls-anonymous") && run.stderr.lines().count() == 1, "{run:?}");
    let server = drive.serve(&[&["--nbd", "tcp:localhost:0"], &tls[..]].concat());
    assert!(server.uri().starts_with("nbds://localhost:"), "{}", server.uri());
    let info = succeed("nbdinfo", &[&format!("{}?tls-certificates={}", server.uri(), authority.display())]);
    assert!(info.contains("with TLS"), "{info}");
    let plain = in_time("nbdinfo", &[server.uri().replacen("nbds:", "nbd:", 1)]);
    assert_ne!(plain.code, Some(0), "{plain:?}");
    Ok(())
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &["serve", "x", "--nbd", "http://x"][..],
        &["serve", "x", "--accept-damage"],
        &["serve", "x", "--admin", "tcp:localhost:1"],
        &["serve", "x", "--threads", "0"],
        &["serve", "x", "--tls-cert", "c"],
        &["frobnicate"],
    ] {
        let run = crate::common::pumice(arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{arguments:?}: {run:?}");
    }
}

#[test]
fn what_is_no_drive_is_refused() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("no-drive");
    let path_text = text(&path);
    for prepare in [None, Some(0), Some(64 << 20)] {
        if let Some(len) = prepare {
            std::fs::File::create(&path)?.set_len(len)?;
        }
        for command in ["serve", "status", "check"] {
            let code = if command == "check" { 3 } else { 1 };
            let run = crate::common::pumice(&[command, &path_text]);
            assert_eq!(run.code, Some(code), "{command}: {run:?}");
            let last = run.stderr.lines().last().unwrap_or_default();
            assert!(last.starts_with("pumice: ") && last.contains("no-drive"), "{command}: {run:?}");
        }
    }
    Ok(())
}

/// Returns a full pipe that is not being read, and its other end.
fn full_pipe() -> std::io::Result<(std::io::PipeReader, std::os::fd::OwnedFd)> {
    let (unread, pipe) = std::io::pipe()?;
    let pipe = std::os::fd::OwnedFd::from(pipe);
    let flags = rustix::fs::fcntl_getfl(&pipe)?;
    rustix::fs::fcntl_setfl(&pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
    for len in [1 << 16, 1] {
        while rustix::io::write(&pipe, &vec![b'.'; len]).is_ok() {}
    }
    rustix::fs::fcntl_setfl(&pipe, flags)?;
    Ok((unread, pipe))
}

#[test]
fn a_limit_on_the_size_of_files_ends_no_server() -> Outcome {
    use std::os::unix::process::ExitStatusExt;
    if !needs(&["qemu-io", "bash"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let data = drive.file("data");
    std::fs::write(&data, codec::testdata::random(1, 32 << 20))?;
    let mut command = std::process::Command::new("bash");
    // In units of 1024 bytes.
    let serve = "ulimit -f 16384; exec \"$0\" serve \"$1\"";
    command.args(["-c", serve, env!("CARGO_BIN_EXE_pumice"), &text(&drive.path())]);
    let server = drive.start(command, 1);
    let run = in_time("qemu-io", &["-f", "raw", "-c", &format!("write -s {data} 0 32M"), server.uri()]);
    assert!((run.stdout + &run.stderr).contains("No space left"), "as on a full backing");
    let status = drive.status();
    assert_eq!((&status["state"], &status["backing_full"]), (&"online".into(), &true.into()), "{status}");
    assert_eq!(status["cleaning"]["segments_bad_count"], 0, "{status}");
    assert_eq!(server.stop().signal(), None);
    let log = drive.log();
    assert!(log.contains("files of this process end at 16 MiB; raise that limit (`ulimit -f`"), "{log}");
    // Without the limit, what was there is still there.
    assert_eq!(drive.pumice(&["check", "--deep", &text(&drive.path())]).code, Some(0));
    for (arguments, says) in [
        ("create new --size 64M", "new: cannot be 64 MiB large: files of this process end at 16 MiB"),
        ("set-size drive 128M", "files of this process end at 16 MiB"),
    ] {
        let command = format!("cd \"$1\"; ulimit -f 16384; exec \"$0\" {arguments}");
        let run = in_time("bash", &["-c", &command, env!("CARGO_BIN_EXE_pumice"), &text(drive.folder())]);
        fails(&run, &[says, "LimitFSIZE="]);
    }
    assert!(!std::path::Path::new(&drive.file("new")).exists());
    Ok(())
}

#[test]
fn process_1_reaps_what_commands_leave_behind() -> Outcome {
    let unshare = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    if !needs(&["unshare"]) || in_time("unshare", &[&unshare[..], &["true"]].concat()).code != Some(0) {
        eprintln!("skipped: no namespace of processes can be made here");
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    // The command ends at once, and what it leaves behind a moment later. Its parent is the server then.
    let left = drive.file("left");
    let on_event = format!("(echo $PPID >>{left}; sleep 0.1) &");
    let mut command = std::process::Command::new("unshare");
    command.args(unshare).args(["sh", "-c", &format!("{DROP_COPIES} exec \"$@\""), "sh"]);
    command.args([env!("CARGO_BIN_EXE_pumice"), "serve", &text(&drive.path())]);
    command.args(["--on-event", &on_event]);
    let mut server = drive.start(command, 1);
    wait_until("the command of the event `opened`", || {
        std::fs::read_to_string(&left).is_ok_and(|it| !it.is_empty())
    });
    let root = server.pid();
    let process_1 = || -> Option<String> {
        let children = std::fs::read_to_string(format!("/proc/{root}/task/{root}/children")).ok()?;
        children.split_whitespace().next().map(str::to_string)
    };
    let process_1 = process_1().expect("the server below unshare");
    let children = || std::fs::read_to_string(format!("/proc/{process_1}/task/{process_1}/children"));
    // Children of all threads are those of the first, which adopts orphans.
    wait_until("no child is left", || children().is_ok_and(|children| children.trim().is_empty()));
    let pid = rustix::process::Pid::from_raw(process_1.parse()?).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    // With `unshare`, which waits for it. Until then it may have the file.
    server.wait();
    assert!(drive.log().contains("closed"), "{}", drive.log());
    let run = drive.pumice(&["check", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}

/// Returns whether a server greets clients at the socket. Before its drives are open, a client can connect
/// but gets no greeting.
fn greets(socket: &str) -> bool {
    let mut greeting = [0; 8];
    UnixStream::connect(socket).is_ok_and(|mut client| client.read_exact(&mut greeting).is_ok())
}

#[test]
fn standard_output_that_nobody_reads_stops_no_server() -> Outcome {
    let (_unread, pipe) = full_pipe()?;
    let drive = Drive::create(&["--size", "64M"]);
    let socket = drive.file("nbd");
    let server = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["serve", &text(&drive.path()), "--nbd", &format!("unix:{socket}")])
        .env("PUMICE_RUNTIME_DIR", drive.runtime_dir())
        .stdout(pipe)
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let server = std::cell::RefCell::new(server);
    let ended = || server.borrow_mut().try_wait().is_ok_and(|ended| ended.is_some());
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_until("served", || greets(&socket));
        assert_eq!(drive.status()["state"], "online");
        let pid = rustix::process::Pid::from_child(&server.borrow());
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("running");
        wait_until("ended", ended);
    }));
    // The server must not outlive the test.
    let _ = server.borrow_mut().kill();
    let status = server.borrow_mut().wait()?;
    if let Err(why) = checked {
        std::panic::resume_unwind(why);
    }
    assert!(status.success());
    Ok(())
}

/// The log is on a full disk, or on a pipe that is not being read.
#[test]
fn a_log_that_cannot_be_written_stops_no_server() -> Outcome {
    let full_disk = std::fs::File::options().write(true).open("/dev/full")?;
    let (_unread, pipe) = full_pipe()?;
    for log in [std::process::Stdio::from(full_disk), std::process::Stdio::from(pipe)] {
        let drive = Drive::create(&["--size", "64M"]);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.args(["serve", &text(&drive.path())]).env("PUMICE_LOG", "debug");
        let server = drive.start_logging_to(command, 1, log);
        UnixStream::connect(server.socket())?;
        assert_eq!(drive.status()["state"], "online");
        assert!(server.stop().success());
    }
    Ok(())
}

/// The log shows a request from the client to the pack that contains it.
#[test]
fn a_request_can_be_followed_in_the_log() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["serve", &text(&drive.path())]).env("PUMICE_LOG", "debug");
    let server = drive.start(command, 1);
    succeed("qemu-io", &["-f", "raw", "-c", "write -f -P 9 4k 8k", server.uri()]);
    assert!(server.stop().success());
    let log = drive.log();
    let lines_with = |words: &[&str]| {
        let count = log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        assert!(count > 0, "no line with {words:?}:\n{log}");
    };
    let client = "client{number=";
    let request = "Write { offset: 4096, length: 8192, fua: true }";
    lines_with(&[client, "peer=user ", "transmit{export=", "request{cookie=", request, "request done"]);
    lines_with(&["pack written", "head=Host", "segment="]);
    lines_with(&["medium synced"]);
    lines_with(&["checkpoint committed"]);
}

/// More lines are waiting than fit in the buffer.
#[test]
fn a_stuck_log_does_not_keep_a_server_from_ending() -> Outcome {
    let (_unread, pipe) = full_pipe()?;
    let drive = Drive::create(&["--size", "64M"]);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["serve", &text(&drive.path())]).env("PUMICE_LOG", "trace");
    let server = drive.start_logging_to(command, 1, pipe.into());
    for _ in 0..3000 {
        UnixStream::connect(server.socket())?;
    }
    assert_eq!(drive.status()["state"], "online");
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn the_log_in_a_file_is_coloured_only_by_request() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    for (variables, format, is_coloured) in [
        (&["CLICOLOR_FORCE"][..], "text", true),
        (&["CLICOLOR_FORCE"], "json", false),
        (&["CLICOLOR_FORCE", "NO_COLOR"], "text", false),
        (&[], "text", false),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("serve").arg(drive.path()).args(["--log-format", format]);
        command.env_remove("CLICOLOR").env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR");
        command.envs(variables.iter().map(|name| (name, "1")));
        let before = drive.log().len();
        assert!(drive.start(command, 1).stop().success());
        let log = drive.log().split_off(before);
        assert!(log.contains("stopping"), "{log:?}");
        assert_eq!(log.contains('\u{1b}'), is_coloured, "{variables:?} {format}: {log:?}");
        assert!(!log.contains("panic"), "{log:?}");
    }
    Ok(())
}
