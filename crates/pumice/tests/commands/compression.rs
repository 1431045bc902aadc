//! `pumice train`, `pumice settle`, and the background recompression of a server.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, Server, fails, needs, sample, succeed};

/// Returns log lines in which each block has much in common with the others.
fn log_lines(seed: u64, len: usize) -> Vec<u8> {
    use std::io::Write;
    let random = codec::testdata::random(seed, len / 8);
    let words = ["login", "logout", "upload", "download", "rename", "delete", "search", "purchase"];
    let mut lines = Vec::with_capacity(len + 512);
    for chunk in random.chunks_exact(8).cycle() {
        let number = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let word = words[(number % 8) as usize];
        writeln!(
            lines,
            "{{\"timestamp\":\"2026-01-{:02}T{:02}:{:02}:00Z\",\"severity\":\"info\",\"session\":\"{:010x}\",\
             \"action\":\"{word}\",\"address\":\"10.0.{}.{}\",\"duration_microseconds\":{},\"status\":\"success\"}}",
            number % 28 + 1,
            (number >> 8) % 24,
            (number >> 16) % 60,
            number >> 24,
            (number >> 5) % 256,
            (number >> 13) % 256,
            (number >> 40) % 100_000,
        )
        .expect("memory takes it");
        if lines.len() >= len {
            break;
        }
    }
    lines.truncate(len);
    lines
}

/// Writes a file to the beginning of the drive, in requests of 4 KiB.
fn write(drive: &Drive, server: &Server, name: &str, contents: &[u8]) {
    std::fs::write(drive.file(name), contents).expect("written");
    succeed("nbdcopy", &["--request-size=4096", "--flush", &drive.file(name), server.uri()]);
}

fn holds(drive: &Drive, server: &Server, contents: &[u8]) {
    succeed("nbdcopy", &[server.uri(), &drive.file("back")]);
    let back = std::fs::read(drive.file("back")).expect("copied");
    assert!(back[..contents.len()] == *contents, "the drive holds something else");
}

