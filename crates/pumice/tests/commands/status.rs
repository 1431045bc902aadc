//! `pumice status`

use std::os::unix::fs::FileExt;

use crate::common::server::text;
use crate::common::{Drive, Outcome, in_time, needs, succeed};

/// Keys that scripts may rely on.
const KEYS: &[&str] = &[
    "path",
    "state",
    "logical_capacity_bytes",
    "physical_size_bytes",
    "logical_used_bytes",
    "physical_used_bytes",
    "physical_reclaimable_bytes",
    "physical_free_bytes",
    "compression_ratio",
    "waf",
    "host_written_bytes",
    "host_read_bytes",
    "physical_written_bytes",
    "physical_read_bytes",
    "out_of_space",
    "backing_full",
];

#[test]
fn idle_and_served() {
    let drive = Drive::create(&["--size", "64M"]);
    let status = drive.status();
    assert_eq!(status["state"], "idle");
    assert!(status["server"].is_null());
    for key in KEYS {
        assert!(!status[key].is_null(), "{key}");
    }
    let server = drive.serve(&[]);
    let status = drive.status();
    assert_eq!(status["state"], "online");
    assert_eq!(status["server"]["pid"], server.pid());
    for key in KEYS {
        assert!(!status[key].is_null(), "{key}");
    }
}

#[test]
fn a_lost_copy_of_the_superblock_is_a_warning_until_the_drive_is_served() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    std::fs::File::options().write(true).open(drive.path())?.write_all_at(&[7; 4096], 0)?;
    let status = drive.status();
    assert_eq!(status["critical_warning"]["names"], serde_json::json!(["reliability"]), "{status}");
    assert_eq!(status["errors"]["copies_not_taken_count"], 1);
    let shown = drive.pumice(&["status", &text(&drive.path())]).stdout;
    assert!(shown.contains("Warning: reliability"), "{shown}");
    assert!(shown.contains("note: a copy of the superblock is missing"), "{shown}");
    assert!(shown.contains("opening the drive for writing restores it"), "{shown}");
    let server = drive.serve(&[]);
    assert_eq!(drive.status()["critical_warning"]["bits"], 0);
    assert!(server.stop().success());
    assert_eq!(drive.status()["critical_warning"]["bits"], 0);
    assert_eq!(drive.status()["errors"]["corrected_reads_count"], 1);
    Ok(())
}

#[test]
fn counts_what_hosts_do() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    succeed(
        "qemu-io",
        &["-f", "raw", "-c", "write -P 3 0 4M", "-c", "read 0 1M", "-c", "flush", server.uri()],
    );
    let status = drive.status();
    assert_eq!(status["host_written_bytes"], 4 << 20);
    assert_eq!(status["logical_used_bytes"], 4 << 20);
    assert!(status["host_read_bytes"].as_u64() >= Some(1 << 20));
    assert!(status["server"]["requests"]["flushes_count"].as_u64() >= Some(1));
    assert_eq!(status["server"]["requests"]["in_flight_count"], 0);
    assert!(server.stop().success());
    assert_eq!(drive.status()["host_written_bytes"], 4 << 20, "counters survive");
}

