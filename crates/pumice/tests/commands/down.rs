//! A configured drive that cannot be opened. It is reported as down everywhere, until a reload opens it.

use serde_json::Value;

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, in_time, needs, succeed};

/// Returns a configuration with a missing and an existing drive.
fn config(drive: &Drive, more: &str) -> String {
    let table = |path: &str| format!("[[drive]]\npath = \"{path}\"\n");
    format!("[server]\n{more}\n{}{}", table(&drive.file("later")), table(&text(&drive.path())))
}

/// Returns the drives that `pumice status` reports.
fn statuses(drive: &Drive) -> Vec<Value> {
    let run = drive.pumice(&["status", "--json"]);
    let answer: Value = serde_json::from_str(&run.stdout).expect("JSON");
    answer["drives"].as_array().expect("drives").clone()
}

#[test]
fn a_drive_that_cannot_be_opened_is_down_until_a_reload_opens_it() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let events = drive.file("events");
    let hook = format!(
        "on-event = 'echo \"$PUMICE_EVENT $PUMICE_DRIVE $PUMICE_ID:$PUMICE_USED_PERCENT:$PUMICE_MESSAGE\" >> {events}'"
    );
    let server = drive.serve_config(&config(&drive, &hook), 1);
    let (up, down) = (text(&drive.path()), drive.file("later"));

    let all = statuses(&drive);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!((&all[0]["path"], &all[0]["state"]), (&up.as_str().into(), &"online".into()));
    assert_eq!((&all[1]["path"], &all[1]["state"]), (&down.as_str().into(), &"down".into()));
    let reason = all[1]["state_reason"].as_str().expect("a reason");
    assert!(reason.contains("o such file"), "{reason}");
    assert_eq!(all[1]["server"]["pid"], server.pid());
    let counts = all[1]["server"]["events"]["counts"].as_array().expect("events");
    assert!(counts.contains(&serde_json::json!({"event": "open-failed", "count": 1})), "{counts:?}");

    // Status by the path of a file that does not exist, as text.
    let run = drive.pumice(&["status", &down]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.starts_with(&format!("{down}  down: ")) && run.stdout.contains("SIGHUP"), "{run:?}");
    // Scripts that read the space must not get invented numbers.
    let run = drive.pumice(&["capacity"]);
    assert_eq!(run.stdout.lines().count(), 2, "{run:?}");
    assert!(run.stderr.starts_with(&format!("pumice: warning: {down}: down: ")), "{run:?}");
    assert_eq!(drive.pumice(&["capacity", &down]).code, Some(1));
    // Changes do not reach a server that has not opened the drive.
    let run = drive.pumice(&["set-capacity", &down, "1G"]);
    assert!(run.code == Some(1) && run.stderr.contains("o such file"), "{run:?}");

    let log = drive.log();
    let line = log.lines().find(|line| line.contains("open-failed")).unwrap_or_default();
    assert!(line.contains("ERROR") && line.contains(&down) && line.contains("not served: "), "{log}");
    let hooked = || std::fs::read_to_string(&events).unwrap_or_default();
    wait_until("the command", || hooked().contains("open-failed"));
    assert!(hooked().contains(&format!("open-failed {down} ::not served: ")), "{}", hooked());

    // A second failed reload is another event. A successful one ends the state.
    server.ask_to_reload();
    wait_until("the second attempt", || {
        statuses(&drive)[1]["server"]["events"]["recent"].as_array().map(Vec::len) == Some(2)
    });
    let run = drive.pumice(&["create", &down, "--size", "32M", "--capacity", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    server.ask_to_reload();
    wait_until("the drive is up", || statuses(&drive).iter().all(|drive| drive["state"] == "online"));
    assert_eq!(statuses(&drive).len(), 2);
    assert!(server.stop().success());
    assert_eq!(statuses(&drive), Vec::<Value>::new());
    Ok(())
}

#[test]
fn a_drive_that_left_the_configuration_is_down_no_more() {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve_config(&config(&drive, ""), 1);
    assert_eq!(statuses(&drive).len(), 2);
    drive.write_config(&format!("[[drive]]\npath = \"{}\"\n", text(&drive.path())));
    server.ask_to_reload();
    wait_until("it is forgotten", || statuses(&drive).len() == 1);
    assert!(server.stop().success());
}

#[test]
fn a_drive_that_cannot_be_opened_is_unhealthy_and_a_metric() {
    if !needs(&["curl"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve_config(&config(&drive, "http = \"127.0.0.1:0\""), 1);
    let base = server.http().trim_end_matches("metrics").to_string();
    let get =
        |path: &str| in_time("curl", &["--silent", "--max-time", "20", &format!("{base}{path}")]).stdout;
    let code = |path: &str| {
        let arguments = ["-s", "--max-time", "20", "-w", "%{http_code}", "-o", "/dev/null"];
        succeed("curl", &[&arguments[..], &[&format!("{base}{path}")]].concat())
    };
    let (up, down) = (text(&drive.path()), drive.file("later"));
    assert_eq!(code("healthz"), "503");
    assert!(get("healthz").starts_with(&format!("{down}: down: ")), "{}", get("healthz"));
    let metrics = get("metrics");
    for line in [
        format!("pumice_drive_up{{drive=\"{up}\"}} 1"),
        format!("pumice_drive_up{{drive=\"{down}\"}} 0"),
        format!("pumice_state{{drive=\"{down}\",state=\"down\"}} 1"),
        format!("pumice_state{{drive=\"{up}\",state=\"down\"}} 0"),
        format!("pumice_events_total{{drive=\"{down}\",event=\"open-failed\"}} 1"),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in {metrics}");
    }
    assert!(!metrics.contains(&format!("pumice_physical_used_ratio{{drive=\"{down}\"}}")), "{metrics}");
    let status: Value = serde_json::from_str(&get("status")).expect("JSON");
    assert_eq!(status["drives"][1]["state"], "down");
    let run = drive.pumice(&["create", &down, "--size", "32M", "--capacity", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    server.ask_to_reload();
    wait_until("it is up", || code("healthz") == "200");
    assert!(get("metrics").contains(&format!("pumice_drive_up{{drive=\"{down}\"}} 1")));
    assert!(server.stop().success());
}

#[test]
fn without_any_drive_the_command_is_run_before_the_server_ends() {
    let drive = Drive::create(&["--size", "64M"]);
    let events = drive.file("events");
    let hook = format!("on-event = 'echo \"$PUMICE_EVENT $PUMICE_DRIVE\" >> {events}'");
    drive.write_config(&format!("[server]\n{hook}\n[[drive]]\npath = \"{}\"\n", drive.file("none")));
    let run = drive.pumice(&["serve", "--config", &drive.file("pumice.toml")]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let events = std::fs::read_to_string(events).expect("the command ran");
    assert_eq!(events, format!("open-failed {}\n", drive.file("none")));
}

/// Opens a file as a backing, as another process would.
fn in_use(path: &str) -> media::FileMedia {
    media::FileMedia::open(path, true, media::Direct::Off).expect("locked")
}

#[test]
fn a_drive_that_was_in_use_comes_without_a_reload() {
    let drive = Drive::create(&["--size", "64M"]);
    let later = drive.file("later");
    let run = drive.pumice(&["create", &later, "--size", "32M", "--capacity", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let other = in_use(&later);
    let server = drive.serve_config(&config(&drive, ""), 1);
    let all = statuses(&drive);
    assert_eq!((all.len(), &all[1]["state"]), (2, &"down".into()), "{all:?}");
    let reason = all[1]["state_reason"].as_str().expect("a reason");
    assert!(reason.contains("in use") && reason.ends_with("tried again every 5 seconds"), "{reason}");
    drop(other);
    wait_until("the drive is up", || statuses(&drive).iter().all(|drive| drive["state"] == "online"));
    wait_until("its address", || std::os::unix::net::UnixStream::connect(drive.file("later.nbd")).is_ok());
    let log = drive.log();
    assert_eq!(log.matches("open-failed").count(), 1, "reported once: {log}");
    assert!(server.stop().success());
}

#[test]
fn a_stop_does_not_wait_for_a_reload() {
    const FILES: usize = 30;
    let drive = Drive::create(&["--size", "64M"]);
    let up = format!("[[drive]]\npath = \"{}\"\n", text(&drive.path()));
    let server = drive.serve_config(&up, 1);
    // The server waits a while for each of these drives.
    let mut held = Vec::new();
    let mut config = up;
    for number in 0..FILES {
        let path = drive.file(&format!("file-{number}"));
        std::fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("a file");
        held.push(in_use(&path));
        config += &format!("[[drive]]\npath = \"{path}\"\n");
    }
    drive.write_config(&config);
    server.ask_to_reload();
    let failed = || {
        let log = std::fs::read_to_string(drive.file("log")).unwrap_or_default();
        log.matches("open-failed").count()
    };
    wait_until("the first of them", || failed() > 0);
    assert!(server.stop().success());
    assert!(failed() < FILES, "the reload went on to its end");
    assert_eq!(drive.status()["recovery"]["clean"], true);
}

/// Several drives are opened concurrently.
#[test]
fn drives_are_served_in_the_order_of_the_configuration() {
    if !needs(&["curl"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let mut paths: Vec<String> = ["f", "b", "missing", "e", "c", "d"].map(|name| drive.file(name)).to_vec();
    for path in paths.iter().filter(|path| !path.ends_with("missing")) {
        let run = drive.pumice(&["create", path, "--size", "32M", "--capacity", "32M"]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    paths.insert(3, text(&drive.path()));
    let tables: String = paths.iter().map(|path| format!("[[drive]]\npath = \"{path}\"\n")).collect();
    let server = drive.serve_config(&format!("[server]\nhttp = \"127.0.0.1:0\"\n{tables}"), 6);
    let url = format!("{}status", server.http().trim_end_matches("metrics"));
    let answer: Value = serde_json::from_str(&succeed("curl", &["-sS", &url])).expect("JSON");
    let drives = answer["drives"].as_array().expect("drives");
    let in_state = |state: &str| -> Vec<&str> {
        let found = drives.iter().filter(|drive| drive["state"] == state);
        found.map(|drive| drive["path"].as_str().expect("a path")).collect()
    };
    assert_eq!(in_state("down"), [&paths[2]]);
    paths.remove(2);
    assert_eq!(in_state("online"), paths);
    assert!(server.stop().success());
}
