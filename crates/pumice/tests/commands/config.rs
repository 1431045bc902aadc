//! `pumice serve` with a configuration file, and its reload.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, fails, needs, succeed};

/// Creates another drive beside the first.
fn create(drive: &Drive, name: &str, size: &str) -> PathBuf {
    let path = drive.folder().join(name);
    let run = drive.pumice(&["create", &text(&path), "--size", size, "--capacity", size]);
    assert_eq!(run.code, Some(0), "{run:?}");
    path
}

fn table(path: &Path, more: &str) -> String {
    format!("[[drive]]\npath = \"{}\"\n{more}\n", path.display())
}

/// Returns the lines that offer all drives at one socket.
fn socket(drive: &Drive, name: &str) -> String {
    format!("[server]\nnbd = [\"unix:{}\"]\n", drive.file(name))
}

fn uri(drive: &Drive, name: &str, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", drive.file(name))
}

/// Returns the file names of the drives that are served, without those that are down.
fn served(drive: &Drive) -> Vec<String> {
    let run = drive.pumice(&["status", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    let drives = answer["drives"].as_array().expect("drives");
    let name = |drive: &serde_json::Value| {
        let path = Path::new(drive["path"].as_str().expect("a path")).to_path_buf();
        path.file_name().expect("a file").to_string_lossy().into_owned()
    };
    let up = drives.iter().filter(|drive| drive["state"] != "down");
    let mut names: Vec<String> = up.map(name).collect();
    names.sort();
    names
}

fn set_mode(path: &str, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn serves_what_the_file_says() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let second = create(&drive, "second", "32M");
    let config = socket(&drive, "all")
        + &table(&drive.path(), "name = \"first\"\nmap-cache = \"7M\"\nwrite-cache = false")
        + &table(&second, &format!("nbd = [\"unix:{}\"]\nread-only = true", drive.file("own")));
    let server = drive.serve_config(&config, 3);
    let list = succeed("nbdinfo", &["--list", &uri(&drive, "all", "")]);
    assert!(list.contains("export=\"first\"") && list.contains("export=\"second\""), "{list}");
    let own = succeed("nbdinfo", &["--list", &uri(&drive, "own", "")]);
    assert!(!own.contains("export=\"first\"") && own.contains("is_read_only: true"), "{own}");
    let status = drive.status();
    assert_eq!(status["map_cache"]["budget_bytes"], 7 << 20);
    assert_eq!(status["write_cache"], false);
    assert!(server.stop().success());
}

#[test]
fn the_command_line_beats_the_file() {
    let drive = Drive::create(&["--size", "64M"]);
    drive.write_config(&table(&drive.path(), "map-cache = \"7M\"\nwrite-cache = false"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["serve", "--config", &drive.file("pumice.toml"), "--map-cache", "9M"]);
    let _server = drive.start(command, 1);
    assert_eq!(drive.status()["map_cache"]["budget_bytes"], 9 << 20);
    assert_eq!(drive.status()["write_cache"], false);
}

#[test]
fn without_path_and_config_the_default_file_counts() {
    let drive = Drive::create(&["--size", "64M"]);
    drive.write_config(&table(&drive.path(), ""));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.arg("serve").env("PUMICE_CONFIG", drive.file("pumice.toml"));
    let server = drive.start(command, 1);
    assert_eq!(server.socket(), drive.folder().join("drive.nbd"));
}

#[test]
fn a_bad_file_is_refused_with_its_line() {
    let drive = Drive::create(&["--size", "64M"]);
    drive.write_config(&table(&drive.path(), "speed = 11"));
    let run = drive.pumice(&["serve", "--config", &drive.file("pumice.toml")]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    let file = drive.file("pumice.toml");
    assert!(run.stderr.contains(&format!("{file}:3: drive[0].speed: unknown field")), "{run:?}");
    let run = drive.pumice(&["serve", "--config", &drive.file("none.toml")]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("none.toml") && run.stderr.lines().count() == 1, "{run:?}");
}

#[test]
fn what_other_users_can_change_is_refused() {
    let drive = Drive::create(&["--size", "64M"]);
    let (file, program) = (drive.file("pumice.toml"), drive.file("notify"));
    let plain = table(&drive.path(), "");
    let hooked = table(&drive.path(), &format!("on-event = \"{program} now\""));
    std::fs::write(&program, "#!/bin/sh\n").expect("a program");
    for (config, odd) in [(&plain, &file), (&hooked, &program)] {
        drive.write_config(config);
        set_mode(odd, 0o666);
        let run = drive.pumice(&["serve", "--config", &file]);
        fails(&run, &[odd, "writable by every user (mode 666)"]);
        set_mode(odd, 0o644);
        let server = drive.serve_config(config, 1);
        set_mode(odd, 0o646);
        let asked = drive.log().lines().count();
        server.ask_to_reload();
        wait_until("the reload", || drive.log().lines().count() > asked);
        let log = drive.log();
        assert!(log.contains("nothing changed: ") && log.contains("(mode 646)"), "{log}");
        assert_eq!(served(&drive), ["drive"]);
        set_mode(odd, 0o644);
        assert!(server.stop().success());
    }
}

#[test]
fn a_drive_that_cannot_be_opened_does_not_keep_the_others_and_comes_with_a_reload() {
    let drive = Drive::create(&["--size", "64M"]);
    let later = drive.folder().join("later");
    let config = table(&later, "") + &table(&drive.path(), "");
    let server = drive.serve_config(&config, 1);
    assert_eq!(served(&drive), ["drive"]);
    let said = drive.log();
    assert!(said.contains("not served: ") && said.contains("/later"), "{said}");
    create(&drive, "later", "32M");
    drive.reload(&server, &config);
    assert_eq!(served(&drive), ["drive", "later"]);
    UnixStream::connect(drive.file("later.nbd")).expect("its socket");
    assert!(server.stop().success());
}

#[test]
fn without_any_drive_that_can_be_opened_it_fails() {
    let drive = Drive::create(&["--size", "64M"]);
    drive.write_config(&table(&drive.folder().join("none"), ""));
    let run = drive.pumice(&["serve", "--config", &drive.file("pumice.toml")]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.lines().last().unwrap_or_default().starts_with("pumice: "), "{run:?}");
}

#[test]
fn a_reload_with_a_bad_file_changes_nothing_and_says_so_once() {
    let drive = Drive::create(&["--size", "64M"]);
    let second = create(&drive, "second", "32M");
    let good = socket(&drive, "all") + &table(&drive.path(), "") + &table(&second, "");
    let server = drive.serve_config(&good, 2);
    let taken = std::os::unix::net::UnixListener::bind(drive.folder().join("taken")).expect("bound");
    let cases = [
        ("[[drive]\n".to_string(), ":1: "),
        (table(&drive.path(), "speed = 11"), ":3: drive[0].speed"),
        (String::new(), "no drive to serve"),
        (good.clone() + &table(&second, "name = \"third\""), "listed twice"),
        (socket(&drive, "taken") + &table(&drive.path(), ""), "another server is listening"),
        (good.clone() + "[server.tls]\ncert = \"/none\"\nkey = \"/none\"\n", "/none"),
        (
            socket(&drive, "all").replace("\"]", "\", \"tcp:0.0.0.0:0\"]") + &table(&drive.path(), ""),
            "configure TLS",
        ),
    ];
    for (config, what) in cases {
        let before = drive.log().lines().count();
        drive.reload(&server, &config);
        let log = drive.log();
        let said: Vec<&str> = log.lines().skip(before).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("nothing changed: ") && said[0].contains(what), "{what}: {said:?}");
        assert_eq!(served(&drive), ["drive", "second"]);
        UnixStream::connect(drive.file("all")).expect("still there");
    }
    drop(taken);
    assert!(server.stop().success());
}

#[test]
fn a_removed_drive_is_closed_properly_and_its_socket_goes() {
    let drive = Drive::create(&["--size", "64M"]);
    let second = create(&drive, "second", "32M");
    let server = drive.serve_config(&(table(&drive.path(), "") + &table(&second, "")), 2);
    let idle = UnixStream::connect(drive.file("drive.nbd")).expect("a client");
    drive.reload(&server, &table(&second, ""));
    assert_eq!(served(&drive), ["second"]);
    wait_until("the socket is gone", || !drive.folder().join("drive.nbd").exists());
    assert_eq!(drive.status()["state"], "idle");
    assert_eq!(drive.status()["recovery"]["clean"], true);
    drop(idle);
    // Adds the drive again.
    drive.reload(&server, &(table(&drive.path(), "") + &table(&second, "")));
    assert_eq!(served(&drive), ["drive", "second"]);
    UnixStream::connect(drive.file("drive.nbd")).expect("its socket");
    assert!(server.stop().success());
}

#[test]
fn addresses_and_names_change_while_it_runs() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let second = create(&drive, "second", "32M");
    let names = |first: &str, other: &str| {
        table(&drive.path(), &format!("name = \"{first}\"")) + &table(&second, &format!("name = \"{other}\""))
    };
    let server = drive.serve_config(&(socket(&drive, "one") + &names("a", "b")), 2);
    let size = |socket: &str, export: &str| {
        succeed("nbdinfo", &["--size", &uri(&drive, socket, export)]).trim().to_string()
    };
    assert_eq!(size("one", "a"), (64 << 20).to_string());
    // The drives swap names and move to another socket.
    drive.reload(&server, &(socket(&drive, "two") + &names("b", "a")));
    assert_eq!(size("two", "a"), (32 << 20).to_string());
    assert_eq!(size("two", "b"), (64 << 20).to_string());
    wait_until("the old socket is gone", || !drive.folder().join("one").exists());
    // Without a common address, each drive has its own.
    drive.reload(&server, &names("b", "a"));
    assert_eq!(size("second.nbd", ""), (32 << 20).to_string());
    assert!(server.stop().success());
}

#[test]
fn the_http_port_comes_and_goes_and_knows_drives_that_come_later() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let second = create(&drive, "second", "32M");
    let server = drive.serve_config(&table(&drive.path(), ""), 1);
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let http = format!("[server]\nhttp = \"127.0.0.1:{port}\"\n");
    let metrics = || -> std::io::Result<String> {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    drive.reload(&server, &(http.clone() + &table(&drive.path(), "")));
    let answer = metrics()?;
    assert!(answer.contains("/drive\"") && !answer.contains("/second\""), "{answer}");
    drive.reload(&server, &(http + &table(&drive.path(), "") + &table(&second, "")));
    assert!(metrics()?.contains("/second\""));
    drive.reload(&server, &table(&drive.path(), ""));
    assert!(metrics().is_err());
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn what_can_change_at_once_does_and_the_rest_waits_for_its_clients() {
    if !needs(&["nbdinfo", "/usr/bin/python3"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve_config(&table(&drive.path(), ""), 1);
    let changed = table(&drive.path(), "map-cache = \"5M\"\nwrite-cache = false");
    let client = "import nbd, sys\nh = nbd.NBD(); h.connect_uri(sys.argv[1]); print('in', flush=True); \
        sys.stdin.read()\n\
        h.pwrite(b'x' * 512, 0)\n";
    if crate::common::in_time("/usr/bin/python3", &["-c", "import nbd"]).code != Some(0) {
        eprintln!("skipped: python3-libnbd is not installed");
        return;
    }
    let mut client = Command::new("/usr/bin/python3")
        .args(["-c", client, server.uri()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python");
    let mut line = String::new();
    let stdout = client.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("connected");
    drive.reload(&server, &changed);
    assert_eq!(drive.status()["map_cache"]["budget_bytes"], 5 << 20);
    assert_eq!(drive.status()["write_cache"], true);
    assert!(drive.log().contains("write-cache changed: takes effect when"), "{}", drive.log());
    drop(client.stdin.take());
    assert!(client.wait().expect("ended").success(), "the client was not disturbed");
    wait_until("nobody is connected", || {
        drive.reload(&server, &changed);
        drive.status()["write_cache"] == false
    });
    assert_eq!(drive.status()["map_cache"]["budget_bytes"], 5 << 20);
    succeed("nbdinfo", &[server.uri()]);
    assert!(server.stop().success());
}

#[test]
fn what_needs_a_restart_is_reported_and_stays() {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve_config(&table(&drive.path(), ""), 1);
    let admin = format!("unix:{}", drive.file("admin"));
    let config = format!("[server]\nthreads = 3\nio = \"plain\"\nadmin = \"{admin}\"\ninsecure = true\n");
    let config =
        config + "handshake-timeout = 9\nstall-timeout = 9\nidle-timeout = 9\nrequest-memory = \"64M\"\n";
    for _ in 0..2 {
        drive.reload(&server, &(config.clone() + &table(&drive.path(), "")));
    }
    let log = drive.log();
    let limits = ["handshake-timeout", "stall-timeout", "idle-timeout", "request-memory"];
    for key in [&["threads", "io", "admin", "insecure"][..], &limits].concat() {
        let told = format!("server.{key} changed: takes effect when the server is restarted");
        assert_eq!(log.matches(&told).count(), 2, "{key}: {log}");
    }
    assert!(!drive.folder().join("admin").exists());
    assert!(server.stop().success());
}

#[test]
fn sighup_without_a_file_ends_nothing() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    server.ask_to_reload();
    wait_until("the log", || drive.log().contains("started without a configuration file"));
    UnixStream::connect(server.socket())?;
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_reload_opens_no_drive_to_anyone_on_the_network() {
    if !needs(&["openssl"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let (cert, key) = (drive.file("cert"), drive.file("key"));
    let request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    succeed("openssl", &[&request[..], &names[..], &["-keyout", &key, "-out", &cert]].concat());
    let tls = format!("[server.tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n");
    let drives = table(&drive.path(), "");
    let good = socket(&drive, "all") + &tls + &format!("ca = \"{cert}\"\n") + &drives;
    set_mode(&key, 0o644);
    let server = drive.serve_config(&good, 1);
    assert!(drive.log().contains("every user of this machine can read the key"), "{}", drive.log());
    let public = socket(&drive, "all").replace("\"]", "\", \"tcp:0.0.0.0:0\"]");
    // Settings that need a restart do not help.
    for public in [public.clone(), public + "tls-anonymous = true\n"] {
        let before = drive.log().len();
        drive.reload(&server, &(public + &tls + &drives));
        let log = drive.log();
        assert!(
            log[before..].contains("nothing changed: ") && log[before..].contains("--tls-anonymous"),
            "{log}"
        );
    }
    assert!(server.stop().success());
}

#[test]
fn the_service_manager_is_notified() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let socket = std::os::unix::net::UnixDatagram::bind(drive.folder().join("notify"))?;
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60)))?;
    drive.write_config(&table(&drive.path(), ""));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command
        .args(["serve", "--config", &drive.file("pumice.toml")])
        .env("NOTIFY_SOCKET", drive.file("notify"));
    let server = drive.start(command, 1);
    let heard = || -> Outcome<String> {
        let mut buf = [0; 256];
        let len = socket.recv(&mut buf)?;
        Ok(String::from_utf8(buf[..len].to_vec())?)
    };
    assert_eq!(heard()?, "READY=1\nSTATUS=serving 1 drive");
    server.ask_to_reload();
    assert!(heard()?.starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(heard()?, "READY=1\nSTATUS=serving 1 drive");
    assert!(server.stop().success());
    assert_eq!(heard()?, "STOPPING=1");
    Ok(())
}