#[test]
fn for_people() {
    let drive = Drive::create(&["--size", "64M"]);
    let run = drive.pumice(&["status", "--all", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("64.00 MiB") && run.stdout.contains("67108864"), "{}", run.stdout);
}

/// The summary of a drive, served or not, is 15 lines of one kind of units.
#[test]
fn a_summary_unless_all_is_asked_for() {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let path = text(&drive.path());
    for served in [false, true] {
        let _server = served.then(|| drive.serve(&[]));
        let run = drive.pumice(&["status", &path]);
        assert_eq!(run.code, Some(0), "{run:?}");
        // What this machine lacks is noted above them.
        let lines = run.stdout.lines().filter(|line| !line.starts_with("  note: "));
        assert_eq!(lines.count(), 15, "{}", run.stdout);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let capacity = "Provisioned Capacity: 128.00 MiB";
        assert!(run.stdout.lines().any(|line| words(line) == capacity), "{}", run.stdout);
        assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
        let all = drive.pumice(&["status", "--all", &path]).stdout;
        assert!(all.lines().count() > 50, "{all}");
        for text in [&run.stdout, &all] {
            assert!(!text.contains(" GB") && !text.contains(" MB"), "{text}");
        }
        // The full listing contains every line of the summary, apart from elapsed times.
        let word = |line: &str| line.split(':').next().map(str::to_string);
        let words: Vec<Option<String>> = all.lines().map(word).collect();
        assert!(run.stdout.lines().all(|line| words.contains(&word(line))), "{}\n{all}", run.stdout);
    }
    for wrong in [["status", "--all", "--json"], ["status", "--all", "--watch"]] {
        let run = drive.pumice(&wrong);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{run:?}");
    }
}

#[test]
fn begins_with_the_lines_that_administrators_know() {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M", "--endurance", "1GB"]);
    let run = drive.pumice(&["status", "--all", &text(&drive.path())]);
    let value = |word: &str| {
        let line = run.stdout.lines().find(|line| line.trim_start().starts_with(&format!("{word}:")));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_string())
            .unwrap_or_default()
    };
    let serial = drive.status()["serial"].as_str().map(str::to_string);
    assert_eq!(Some(value("Serial Number")), serial);
    for (word, wanted) in [
        ("Model", "Pumice"),
        ("Software Revision", env!("CARGO_PKG_VERSION")),
        ("Atomic Write mode", "ON (256 KiB)"),
        ("Percentage Used", "0% (of 953.67 MiB endurance)"),
        ("Data Written", "0 B"),
        ("Correctable Error Cnt", "0"),
        ("Uncorrectable Error Cnt", "0"),
        ("Device Status", "Good"),
        ("Provisioned Capacity", "128.00 MiB"),
        ("Compression Ratio", "- (nothing stored)"),
        ("Critical Warning", "0"),
    ] {
        assert_eq!(value(word), wanted, "{word} in {}", run.stdout);
    }
    // There is a value, whatever this machine reports about its disks.
    for word in ["Drive Type", "Temperature", "Power Consumption"] {
        assert!(!value(word).is_empty(), "{word} in {}", run.stdout);
    }
}

#[test]
fn latencies_are_those_of_the_requests() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    succeed(
        "qemu-io",
        &["-f", "raw", "-c", "write -P 3 0 64k", "-c", "write -P 4 0 64k", "-c", "flush", server.uri()],
    );
    let latency = &drive.status()["server"]["latency"];
    assert_eq!(latency["write"]["count"], 2);
    assert!(latency["write"]["p99_seconds"].as_f64() > Some(0.0));
    assert!(latency["write"]["p50_seconds"].as_f64() <= latency["write"]["max_seconds"].as_f64());
    assert!(latency["trim"]["p50_seconds"].is_null(), "no request");
    assert_eq!(drive.status()["server"]["latency_recent"]["write"]["count"], 2);
}

#[test]
fn a_damaged_drive_warns() {
    use std::os::unix::fs::FileExt;
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let file = std::fs::File::options().read(true).write(true).open(drive.path()).expect("there");
    let geometry = layout::Geometry::new(64 << 20, None).expect("valid");
    let newest = || {
        let number = |slot| {
            let mut page = [0; 4096];
            file.read_exact_at(&mut page, geometry.checkpoint_offset(slot, 0)).expect("read");
            layout::Checkpoint::decode_summary(&page).ok().map(|checkpoint| checkpoint.number)
        };
        number(0).max(number(1)).expect("a checkpoint")
    };
    // Writes that refer to the newest checkpoint: none was written at idle behind them.
    let written = (0..20).any(|_| {
        let server = drive.serve(&[]);
        let before = newest();
        succeed("qemu-io", &["-f", "raw", "-c", "write -P 3 0 1M", "-c", "flush", server.uri()]);
        server.kill();
        newest() == before
    });
    assert!(written);
    assert_eq!(drive.status()["critical_warning"]["bits"], 0);
    for at in geometry.checkpoint_offsets(newest()) {
        file.write_all_at(&[0xff; 4096], at).expect("written");
    }
    let status = drive.status();
    assert_eq!(status["state"], "damaged", "{status}");
    assert_eq!(status["critical_warning"]["bits"], 0xc);
    assert_eq!(status["critical_warning"]["names"], serde_json::json!(["reliability", "read-only"]));
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| text(&folder.path().join(name));
    std::fs::write(at("text"), "no drive\n".repeat(10_000)).expect("written");
    std::fs::write(at("empty"), "").expect("written");
    std::fs::create_dir(at("dir")).expect("made");
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).expect("linked");
    std::os::unix::fs::symlink(at("loop"), at("loop")).expect("linked");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("bound");
    let long = at(&"x".repeat(300));
    let under_file = at("text/below");
    let paths = ["text", "empty", "dir", "dangling", "loop", "socket", "missing"].map(at);
    for path in paths.iter().chain([&long, &under_file, &"/dev/null".to_string(), &"a\nb".to_string()]) {
        for command in [&["status", path][..], &["status", path, "--json"], &["capacity", path]] {
            let run = crate::common::pumice(command);
            assert_eq!(run.code, Some(1), "{command:?}: {run:?}");
            assert_eq!(run.stderr.lines().count(), 1, "{command:?}: {run:?}");
            assert!(run.stdout.is_empty(), "{command:?}: {run:?}");
        }
    }
    assert_eq!(std::fs::metadata(at("text")).expect("there").len(), 90_000, "nothing was changed");
    for wrong in
        [&["status", "a", "b"][..], &["status", "--jsn"], &["capacity", "a", "b"], &["capacity", "--json=3"]]
    {
        let run = crate::common::pumice(wrong);
        assert_eq!(run.code, Some(2), "{wrong:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{wrong:?}: {run:?}");
    }
}

