//! The JSON output of all commands conforms to the schemas in `docs/schema` and has no other fields.

#[path = "common/mod.rs"]
mod common;

use std::path::Path;

use common::server::{text, wait_until};
use common::{Drive, Outcome, Run, fails, needs, sample, succeed};
use serde_json::{Value, json};

/// Returns a schema of the project that additionally refuses unknown fields. Readers must accept those,
/// because fields may be added, but this program must describe every field that it prints.
fn schema(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/{name}.json"));
    let text = std::fs::read_to_string(&file).expect("a schema");
    let mut schema = serde_json::from_str(&text).expect("JSON");
    jsonschema::meta::validate(&schema).expect("a schema of its draft");
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.contains_key("properties") {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

fn validate(name: &str, document: &Value) {
    let validator = jsonschema::validator_for(&schema(name)).expect("a schema");
    let errors: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}\n{document:#}");
}

/// Validates the JSON output of a command, which may have failed.
fn valid(name: &str, run: &Run) {
    validate(name, &serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}")));
}

#[test]
fn a_schema_refuses_what_it_does_not_describe() {
    let closed = jsonschema::validator_for(&schema("doctor")).expect("a schema");
    let check = json!({"check": "memory", "verdict": "ok", "found": "much", "advice": null});
    let document = |check: &Value| json!({"path": "/drive", "failed_count": 0, "checks": [check]});
    assert!(closed.is_valid(&document(&check)));
    for (field, value) in [("verdict", json!("good")), ("advice", json!(1)), ("more", json!(true))] {
        let mut wrong = check.clone();
        wrong[field] = value;
        assert!(!closed.is_valid(&document(&wrong)), "{field}");
    }
}

#[test]
fn check_settle_and_train() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let json = |command: &str, more: &[&str]| drive.pumice(&[&[command, &path, "--json"], more].concat());
    let data = drive.file("data");
    std::fs::write(&data, sample(1, 4 << 20))?;
    let server = drive.serve(&[]);
    succeed("nbdcopy", &["--flush", &data, server.uri()]);
    valid("check", &json("check", &["--deep"]));
    valid("settle", &json("settle", &[]));
    valid("train", &json("train", &[]));
    // With the results of the scrub, the settling run and the training.
    let status = json("status", &[]);
    let served = &serde_json::from_str::<Value>(&status.stdout)?["drives"][0]["server"];
    for work in ["scrub", "training"] {
        assert!(served[work].is_object(), "{work}: {served:#}");
    }
    assert!(served["settling"]["run"].is_object(), "{served:#}");
    valid("status", &status);
    assert!(server.stop().success());
    valid("status", &json("status", &[]));
    valid("check", &json("check", &[]));
    valid("check", &json("check", &["--deep"]));
    valid("settle", &json("settle", &[]));
    valid("train", &json("train", &[]));
    // A damaged record, a damaged copy of the superblock, and then both copies of all checkpoints.
    let mut bytes = std::fs::read(drive.path())?;
    let found: Value = serde_json::from_str(&json("check", &[]).stdout)?;
    bytes[..4096].fill(0);
    let page = |at: usize| at..at + 4096;
    let full = (2 << 20..bytes.len())
        .step_by(4096)
        .find(|at| bytes[page(*at)].iter().filter(|byte| **byte != 0).count() > 3000);
    let at = full.ok_or("data")? + 2000;
    bytes[at..at + 16].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(drive.path(), &bytes)?;
    let run = json("check", &["--deep"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    valid("check", &run);
    for copy in found["checkpoint_copies"].as_array().ok_or("copies")? {
        let at = usize::try_from(copy["position_bytes"].as_u64().ok_or("a position")?)?;
        bytes[page(at)].fill(1);
    }
    std::fs::write(drive.path(), &bytes)?;
    let run = json("check", &[]);
    assert!(run.stdout.contains("\"opened\": false"), "{run:?}");
    valid("check", &run);
    Ok(())
}

#[test]
fn status_of_copies_and_of_a_drive_that_is_down() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let (copy, missing) = (drive.file("copy"), drive.file("missing"));
    std::fs::copy(drive.path(), &copy)?;
    let table = |path: &str| format!("[[drive]]\npath = \"{path}\"\n");
    let _server =
        drive.serve_config(&[&text(&drive.path()), &copy, &missing].map(|path| table(path)).concat(), 2);
    let mut answer = Value::Null;
    // Copies are looked for every five seconds.
    wait_until("the copy is found", || {
        answer = serde_json::from_str(&drive.pumice(&["status", "--json"]).stdout).expect("JSON");
        answer["drives"][0]["copies"][0].is_object()
    });
    let states: Vec<_> = answer["drives"].as_array().ok_or("drives")?.iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["online", "online", "down"]);
    validate("status", &answer);
    Ok(())
}

/// Both for served drives, one of them down, and for none.
#[test]
fn list_and_capacity() -> Outcome {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let path = text(&drive.path());
    let json = |arguments: &[&str]| -> Outcome<(Value, String)> {
        let run = drive.pumice(&[arguments, &["--json"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        valid(arguments[0], &run);
        Ok((serde_json::from_str(&run.stdout)?, run.stderr))
    };
    for command in ["list", "capacity"] {
        assert_eq!(json(&[command])?, (json!({"drives": []}), String::new()));
    }
    let idle = json(&["capacity", &path])?.0;
    assert_eq!(idle["drives"][0]["logical_capacity_bytes"], 128 << 20, "{idle}");
    let missing = drive.file("missing");
    let table = |path: &str| format!("[[drive]]\npath = \"{path}\"\n");
    let server = drive.serve_config(&(table(&path) + &table(&missing)), 1);
    let status = drive.status();
    let (list, _) = json(&["list"])?;
    let [up, down] = &list["drives"].as_array().ok_or("drives")?[..] else { panic!("two drives: {list}") };
    assert_eq!(up["nbd_uris"], json!([server.uri()]));
    assert_eq!((&up["no_answer"], &down["no_answer"]), (&json!(false), &json!(false)), "{list}");
    assert_eq!(up["backing_place"], status["backing"]["place"]);
    assert!(down["backing_place"].is_null(), "{down}");
    // Those that the status does not have, or has elsewhere.
    let own = ["backing_place", "nbd_uris", "no_answer"];
    for (key, value) in
        up.as_object().ok_or("an object")?.iter().filter(|(key, _)| !own.contains(&key.as_str()))
    {
        assert_eq!(value, &status[key], "{key}");
    }
    assert_eq!((&down["path"], &down["state"]), (&json!(missing), &json!("down")));
    assert!(down["state_reason"].is_string() && down["nbd_uris"] == json!([]), "{down}");
    for key in ["logical_capacity_bytes", "physical_used_ratio", "compression_ratio", "out_of_space"] {
        assert!(down[key].is_null(), "{key}: {down}");
    }
    let (capacity, warning) = json(&["capacity"])?;
    assert!(warning.contains("missing: down: "), "{warning}");
    let [served] = &capacity["drives"].as_array().ok_or("drives")?[..] else { panic!("{capacity}") };
    for (key, value) in served.as_object().ok_or("an object")? {
        assert_eq!(value, &status[key], "{key}");
    }
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn doctor() {
    let drive = Drive::create(&["--size", "64M"]);
    valid("doctor", &drive.pumice(&["doctor", &text(&drive.path()), "--json"]));
    valid("doctor", &drive.pumice(&["doctor", &drive.file("new"), "--json", "--size", "1P"]));
}

#[test]
fn scan_plan_and_tco() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| text(&folder.path().join(name));
    std::fs::create_dir(at("data"))?;
    std::fs::write(at("data/a.txt"), sample(1, 24 << 20))?;
    std::fs::write(at("data/zeros"), vec![0; 24 << 20])?;
    std::fs::create_dir(at("empty"))?;
    let run = |arguments: &[&str]| {
        let run = common::pumice(arguments);
        assert_eq!(run.code, Some(0), "{run:?}");
        run
    };
    let small = ["--compare", "lz4", "--unit-precision", "0"];
    valid("scan", &run(&[&["scan", &at("data"), "--json", "--precision", "4"], &small[..]].concat()));
    let scanned = run(&["scan", &at("data"), "--json", "--unit-precision", "20", "--precision", "10"]);
    valid("scan", &scanned);
    valid("scan", &run(&[&["scan", &at("data/zeros"), "--json", "--full"], &small[..]].concat()));
    valid("scan", &run(&["scan", &at("empty"), "--json"]));
    let file = at("scan.json");
    std::fs::write(&file, &scanned.stdout)?;
    valid("plan", &run(&["plan", "--scan", &file, "--physical", "1T", "--json"]));
    valid("plan", &run(&["plan", "--ratio", "3", "--physical", "1G", "--json", "--policy", "capacity"]));
    for preset in ["snia-2023", "four-ways"] {
        valid("tco", &run(&["tco", "--preset", preset, "--json"]));
    }
    let more = ["--tornado", "--sweep", "ratio=1.0..4.0", "--from-scan", &file];
    valid("tco", &run(&[&["tco", "--preset", "four-ways", "--json"], &more[..]].concat()));
    Ok(())
}

/// One scene on a drive, with fio. Runs of less time do not exist.
#[test]
fn bench() -> Outcome {
    if !needs(&["fio"]) {
        return Ok(());
    }
    if !succeed("fio", &["--enghelp"]).lines().any(|line| line.trim() == "nbd") {
        eprintln!("skipped: this fio has no nbd engine");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| text(&folder.path().join(name));
    std::fs::create_dir(at("work"))?;
    let (json, html, work) = (at("run.json"), at("run.html"), at("work"));
    let small = ["--minutes", "0", "--size", "64M", "--dir", &work];
    let wanted = ["bench", "quick", "--steady-state", "--json", &json, "--html", &html];
    let run = common::pumice(&[&wanted, &small[..]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("128K write, depth 128"), "{run:?}");
    assert!(run.stderr.contains("warning: the run is not complete"), "{run:?}");
    assert_eq!(std::fs::read_dir(at("work"))?.count(), 0);
    let found: Value = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
    validate("bench", &found);
    let random = found["series"].as_array().into_iter().flatten().find(|it| it["step"] == "random write");
    let steady = random.map(|it| it["samples"][0]["steady"].clone()).ok_or("a random write")?;
    assert_eq!(steady["is_steady"], json!(false), "one round is not steady: {found:#}");
    assert!(run.stdout.contains("random write on pumice: not steady after 1 rounds"), "{run:?}");
    let ratio = found["targets"][0]["ratio"].as_f64().ok_or("a ratio")?;
    assert!((2.0..3.0).contains(&ratio), "{found:#}");
    let finding = |name: &str| {
        let all = found["findings"].as_array().into_iter().flatten();
        all.filter(|it| it["statement"] == name).map(|it| it["verdict"].clone()).next()
    };
    assert_eq!(
        (finding("snia-ratio"), finding("lm-read")),
        (Some(json!("holds")), Some(json!("cannot_be_tested")))
    );
    let page = std::fs::read_to_string(&html)?;
    assert!(page.contains("Compression ratio after the step"));
    common::readable::assert_readable(&page);
    let same = common::pumice(&["bench", "compare", &json, &json, "--json", &at("compared.json")]);
    assert!(same.stdout.contains("No difference beyond noise"), "{same:?}");
    assert!(same.stdout.contains("is not complete: see what was left out there"), "{same:?}");
    let compared: Value = serde_json::from_str(&std::fs::read_to_string(at("compared.json"))?)?;
    validate("bench-compare", &compared);
    assert!(compared["differences"].as_array().is_some_and(|all| !all.is_empty()), "{compared:#}");
    assert!(compared["caveats"][0].as_str().is_some_and(|it| it.contains("not complete")), "{compared:#}");
    let card = common::pumice(&["bench", "scorecard", &json]);
    assert!(card.stdout.contains("## Holds") && card.stdout.contains("RAID-0"), "{card:?}");
    // What a run writes is what the cost model reads.
    let names = found["targets"].as_array().ok_or("targets")?.iter().map(|it| &it["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["pumice", "raw"]);
    std::fs::write(at("data"), sample(1, 16 << 20))?;
    let refused = common::pumice(&[&["bench", "quick", "--target", &at("data")], &small[..]].concat());
    fails(&refused, &["holds data", "--destroy"]);
    let no_run = common::pumice(&["bench", "compare", &json, &at("data")]);
    assert_eq!(no_run.code, Some(1), "{no_run:?}");
    if needs(&["setpriv"]) {
        a_bench_that_is_killed_leaves_no_process(&at("killed"))?;
    }
    Ok(())
}

/// Kills a run in the middle of a scene.
fn a_bench_that_is_killed_leaves_no_process(folder: &str) -> Outcome {
    std::fs::create_dir(folder)?;
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // State, parent.
    let fields = |pid: u32| {
        let stat = stat(pid);
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').map(str::to_string);
        Some((fields.next()?, fields.next()?.parse::<u32>().ok()?))
    };
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut bench = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["bench", "quick", "--target", "pumice", "--minutes", "1", "--size", "64M", "--dir", folder])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let children = || -> Vec<u32> {
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| fields(*pid).is_some_and(|(_, parent)| parent == bench.id())).collect()
    };
    let mut started = Vec::new();
    wait_until("fio runs on a served drive", || {
        started = children();
        let has = |wanted: &str| started.iter().any(|pid| name(*pid).trim() == wanted);
        has("pumice") && has("fio")
    });
    bench.kill()?;
    bench.wait()?;
    wait_until("its processes have ended", || {
        started.iter().all(|pid| fields(*pid).is_none_or(|(state, _)| state == "Z"))
    });
    Ok(())
}

#[test]
fn changes_of_a_drive() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let json = |arguments: &[&str]| {
        let run = drive.pumice(&[arguments, &["--json"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        run
    };
    valid("create", &json(&["create", &drive.file("plain"), "--size", "32M"]));
    let more = ["--capacity", "1G", "--sector", "4096", "--codec", "zstd:3", "--endurance", "1TB", "--force"];
    let created = json(&[&["create", &path, "--size", "48M"], &more[..]].concat());
    valid("create", &created);
    let created: Value = serde_json::from_str(&created.stdout)?;
    assert_eq!((created["sector_bytes"].as_u64(), created["codec"].as_str()), (Some(4096), Some("zstd:3")));
    valid("set-codec", &json(&["set-codec", &path, "lz4"]));
    valid("set-parity", &json(&["set-parity", &path, "1/32"]));
    let capacity = json(&["set-capacity", &path, "2G"]);
    valid("resize", &capacity);
    let capacity: Value = serde_json::from_str(&capacity.stdout)?;
    assert!(capacity["warning"].is_string(), "{capacity}");
    let size = json(&["set-size", &path, "64M"]);
    valid("resize", &size);
    let size: Value = serde_json::from_str(&size.stdout)?;
    assert_eq!(size["physical_size_bytes"].as_u64(), Some(64 << 20));
    assert!(size["warning"].is_string(), "{size}");
    valid("wipe", &json(&["wipe", &path, "--yes"]));
    let kept = json(&["wipe", &path, "--yes", "--no-discard"]);
    valid("wipe", &kept);
    assert_eq!(serde_json::from_str::<Value>(&kept.stdout)?["space"], "kept");
    valid("wipe", &json(&["format", &path, "--sector", "512", "--yes"]));
    Ok(())
}
