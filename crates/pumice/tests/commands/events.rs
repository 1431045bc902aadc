//! Events of a served drive in its log, its status and the command of `--on-event`.

use std::time::Duration;

use crate::common::server::{text, wait_until};
use crate::common::{Drive, in_time, needs, pumice, succeed};

/// Polls the status until it satisfies `until`, up to a limit.
fn wait(drive: &Drive, until: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    for _ in 0..600 {
        let status = drive.status_of_server();
        if until(&status) {
            return status;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("this never came about: {}", drive.status_of_server());
}

fn count(status: &serde_json::Value, event: &str) -> Option<u64> {
    let counts = status["server"]["events"]["counts"].as_array()?;
    counts.iter().find(|count| count["event"] == event)?["count"].as_u64()
}

/// Returns a file of incompressible data, from a generator with a fixed seed.
fn random_file(drive: &Drive, mib: usize) -> String {
    let path = drive.file("random");
    std::fs::write(&path, codec::testdata::random(7, mib << 20)).expect("written");
    path
}

#[test]
fn a_drive_that_fills_and_is_trimmed_tells_each_level_once() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let (random, out) = (random_file(&drive, 30), drive.file("events"));
    let command = format!(r#"echo "$PUMICE_EVENT $PUMICE_LEVEL_PERCENT $PUMICE_DRIVE" >> {out}"#);
    let server = drive.serve(&["--warn-at", "10,50", "--on-event", &command, "--log-format", "json"]);
    let write = format!("write -s {random} 0 30M");
    succeed("qemu-io", &["-f", "raw", "-c", &write, "-c", "flush", server.uri()]);
    let status = wait(&drive, |status| count(status, "space-warning") == Some(2));
    assert_eq!(status["server"]["events"]["warn_at_percent"], serde_json::json!([10, 50]));
    assert_eq!(status["critical_warning"]["bits"], 1, "the highest level is reached");
    succeed("qemu-io", &["-f", "raw", "-d", "unmap", "-c", "discard 0 30M", "-c", "flush", server.uri()]);
    wait(&drive, |status| count(status, "space-warning-over") == Some(2));
    assert!(server.stop().success());
    let path = text(&drive.path());
    let events = std::fs::read_to_string(out).expect("the command ran");
    let wanted = [
        "opened ",
        "space-warning 10",
        "space-warning 50",
        "space-warning-over 50",
        "space-warning-over 10",
        "closed ",
    ];
    assert_eq!(events.lines().collect::<Vec<_>>(), wanted.map(|event| format!("{event} {path}")));
    // The log has the same events, as one JSON object per line.
    let log = std::fs::read_to_string(drive.file("log")).expect("a log");
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let logged: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(logged, wanted.map(|event| event.split(' ').next().unwrap_or_default()));
    let warning = lines.iter().find(|line| line["level_percent"] == 50).expect("a warning");
    assert_eq!((&warning["level"], &warning["drive"]), (&"WARN".into(), &path.into()));
}

#[test]
fn a_full_drive_says_so() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let (random, out) = (random_file(&drive, 60), drive.file("events"));
    let command = format!(r#"[ "$PUMICE_EVENT" != out-of-space ] || echo "$PUMICE_MESSAGE" > {out}"#);
    let server = drive.serve(&["--on-event", &command]);
    for mib in 0..60 {
        // One of these writes is expected to be refused.
        let part = format!("write -s {random} {mib}M 1M");
        let run = crate::common::in_time("qemu-io", &["-f", "raw", "-c", &part, server.uri()]);
        if run.code != Some(0) {
            break;
        }
    }
    let status = wait(&drive, |status| count(status, "out-of-space") == Some(1));
    assert!(status["server"]["requests"]["no_space_count"].as_u64() >= Some(1), "{status}");
    assert_eq!(count(&status, "space-warning"), Some(3));
    assert!(status["server"]["latency"]["write"]["count"].as_u64() >= Some(1));
    assert!(server.stop().success());
    let events = std::fs::read_to_string(out).expect("the command ran");
    assert!(events.starts_with("out of physical space"), "{events}");
}

#[test]
fn a_command_that_fails_hurts_nobody() {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&["--on-event", "exit 7"]);
    assert!(server.stop().success());
    let log = std::fs::read_to_string(drive.file("log")).expect("a log");
    assert!(log.contains("exit status: 7"), "{log}");
    assert_eq!(drive.status()["recovery"]["clean"], true);
}

#[test]
fn a_command_does_not_get_the_secrets_of_the_server() {
    let drive = Drive::create(&["--size", "64M"]);
    let out = drive.file("environment");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"));
    let hook = format!("[ $PUMICE_EVENT != opened ] || env > {out}");
    command.args(["serve", &crate::common::server::text(&drive.path()), "--on-event", &hook]);
    command.env("AWS_SECRET_ACCESS_KEY", "secret").env("LC_TIME", "C").env("TZ", "Asia/Tokyo");
    let server = drive.start(command, 1);
    assert!(server.stop().success());
    let environment = std::fs::read_to_string(out).expect("the command ran");
    assert!(!environment.contains("secret"), "{environment}");
    for kept in ["PATH=", "LC_TIME=C", "TZ=Asia/Tokyo", "PUMICE_EVENT=opened", "PUMICE_RUNTIME_DIR="] {
        assert!(environment.lines().any(|line| line.starts_with(kept)), "{kept}: {environment}");
    }
}

#[test]
fn a_read_only_drive_is_no_warning() {
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&["--read-only"]);
    let status = drive.status();
    assert_eq!((&status["state"], &status["critical_warning"]["bits"]), (&"read-only".into(), &0.into()));
}