fn json(drive: &Drive, arguments: &[&str]) -> Value {
    let run = drive.pumice(arguments);
    assert_eq!(run.code, Some(0), "{arguments:?}: {run:?}");
    serde_json::from_str(&run.stdout).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_dictionary_and_settling_compress_better_and_a_kill_loses_nothing() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "128M", "--capacity", "48M"]);
    let path = text(&drive.path());
    // Background work is off, so that only requested work happens.
    let server = drive.serve(&["--background-cpu", "0"]);
    let contents = log_lines(1, 24 << 20);
    write(&drive, &server, "data", &contents);
    let plain = number(&drive.status()["compression_ratio"]);
    assert_eq!(drive.status()["server"]["settling"]["state"], "off");

    let answer = json(&drive, &["train", &path, "--json"]);
    assert_eq!(
        (&answer["training"]["dictionary_ids"][0], &answer["training"]["asked"]),
        (&1.into(), &true.into())
    );
    assert!(number(&answer["training"]["gain"]) >= 1.03, "{answer}");
    assert_eq!(
        (&answer["dictionaries"][0]["id"], &answer["dictionaries"][0]["in_use"]),
        (&1.into(), &true.into())
    );
    let counted = || {
        let counts = drive.status()["server"]["events"]["counts"].take();
        let counts: Vec<Value> = counts.as_array().expect("an array").clone();
        counts.into_iter().find(|it| it["event"] == "dictionary-adopted").map(|it| it["count"].clone())
    };
    wait_until("the event", || counted() == Some(1.into()));
    let live = |kind: &str| -> f64 {
        let live = drive.status()["compression"]["live"].take();
        let kinds = live.as_array().expect("an array").iter().filter(|it| it["kind"] == kind);
        kinds.map(|it| number(&it["logical_bytes"])).sum()
    };
    assert!(live("fresh") >= f64::from(24 << 20) && live("settled") == 0.0);
    assert_eq!(drive.status()["compression"]["to_gain_bytes"], Value::Null);
    // Nothing was written since: the stored data is sampled and gives no new dictionary.
    let run = drive.pumice(&["train", &path]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("no new dictionary") && run.stdout.contains("of what it holds"), "{run:?}");

    write(&drive, &server, "data", &contents);
    let with_dictionary = number(&drive.status()["compression_ratio"]);
    assert!(with_dictionary > plain * 1.03, "{plain} {with_dictionary}");

    let answer = json(&drive, &["settle", &path, "--json"]);
    assert_eq!(answer["settle"]["state"], "finished", "{answer}");
    assert_eq!(answer["settle"]["position_bytes"], answer["settle"]["total_bytes"]);
    assert!(number(&answer["settle"]["settled_bytes"]) >= f64::from(23 << 20), "{answer}");
    let settled = number(&answer["compression_ratio"]);
    assert!(settled > with_dictionary && number(&answer["compression_ratio_before"]) < settled, "{answer}");
    holds(&drive, &server, &contents);
    assert!(live("settled") >= f64::from(23 << 20) && live("fresh") < f64::from(1 << 20));
    let status = drive.status();
    assert_ne!(status["compression"]["to_gain_bytes"], Value::Null);
    let settling = &status["server"]["settling"];
    assert_eq!(settling["settled_bytes"], answer["settle"]["settled_bytes"]);
    assert!(number(&settling["cpu_seconds"]) > 0.0, "{settling}");
    // All of it is settled.
    let run = drive.pumice(&["settle", &path]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("0 B settled"), "{run:?}");

    // A durable write also makes earlier settled data durable.
    write(&drive, &server, "more", &contents[..1 << 20]);
    server.kill();
    let server = drive.serve(&["--background-cpu", "0"]);
    holds(&drive, &server, &contents);
    let status = drive.status();
    assert_eq!(status["compression"]["dictionaries"][0]["id"], 1);
    assert!(number(&status["compression_ratio"]) > with_dictionary, "{}", status["compression_ratio"]);
    assert!(server.stop().success());
    let run = drive.pumice(&["check", &path, "--deep"]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn a_drive_that_nobody_serves_is_settled_too() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "24M"]);
    let path = text(&drive.path());
    let server = drive.serve(&["--background-cpu", "0"]);
    let contents = log_lines(2, 8 << 20);
    write(&drive, &server, "data", &contents);
    assert!(server.stop().success());
    let before = number(&drive.status()["compression_ratio"]);
    let run = drive.pumice(&["settle", &path]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("8.00 MiB settled"), "{run:?}");
    let after = number(&drive.status()["compression_ratio"]);
    assert!(after > before * 1.05, "{before} {after}");
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
    let answer = json(&drive, &["settle", &path, "--json"]);
    assert_eq!(
        (&answer["settle"]["settled_bytes"], &answer["settle"]["state"]),
        (&0.into(), &"finished".into())
    );
    let server = drive.serve(&[]);
    holds(&drive, &server, &contents);
}