#[test]
fn without_a_path_only_what_is_served() {
    let drive = Drive::create(&["--size", "64M"]);
    let all = |drive: &Drive| -> serde_json::Value {
        serde_json::from_str(&drive.pumice(&["status", "--json"]).stdout).expect("JSON")
    };
    assert_eq!(all(&drive)["drives"], serde_json::json!([]));
    let server = drive.serve(&[]);
    assert_eq!(all(&drive)["drives"].as_array().map(Vec::len), Some(1));
    // The admin socket is left behind without a server.
    server.kill();
    assert_eq!(all(&drive)["drives"], serde_json::json!([]));
    let left = std::fs::read_dir(drive.folder()).expect("there").flatten();
    assert!(!left.into_iter().any(|entry| entry.path().extension().is_some_and(|it| it == "sock")));
}

#[test]
fn a_further_admin_socket() {
    let drive = Drive::create(&["--size", "64M"]);
    let admin = drive.file("admin");
    let _server = drive.serve(&["--admin", &format!("unix:{admin}")]);
    let answer = ask::ask_status(std::path::Path::new(&admin)).expect("an answer");
    assert_eq!(answer.drives.len(), 1);
}

/// Also if the mode of the socket lets them in.
#[test]
fn other_users_get_no_answer_from_an_admin_socket() -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    const NOBODY: &str = "65534";
    if !needs(&["setpriv", "curl"]) {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can act as another user");
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let admin = drive.file("admin");
    let _server = drive.serve(&["--admin", &format!("unix:{admin}")]);
    for (path, mode) in [(drive.folder(), 0o755), (std::path::Path::new(&admin), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    // The answer is an error, as this is not a request that it knows.
    let ask = ["curl", "-s", "--http0.9", "--max-time", "2", "--unix-socket", &admin, "http://localhost/"];
    let as_user = |user: &str| in_time("setpriv", &[&["--reuid", user, "--clear-groups"], &ask[..]].concat());
    assert!(as_user("0").stdout.contains("\"error\""), "{:?}", as_user("0"));
    assert_eq!(as_user(NOBODY).stdout, "");
    let log = drive.log();
    assert!(log.contains("another user") && log.contains(NOBODY), "{log}");
    Ok(())
}

/// Each of them takes as long as a server may take to answer. Asked in turn, they would take minutes.
#[test]
fn sockets_that_do_not_answer_do_not_hide_a_drive() -> Outcome {
    use std::os::unix::net::UnixListener;
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let folder = drive.runtime_dir();
    let silent: Vec<UnixListener> = (0..20)
        .map(|number| UnixListener::bind(folder.join(format!("down-9{number}.sock"))))
        .collect::<Result<_, _>>()?;
    assert_eq!(drive.status()["state"], "online");
    assert!(folder.join("down-90.sock").exists(), "somebody listens");
    drop(silent);
    assert_eq!(drive.status()["state"], "online");
    let left = std::fs::read_dir(&folder)?.count();
    assert_eq!(left, 1, "the others are dead");
    Ok(())
}

/// A server has bound the socket but does not listen yet. It holds the lock of the directory until then.
#[test]
fn a_socket_that_is_not_listened_at_yet_is_not_removed() -> Outcome {
    use std::os::unix::fs::DirBuilderExt as _;

    use rustix::fs::{FlockOperation, flock};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let drive = Drive::create(&["--size", "64M"]);
    let folder = drive.runtime_dir();
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let path = folder.join("down-7.sock");
    let guard = std::fs::File::open(&folder)?;
    flock(&guard, FlockOperation::LockExclusive)?;
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
    assert_eq!(drive.status()["state"], "idle");
    assert!(path.exists());
    // Now the socket is stale.
    drop(guard);
    assert_eq!(drive.status()["state"], "idle");
    assert!(!path.exists());
    Ok(())
}