#[test]
fn wrong_levels_and_formats_are_wrong_usage() {
    for arguments in [
        ["--warn-at", "101"],
        ["--warn-at", "90,80"],
        ["--warn-at", ""],
        ["--warn-at", "80%"],
        ["--log-format", "xml"],
    ] {
        let run = pumice(&[&["serve", "x"], &arguments[..]].concat());
        assert_eq!(run.code, Some(2), "{arguments:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{arguments:?}: {run:?}");
    }
}

#[test]
fn commands_get_no_descriptors() {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let out = drive.file("descriptors");
    let command = format!(r#"set -- /proc/$$/fd/*; echo "$PUMICE_EVENT" "$@" >> {out}"#);
    // A wrapper that holds a lock by a descriptor, and a configuration in another one.
    let config = |more: &str| format!("[[drive]]\npath = \"{}\"\n{more}", text(&drive.path()));
    drive.write_config(&config(&format!("on-event = {command:?}\n")));
    let lock = drive.file("lock");
    let mut shell = std::process::Command::new("sh");
    let started = r#"exec 8<"$2" 9>"$3"; flock 9; exec "$1" serve --config /dev/fd/8"#;
    let (program, file) = (env!("CARGO_BIN_EXE_pumice"), drive.file("pumice.toml"));
    shell.args(["-c", started, "sh", program, &file, &lock]);
    let server = drive.start(shell, 1);
    wait_until("the command", || std::fs::read_to_string(&out).is_ok_and(|text| text.ends_with('\n')));
    let locked = std::fs::File::open(&lock).expect("the lock").try_lock();
    assert!(
        matches!(locked, Err(std::fs::TryLockError::WouldBlock)),
        "the wrapper's lock is held: {locked:?}"
    );
    drive.reload(&server, &config("background-cpu = 7\n"));
    assert!(!drive.log().contains("configuration not taken"), "{}", drive.log());
    assert!(server.stop().success());
    let found = std::fs::read_to_string(out).expect("the command ran");
    for line in found.lines() {
        let numbers =
            line.split(' ').skip(1).map(|path| path.rsplit('/').next().expect("a name").parse::<u32>());
        // Its own are the standard ones and the directory that it lists.
        assert!(numbers.clone().count() >= 3 && numbers.flatten().all(|number| number <= 3), "{found}");
    }
}

#[test]
fn a_backing_that_is_truncated_is_reported_until_it_is_whole_again() {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let server = drive.serve(&["--log-format", "json"]);
    let backing = std::fs::File::options().write(true).open(drive.path()).expect("the backing");
    let length = backing.metadata().expect("its length").len();
    assert_eq!(drive.status()["backing"]["missing_bytes"], 0);
    backing.set_len(length - (8 << 20)).expect("truncated");
    let status = wait(&drive, |status| count(status, "backing-truncated") == Some(1));
    assert_eq!(status["backing"]["missing_bytes"], 8 << 20, "{status}");
    assert_eq!(status["critical_warning"]["names"], serde_json::json!(["reliability", "backing-truncated"]));
    backing.set_len(length).expect("as long as before");
    let status = wait(&drive, |status| count(status, "backing-restored") == Some(1));
    assert_eq!(
        (&status["backing"]["missing_bytes"], &status["critical_warning"]["bits"]),
        (&0.into(), &0.into())
    );
    // Growth is none of these.
    assert_eq!(drive.pumice(&["set-size", &text(&drive.path()), "96M"]).code, Some(0));
    let status = wait(&drive, |status| status["physical_size_bytes"].as_u64() == Some(96 << 20));
    assert_eq!(count(&status, "backing-truncated"), Some(1), "{status}");
    assert!(server.stop().success());
    let log = std::fs::read_to_string(drive.file("log")).expect("a log");
    assert!(log.contains("the backing was truncated: 8388608 bytes"), "{log}");
}

/// A bit that flips where an opening reads the log costs what it hits, and is told at once.
#[test]
fn damage_that_an_opening_meets_in_the_log_is_reported() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M", "--parity", "none"]);
    let random = random_file(&drive, 1);
    let write = format!("write -s {random} 0 1M");
    // What is flushed later says that the first was durable.
    let later = ["-c", "write 2M 4k", "-c", "flush", "-c", "write 3M 4k", "-c", "flush"];
    let leaves_it_in_the_log = || {
        let server = drive.serve(&[]);
        let flushed = [&["-f", "raw", "-c", &write, "-c", "flush"], &later[..], &[server.uri()]].concat();
        succeed("qemu-io", &flushed);
        server.kill();
        // A checkpoint may have come in between.
        let run = drive.pumice(&["status", &text(&drive.path()), "--json"]);
        let status: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        status["drives"][0]["recovery"]["log_bytes"].as_u64() >= Some(1 << 20)
    };
    assert!((0..5).any(|_| leaves_it_in_the_log()), "checkpoints follow each other");
    let mut backing = std::fs::read(drive.path()).expect("the backing");
    let data = &std::fs::read(&random).expect("the data")[20 * 4096..][..64];
    // Earlier copies are dead.
    let found: Vec<_> =
        (0..backing.len() - data.len()).filter(|at| backing[*at..].starts_with(data)).collect();
    assert!(!found.is_empty(), "stored as it is");
    found.iter().for_each(|at| backing[at + 5] ^= 1);
    std::fs::write(drive.path(), backing).expect("written");

    let server = drive.serve(&[]);
    let status = wait(&drive, |status| count(status, "corrupt-record") == Some(1));
    assert_eq!(status["state"], "online");
    assert_eq!(status["errors"]["corrupt_records_count"], 1, "{status}");
    let read = |range| in_time("qemu-io", &["-f", "raw", "-c", &format!("read {range}"), server.uri()]).code;
    assert_eq!((read("0 80k"), read("80k 4k"), read("84k 940k")), (Some(0), Some(1), Some(0)));
    assert!(server.stop().success());
}