/// A drive that is not being served, or whose server was just started, is trained on its stored data.
#[test]
fn a_drive_is_trained_on_what_it_holds() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "24M"]);
    let path = text(&drive.path());
    let run = drive.pumice(&["train", &path]);
    assert!(run.code == Some(0) && run.stdout.contains("too few"), "{run:?}");
    let server = drive.serve(&["--background-cpu", "0"]);
    let contents = log_lines(6, 8 << 20);
    write(&drive, &server, "data", &contents);
    assert!(server.stop().success());
    let answer = json(&drive, &["train", &path, "--json"]);
    let training = &answer["training"];
    assert_eq!(
        (&training["sample"], &training["dictionary_ids"][0]),
        (&"live".into(), &1.into()),
        "{answer}"
    );
    assert_eq!(training["sample_blocks_count"], 1024, "{answer}");
    assert_eq!(answer["dictionaries"][0]["in_use"], true);
    // The server uses the dictionary, and its first training finds no better one.
    let server = drive.serve(&["--background-cpu", "0"]);
    let answer = json(&drive, &["train", &path, "--json"]);
    assert_eq!(answer["training"]["sample"], "live");
    assert_eq!(answer["training"]["dictionary_ids"], Value::Array(Vec::new()), "{answer}");
    let plain = number(&drive.status()["compression_ratio"]);
    write(&drive, &server, "data", &contents);
    assert!(number(&drive.status()["compression_ratio"]) > plain * 1.03);
    let status = drive.status();
    let written = status["compression"]["written"].as_array().expect("an array");
    let with =
        written.iter().find(|it| it["dictionary"] == 1 && it["settled"] == false).expect("written with it");
    assert_eq!((&with["codec"], &with["level"]), (&"zstd".into(), &1.into()), "{with}");
    holds(&drive, &server, &contents);
    assert!(server.stop().success());
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
}

/// A run settles again what was settled before a dictionary existed.
#[test]
fn a_run_settles_again_what_a_dictionary_makes_smaller() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    // Without zstd no dictionary is trained first.
    let drive = Drive::create(&["--size", "64M", "--capacity", "24M", "--codec", "lz4"]);
    let path = text(&drive.path());
    let server = drive.serve(&["--background-cpu", "0"]);
    let sentences: Vec<Vec<u8>> = (0..800)
        .map(|n| codec::testdata::random(n, 48).into_iter().map(|byte| b'a' + byte % 26).collect())
        .collect();
    // Less data than automatic training requires.
    let draws = codec::testdata::random(7, 2 * 90_000);
    let draw = |pair: &[u8]| usize::from(u16::from_le_bytes([pair[0], pair[1]])) % sentences.len();
    let contents: Vec<u8> =
        draws.chunks_exact(2).flat_map(|pair| sentences[draw(pair)].iter().copied()).take(3 << 20).collect();
    write(&drive, &server, "data", &contents);
    let answer = json(&drive, &["settle", &path, "--json"]);
    assert_eq!(answer["settle"]["state"], "finished", "{answer}");
    let before = number(&answer["compression_ratio"]);
    assert_eq!(drive.pumice(&["set-codec", &path, "auto"]).code, Some(0));
    let answer = json(&drive, &["train", &path, "--json"]);
    assert_eq!(answer["training"]["dictionary_ids"][0], 1, "{answer}");
    let answer = json(&drive, &["settle", &path, "--json"]);
    assert_eq!(answer["settle"]["state"], "finished", "{answer}");
    // Cleaning may have recompressed a part between the two.
    assert!(number(&answer["settle"]["settled_bytes"]) > f64::from(1 << 20), "{answer}");
    assert!(number(&answer["compression_ratio"]) > before * 1.03, "{before} {answer}");
    assert!(number(&drive.status()["server"]["settling"]["again_bytes"]) > f64::from(1 << 20));
    let run = drive.pumice(&["settle", &path]);
    assert!(run.code == Some(0) && run.stdout.contains("0 B settled"), "{run:?}");
    holds(&drive, &server, &contents);
    assert!(server.stop().success());
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
}

/// A drive that was written quickly and stopped was never trained: a run trains first.
#[test]
fn a_run_trains_first() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "24M"]);
    let path = text(&drive.path());
    let server = drive.serve(&["--background-cpu", "0"]);
    let contents = codec::testdata::text_like(5, 3 << 20);
    write(&drive, &server, "data", &contents);
    assert!(server.stop().success());
    let answer = json(&drive, &["settle", &path, "--json"]);
    assert_eq!(answer["settle"]["state"], "finished", "{answer}");
    let status = json(&drive, &["status", &path, "--json"]);
    assert_eq!(status["drives"][0]["compression"]["dictionaries"][0]["id"], 1, "{status}");
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
}

