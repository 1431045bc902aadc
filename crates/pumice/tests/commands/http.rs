//! `pumice serve --http`: monitoring of a real server.

use crate::common::server::text;
use crate::common::{Drive, in_time, needs, succeed};

fn get(url: &str) -> String {
    succeed("curl", &["--silent", "--show-error", "--max-time", "20", url])
}

#[test]
fn metrics_of_a_drive_that_is_used() {
    if !needs(&["curl", "qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let server = drive.serve(&["--http", "127.0.0.1:0"]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 3 0 4M", "-c", "flush", server.uri()]);
    let metrics = get(server.http());
    let path = text(&drive.path());
    let value = |name: &str, labels: &str| {
        let series = format!("{name}{{drive=\"{path}\"{labels}}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("{series} is missing in {metrics}")).parse::<f64>().expect("a number")
    };
    assert_eq!(value("pumice_logical_used_bytes", ""), f64::from(4 << 20));
    assert_eq!(value("pumice_logical_capacity_bytes", ""), f64::from(128 << 20));
    assert_eq!(value("pumice_state", ",state=\"online\""), 1.0);
    assert_eq!(value("pumice_events_total", ",event=\"opened\""), 1.0);
    let writes = value("pumice_request_duration_seconds_count", ",kind=\"write\"");
    assert!(writes >= 1.0);
    assert_eq!(value("pumice_request_duration_seconds_bucket", ",kind=\"write\",le=\"+Inf\""), writes);
    let base = server.http().trim_end_matches("metrics");
    assert_eq!(get(&format!("{base}healthz")), "ok\n");
    let status: serde_json::Value = serde_json::from_str(&get(&format!("{base}status"))).expect("JSON");
    assert_eq!(status["drives"][0]["uuid"], drive.status()["uuid"]);
    if needs(&["promtool"]) {
        let command = format!("curl --silent --max-time 20 {} | promtool check metrics", server.http());
        assert_eq!(succeed("sh", &["-c", &command]), "", "what promtool has to say");
    }
    assert!(server.stop().success());
}

#[test]
fn tcp_that_every_user_can_use_is_told() {
    let drive = Drive::create(&["--size", "64M"]);
    let warned = |what: &str| {
        let line = format!("whoever can connect can {what} the drives: every user of this machine");
        drive.log().lines().filter(|told| told.contains(" WARN ") && told.contains(&line)).count()
    };
    let sockets = [format!("unix:{}", drive.file("nbd")), format!("unix:{}", drive.file("http"))];
    let tcp = ["tcp:127.0.0.1:0".to_string(), "127.0.0.1:0".to_string()];
    for ([nbd, http], expected) in [(&sockets, 0), (&tcp, 1)] {
        let server = drive.serve(&["--nbd", nbd, "--http", http]);
        assert!(server.stop().success());
        for what in ["use", "read the status of"] {
            assert_eq!(warned(what), expected, "{what}: {}", drive.log());
        }
    }
}

#[test]
fn nothing_can_be_changed() {
    if !needs(&["curl"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&["--http", "127.0.0.1:0"]);
    let base = server.http().trim_end_matches("metrics").to_string();
    let fixed = || {
        let status = drive.status();
        [
            "state",
            "uuid",
            "logical_capacity_bytes",
            "physical_size_bytes",
            "host_written_bytes",
            "host_trimmed_bytes",
        ]
        .map(|key| status[key].clone())
    };
    let before = fixed();
    let uuid = before[1].as_str().expect("a text");
    let change = |what: &str| format!("{{\"command\":\"change\",\"drive\":\"{uuid}\",\"change\":{what}}}");
    let bodies = ["{\"command\":\"wipe\"}".to_string(), change("{\"set-capacity\":{\"bytes\":1073741824}}")];
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"] {
        for path in ["", "metrics", "healthz", "status"] {
            for body in &bodies {
                let arguments =
                    ["-s", "--max-time", "20", "-w", "%{http_code}", "-o", "/dev/null", "-X", method];
                let url = format!("{base}{path}");
                let code = succeed("curl", &[&arguments[..], &["-d", body, &url]].concat());
                assert_eq!(code, "405", "{method} /{path}");
            }
        }
    }
    // No path changes anything either.
    for path in ["wipe", "status?command=wipe", "status/wipe", "admin", "..%2fadmin"] {
        let arguments = ["-s", "--max-time", "20", "-w", "%{http_code}", "-o", "/dev/null"];
        let code = succeed("curl", &[&arguments[..], &[&format!("{base}{path}")]].concat());
        assert_eq!(code, if path.starts_with("status?") { "200" } else { "404" }, "{path}");
    }
    assert_eq!(fixed(), before);
}

#[test]
fn beyond_this_machine_wants_insecure() {
    let drive = Drive::create(&["--size", "64M"]);
    let run = drive.pumice(&["serve", &text(&drive.path()), "--http", "0.0.0.0:0"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.lines().last().is_some_and(|line| line.contains("--insecure")), "{run:?}");
    assert_eq!(drive.status()["recovery"]["clean"], true, "closed again");
    let server = drive.serve(&["--http", "0.0.0.0:0", "--insecure"]);
    assert!(server.stop().success());
    for address in ["localhost", "http://localhost:80", "localhost:99999", ":80"] {
        let run = in_time(env!("CARGO_BIN_EXE_pumice"), &["serve", "x", "--http", address]);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{address}: {run:?}");
    }
}

#[test]
fn metrics_at_a_unix_socket() {
    if !needs(&["curl"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let socket = drive.file("http.sock");
    let server = drive.serve(&["--http", &format!("unix:{socket}")]);
    let url = "http://monitoring/metrics";
    let metrics = succeed("curl", &["-sS", "--max-time", "20", "--unix-socket", &socket, url]);
    assert!(metrics.contains("\npumice_state{"), "{metrics}");
    assert!(server.stop().success());
    assert!(!std::path::Path::new(&socket).exists());
    let run = drive.pumice(&["serve", &text(&drive.path()), "--http", "unix:http.sock"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("must begin with /"), "{run:?}");
}

#[test]
fn a_port_that_is_taken_is_reported() {
    let drive = Drive::create(&["--size", "64M"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let run = drive.pumice(&["serve", &text(&drive.path()), "--http", &address]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains(&address), "{run:?}");
    assert_eq!(drive.status()["state"], "idle");
}