/// Returns the first line of an output that contains a word.
fn line_with<'a>(output: &'a str, word: &str) -> &'a str {
    output.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {output}"))
}

#[test]
fn a_backing_that_is_renamed_or_replaced_is_reported_until_it_is_back() {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let server = drive.serve(&["--log-format", "json"]);
    let (path, away) = (drive.path(), drive.file("away"));
    let at = |place: &'static str| wait(&drive, |status| status["backing"]["place"] == place);
    let status = at("in-place");
    assert_eq!(status["critical_warning"]["bits"], 0, "{status}");
    std::fs::rename(&path, &away).expect("renamed");
    let status = at("moved");
    assert_eq!(status["critical_warning"]["names"], serde_json::json!(["backing-moved"]));
    assert_eq!(status["backing"]["kind"], "file", "{status}");
    let shown = drive.pumice(&["status"]).stdout;
    assert!(line_with(&shown, "warning:").contains("nothing is at the path"), "{shown}");
    std::fs::write(&path, "another").expect("replaced");
    at("replaced");
    let shown = drive.pumice(&["list"]).stdout;
    assert!(line_with(&shown, "online").contains("its path leads to another file"), "{shown}");
    std::fs::rename(&away, &path).expect("back");
    let status = at("in-place");
    assert_eq!(status["critical_warning"]["bits"], 0, "{status}");
    let status = wait(&drive, |status| count(status, "backing-found") == Some(1));
    assert_eq!((count(&status, "backing-moved"), count(&status, "backing-deleted")), (Some(2), Some(0)));
    assert!(server.stop().success());
}

#[test]
fn a_backing_that_is_deleted_is_reported_and_served_until_the_end() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let out = drive.file("events");
    let command = format!(r#"[ "$PUMICE_EVENT" != backing-deleted ] || echo "$PUMICE_MESSAGE" > {out}"#);
    let server = drive.serve(&["--on-event", &command, "--log-format", "json"]);
    let write = |pattern: &str| {
        let (write, read) = (format!("write -P {pattern} 0 1M"), format!("read -P {pattern} 0 1M"));
        succeed("qemu-io", &["-f", "raw", "-c", &write, "-c", "flush", "-c", &read, server.uri()]);
    };
    write("1");
    let path = drive.path();
    std::fs::remove_file(&path).expect("deleted");
    let status = wait(&drive, |status| count(status, "backing-deleted") == Some(1));
    assert_eq!((&status["state"], &status["backing"]["place"]), (&"online".into(), &"deleted".into()));
    assert_eq!(status["critical_warning"]["names"], serde_json::json!(["reliability", "backing-deleted"]));
    let shown = drive.pumice(&["status"]).stdout;
    assert!(line_with(&shown, "warning:").contains("do not stop or restart"), "{shown}");
    assert!(line_with(&shown, "Device Status").contains("backing-deleted"), "{shown}");
    let shown = drive.pumice(&["list"]).stdout;
    assert!(line_with(&shown, "online").contains("its backing was deleted"), "{shown}");
    // Another file there does not bring it back.
    std::fs::write(&path, "another").expect("replaced");
    write("2");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(drive.status_of_server()["backing"]["place"], "deleted");
    assert!(server.stop().success());
    let event = std::fs::read_to_string(out).expect("the command ran");
    assert!(event.starts_with("the backing was deleted"), "{event}");
    let log = drive.log();
    let line: serde_json::Value = serde_json::from_str(line_with(&log, "backing-deleted")).expect("JSON");
    assert_eq!(line["level"], "ERROR");
}