/// After Ctrl-C, the settled data is kept and the drive is closed properly.
#[test]
fn settling_a_drive_that_nobody_serves_is_interrupted() -> Outcome {
    if !needs(&["nbdcopy", "kill"]) {
        return Ok(());
    }
    for signal in ["INT", "TERM"] {
        let drive = Drive::create(&["--size", "256M", "--capacity", "160M"]);
        let path = text(&drive.path());
        let server = drive.serve(&["--background-cpu", "0"]);
        let contents = sample(3, 128 << 20);
        write(&drive, &server, "data", &contents);
        assert!(server.stop().success());
        let running = Command::new(env!("CARGO_BIN_EXE_pumice"))
            .args(["settle", &path])
            .env("PUMICE_RUNTIME_DIR", drive.runtime_dir())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // Settling writes to the backing as soon as it starts.
        let modified = || std::fs::metadata(drive.path()).and_then(|it| it.modified()).expect("a time");
        let before = modified();
        wait_until("settling", || modified() > before);
        succeed("kill", &["-s", signal, &running.id().to_string()]);
        let ended = running.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && said.contains("stopped before its end"), "{said}");
        let status = drive.status();
        assert_eq!(status["recovery"]["clean"], true, "{}", status["recovery"]);
        let run = drive.pumice(&["check", &path, "--deep"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let server = drive.serve(&["--background-cpu", "0"]);
        holds(&drive, &server, &contents);
    }
    Ok(())
}

#[test]
fn a_run_of_settling_is_stopped() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "256M", "--capacity", "160M"]);
    let path = text(&drive.path());
    let server = drive.serve(&["--background-cpu", "0"]);
    // Enough data to stop the run: the high levels take seconds for it.
    write(&drive, &server, "data", &sample(3, 128 << 20));
    fails(&drive.pumice(&["settle", &path, "--stop"]), &["no settling run"]);
    let running = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["settle", &path])
        .env("PUMICE_RUNTIME_DIR", drive.runtime_dir())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let run = || drive.status()["server"]["settling"]["run"].take();
    wait_until("the run", || run()["state"] == "running");
    let stopped = json(&drive, &["settle", &path, "--stop", "--json"]);
    assert_eq!(stopped["settle"]["state"], "stopped");
    let ended = running.wait_with_output().expect("it is ours");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(1) && said.contains("stopped before its end"), "{said}");
    assert!(number(&run()["position_bytes"]) < f64::from(160 << 20));
    assert!(server.stop().success());
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
}

#[test]
fn a_server_trains_and_settles_by_itself_and_its_share_changes_at_once() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "128M", "--capacity", "48M"]);
    let config =
        |share: &str| format!("[[drive]]\npath = \"{}\"\nbackground-cpu = {share}\n", text(&drive.path()));
    let server = drive.serve_config(&config("0"), 1);
    let contents = log_lines(4, 16 << 20);
    write(&drive, &server, "data", &contents);
    let of = |key: &str| drive.status()["server"][key].take();
    assert_eq!((&of("settling")["state"], &of("training")), (&"off".into(), &Value::Null));
    drive.write_config(&config("100"));
    server.ask_to_reload();
    wait_until("training", || of("training") != Value::Null);
    assert_eq!((&of("training")["dictionary_ids"][0], &of("training")["asked"]), (&1.into(), &false.into()));
    assert_eq!(number(&of("settling")["background_cpu_percent"]), 100.0);
    // Writes have ended. After half a minute all data may be settled.
    wait_until("settling", || number(&of("settling")["settled_bytes"]) >= f64::from(16 << 20));
    wait_until("the end of a pass that finds nothing", || of("settling")["state"] == "resting");
    assert!(number(&of("survey")["records_count"]) > 0.0, "{}", of("survey"));
    holds(&drive, &server, &contents);
    assert!(server.stop().success());
    assert_eq!(drive.pumice(&["check", &text(&drive.path()), "--deep"]).code, Some(0));
}

#[test]
fn the_codec_changes_for_new_data_served_or_not() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "24M", "--codec", "none"]);
    let path = text(&drive.path());
    let contents = log_lines(5, 4 << 20);
    let server = drive.serve(&[]);
    write(&drive, &server, "data", &contents);
    assert!(number(&drive.status()["compression_ratio"]) < 1.0);
    let run = drive.pumice(&["settle", &path]);
    assert!(run.code == Some(0) && run.stdout.contains("codec is none"), "{run:?}");
    let run = drive.pumice(&["set-codec", &path, "zstd:3"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("zstd:3 for what is written from now on, none until now"), "{run:?}");
    assert!(number(&drive.status()["compression_ratio"]) < 1.0, "what is there stays as it is");
    write(&drive, &server, "data", &contents);
    assert!(number(&drive.status()["compression_ratio"]) > 2.0);
    // The change is durable immediately.
    server.kill();
    let server = drive.serve(&[]);
    assert_eq!(drive.status()["codec"], "zstd:3");
    holds(&drive, &server, &contents);
    assert!(server.stop().success());
    let answer = json(&drive, &["set-codec", &path, "lz4", "--json"]);
    assert_eq!((&answer["codec_before"], &answer["codec"]), (&"zstd:3".into(), &"lz4".into()));
    assert_eq!(drive.status()["codec"], "lz4");
    let server = drive.serve(&[]);
    holds(&drive, &server, &contents);
}

#[test]
fn a_read_only_drive_is_left_alone() {
    let drive = Drive::create(&["--size", "32M"]);
    let path = text(&drive.path());
    let _server = drive.serve(&["--read-only"]);
    for command in ["train", "settle"] {
        fails(&drive.pumice(&[command, &path]), &["read-only"]);
    }
    fails(&drive.pumice(&["set-codec", &path, "lz4"]), &["read-only"]);
    assert_eq!(drive.status()["server"]["settling"]["state"], "off");
}

#[test]
fn bad_input_changes_nothing() -> Outcome {
    let drive = Drive::create(&["--size", "32M"]);
    let path = text(&drive.path());
    let missing = drive.file("nothing");
    std::fs::write(drive.file("text"), vec![b'x'; 100_000])?;
    let before = std::fs::read(drive.path())?;
    for command in ["train", "settle"] {
        for (arguments, code, says) in [
            (vec![command, &missing], 1, "o such file"),
            (vec![command, &drive.file("text")], 1, "not a Pumice drive"),
            (vec![command, "/"], 1, "directory"),
            (vec![command], 2, "required"),
            (vec![command, &path, "now"], 2, "unexpected"),
            (vec![command, &path, "--jsn"], 2, "--json"),
        ] {
            let run = drive.pumice(&arguments);
            assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
            assert!(run.stderr.contains(says) && run.stderr.lines().count() == 1, "{arguments:?}: {run:?}");
        }
    }
    for (arguments, code, says) in [
        (vec!["set-codec", &missing, "lz4"], 1, "o such file"),
        (vec!["set-codec", &drive.file("text"), "lz4"], 1, "not a Pumice drive"),
        (vec!["set-codec", "/", "lz4"], 1, "directory"),
        (vec!["set-codec", &path], 2, "required"),
        (vec!["set-codec", &path, "brotli"], 2, "zstd:LEVEL"),
        (vec!["set-codec", &path, "zstd:20"], 2, "-5 to 19"),
        (vec!["set-codec", &path, "lz4", "zstd"], 2, "unexpected"),
    ] {
        let run = drive.pumice(&arguments);
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(says) && run.stderr.lines().count() == 1, "{arguments:?}: {run:?}");
    }
    fails(&drive.pumice(&["settle", &path, "--stop"]), &["the drive is not being served"]);
    assert!(std::fs::read(drive.path())? == before, "something was changed");
    Ok(())
}
