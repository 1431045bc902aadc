//! `pumice bench` on what needs more than one drive: volumes of attached drives, and gateways of S3.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use common::run::in_time;
use common::server::text;
use common::{Outcome, needs};
use serde_json::Value;

/// A volume of two drives, in the only scene that every run has.
#[test]
fn two_drives_make_a_volume() -> Outcome {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: attaching needs root");
        return Ok(());
    }
    let open = |path: &str| File::options().read(true).write(true).open(path).is_ok();
    if !open("/dev/fuse") || !open("/dev/loop-control") {
        eprintln!("skipped: no /dev/fuse or no /dev/loop-control here");
        return Ok(());
    }
    if !needs(&["fio", "losetup", "mount", "mkfs.btrfs"]) {
        return Ok(());
    }
    if !fs::read_to_string("/proc/filesystems")?.split_whitespace().any(|word| word == "btrfs") {
        eprintln!("skipped: the kernel has no btrfs");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| text(&folder.path().join(name));
    // The kernel resolves the one and escapes the other when it lists mounts.
    fs::create_dir(at("all work"))?;
    std::os::unix::fs::symlink(at("all work"), at("a link"))?;
    let (json, work) = (at("run.json"), at("a link"));
    let arguments = ["bench", "raid", "--target", "two drives=raid0", "--minutes", "0", "--size", "128M"];
    let run = common::pumice(&[&arguments[..], &["--dir", &work, "--json", &json]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let found: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
    let written = &found["series"][0];
    assert_eq!(
        (written["scene"].as_str(), written["step"].as_str()),
        (Some("2:1"), Some("write")),
        "{found:#}"
    );
    // Data of 50 % on both drives, and what the layer keeps.
    let ratio = written["samples"][0]["ratio"].as_f64().ok_or("a ratio")?;
    assert!((1.7..2.6).contains(&ratio), "{found:#}");
    let cpu = written["samples"][0]["server_cpu_seconds"].as_f64().ok_or("a time")?;
    assert!(cpu > 0.0, "{found:#}");
    // More than one drive could take.
    let used = written["samples"][0]["physical_used_bytes"].as_u64().ok_or("bytes")?;
    assert!(written["samples"][0]["bytes"].as_u64() > Some(130 << 20) && used > 65 << 20, "{found:#}");
    // Nothing is left: neither files, nor mounts, nor devices.
    assert_eq!(fs::read_dir(at("all work"))?.count(), 0);
    let folder = text(folder.path());
    assert!(!fs::read_to_string("/proc/self/mounts")?.contains(&folder));
    let devices = in_time("losetup", &["--noheadings", "--output", "BACK-FILE"]);
    assert!(!devices.stdout.contains(&folder), "{devices:?}");
    Ok(())
}

/// Buckets of a gateway, and objects by path.
#[derive(Default)]
struct Gateway {
    objects: BTreeMap<String, Vec<u8>>,
    /// Objects that were put, by path, and their storage class.
    puts: BTreeMap<String, Option<String>>,
    gets: u32,
    /// Requests that carry no signature of this key are refused.
    key: &'static str,
    /// Stores an object under a prefix after the first time that it lists the prefix, as for a client that is
    /// gone.
    is_late: bool,
}

/// Starts a stand-in for a gateway. Its thread ends with the test.
fn gateway() -> std::io::Result<(String, Arc<Mutex<Gateway>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let state = Arc::new(Mutex::new(Gateway { key: "key", ..Gateway::default() }));
    let shared = state.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let state = shared.clone();
            std::thread::spawn(move || serve(&stream, &state));
        }
    });
    Ok((address, state))
}

fn serve(stream: &TcpStream, state: &Mutex<Gateway>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let (mut length, mut class) = (0, None);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "x-amz-storage-class" => class = Some(value.trim().to_string()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (method, target) = line.split_once(' ')?;
        let (path, query) = target.split(' ').next()?.split_once('?')?;
        let mut state = state.lock().ok()?;
        let is_signed = query.contains(&format!("X-Amz-Credential={}%2F", state.key));
        // A header of this kind counts only if it is signed.
        let headers = query.split('&').find_map(|part| part.strip_prefix("X-Amz-SignedHeaders="));
        let signs_class = headers.is_some_and(|headers| headers.contains("x-amz-storage-class"));
        let (status, answer) = match (method, path.trim_matches('/').contains('/')) {
            _ if signs_class != class.is_some() => {
                ("403 Forbidden", b"<Error><Code>SignatureDoesNotMatch</Code></Error>".to_vec())
            }
            _ if !is_signed => ("403 Forbidden", b"<Error><Code>InvalidAccessKeyId</Code></Error>".to_vec()),
            ("HEAD", _) => match state.objects.keys().any(|key| key.starts_with(path)) {
                true => ("200 OK", Vec::new()),
                false => ("404 Not Found", Vec::new()),
            },
            ("PUT", is_object) => {
                if is_object {
                    state.puts.insert(path.to_string(), class);
                }
                state.objects.insert(path.to_string(), body);
                ("200 OK", Vec::new())
            }
            ("GET", false) => {
                let start = format!("{}/{}", path.trim_end_matches('/'), asked(query, "prefix"));
                let keys = state.objects.keys().filter(|key| key.starts_with(&start));
                let keys = keys.filter_map(|key| key.splitn(3, '/').nth(2)).filter(|key| !key.is_empty());
                let keys: String = keys.map(|key| format!("<Contents><Key>{key}</Key></Contents>")).collect();
                if state.is_late && start.matches('/').count() > 2 {
                    state.is_late = false;
                    state.objects.insert(start + "late", Vec::new());
                }
                let name = "ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
                ("200 OK", format!("<{name}>{keys}</ListBucketResult>").into_bytes())
            }
            ("GET", true) => {
                state.gets += 1;
                match state.objects.get(path) {
                    Some(bytes) => ("200 OK", bytes.clone()),
                    None => ("404 Not Found", Vec::new()),
                }
            }
            ("DELETE", _) => {
                state.objects.remove(path);
                ("204 No Content", Vec::new())
            }
            _ => ("400 Bad Request", Vec::new()),
        };
        drop(state);
        let mut stream = stream;
        let length = if status.starts_with("204") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", answer.len())
        };
        stream.write_all(format!("HTTP/1.1 {status}\r\n{length}\r\n").as_bytes()).ok()?;
        stream.write_all(&answer).ok()?;
    }
}

/// A part of a query, without escapes of slashes.
fn asked(query: &str, name: &str) -> String {
    let parts = query.split('&').filter_map(|part| part.split_once('='));
    parts.filter(|part| part.0 == name).map(|part| part.1.replace("%2F", "/")).collect()
}

#[test]
fn objects_are_put_got_and_removed() -> Outcome {
    if !needs(&["fio"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let json = text(&folder.path().join("run.json"));
    let (address, state) = gateway()?;
    let bench = |key: &str, more: &[&str]| {
        let dir = text(folder.path());
        let keys = [format!("AWS_ACCESS_KEY_ID={key}"), "AWS_SECRET_ACCESS_KEY=secret".to_string()];
        let program = env!("CARGO_BIN_EXE_pumice");
        let mut all: Vec<&str> = keys.iter().map(String::as_str).collect();
        all.extend([program, "bench", "s3", "--s3-client", "own", "--size", "64M", "--dir", &dir]);
        all.extend(more);
        in_time("env", &all)
    };
    let none = format!("none=s3+http://{address}/plain");
    let drive = format!("drive=s3+http://{address}/packed?class=FAST");
    // What others have in a bucket is not the run's.
    let theirs = "/plain/theirs".to_string();
    state.lock().map_err(|_| "a lock")?.objects.insert(theirs.clone(), b"theirs".to_vec());
    // Without time the first target is measured all the same, and the other left out, which is no failure.
    let run = bench("key", &["--minutes", "0", "--target", &none, "--target", &drive, "--json", &json]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let packed = bench("key", &["--minutes", "0", "--target", &drive, "--target", &none]);
    assert_eq!(packed.code, Some(0), "{packed:?}");
    let found: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
    let job = |step: &str| {
        let mut all = found["series"].as_array().into_iter().flatten();
        let series = all.find(|it| it["step"] == step && it["target"] == "none");
        series.and_then(|it| it["samples"][0]["bytes"].as_u64())
    };
    assert_eq!(job("PUT"), Some(64 << 20), "{found:#}");
    assert!(job("GET") >= Some(4 << 20), "{found:#}");
    {
        let state = state.lock().map_err(|_| "a lock")?;
        // The bucket `packed` was made, and is gone too.
        assert_eq!(state.objects.keys().collect::<Vec<_>>(), [&theirs]);
        assert_eq!(state.objects[&theirs], b"theirs");
        assert!(state.gets > 0);
        for (bucket, class) in [("/plain/", None), ("/packed/", Some("FAST"))] {
            let puts: Vec<_> = state.puts.iter().filter(|put| put.0.starts_with(bucket)).collect();
            assert_eq!(puts.len(), 16, "{bucket}: {puts:?}");
            assert!(puts.iter().all(|put| put.1.as_deref() == class), "{puts:?}");
        }
    }
    // Nobody named drives.
    let space = found["findings"].as_array().into_iter().flatten().find(|it| it["statement"] == "can-space");
    assert_eq!(space.map(|it| it["verdict"].clone()), Some("cannot_be_tested".into()), "{found:#}");
    let refused = |run: common::Run, code: i32, why: &str| {
        assert!(run.code == Some(code) && run.stderr.lines().count() == 1, "{run:?}");
        assert!(run.stderr.contains(why), "{run:?}");
    };
    let forbidden = "target none: the gateway answers with HTTP status 403";
    refused(bench("other", &["--target", &none, "--target", &drive]), 2, forbidden);
    refused(bench("key", &["--target", &none]), 1, "target drive: missing");
    // Before anything is put to the other.
    state.lock().map_err(|_| "a lock")?.puts.clear();
    let nobody = "drive=s3+http://127.0.0.1:1/c";
    refused(bench("key", &["--target", &none, "--target", nobody]), 2, "target drive: http://127.0.0.1:1");
    assert!(state.lock().map_err(|_| "a lock")?.puts.is_empty());
    Ok(())
}

/// A stand-in for warp: it puts two objects under its prefix, and has figures at once.
const WARP: &str = r#"#!/bin/bash
echo "$@" >>CALLS
for word in "$@"; do
    case $word in --bucket=*|--prefix=*|--benchdata=*) word=${word#--}; declare "${word%%=*}=${word#*=}" ;; esac
done
figures='{"total_requests": 100, "total_errors": 0, "total_bytes": 419430400,
    "throughput": {"measure_duration_millis": 4000, "bytes": 400000000}}'
case $1 in
--version) echo "warp version VERSION - abc" ;;
analyze)
    # As warp says it of requests of which none is in the middle of the time.
    ! grep -qs few "${@: -1}" || figures='{"total_requests": 9, "total_errors": 0, "total_bytes": 0, "throughput": {"measure_duration_millis": 0}}'
    echo "{\"by_op_type\": {\"PUT\": $figures, \"GET\": $figures}}" ;;
put)
    [ ! -e FAIL ] || { echo "warp: <ERROR> Error preparing server: denied." >&2; exit 1; }
    for object in 1 2; do
        exec 3<>"/dev/tcp/${WARP_HOST/://}"
        printf 'PUT /%s/%s/AbCd/%s.rnd?X-Amz-Credential=%s%%2F HTTP/1.1\r\nContent-Length: 4\r\n\r\ndata' \
            "$bucket" "$prefix" "$object" "$WARP_ACCESS_KEY" >&3
        read -r answer <&3
        exec 3>&-
    done
    [[ $bucket = warp-none && -e FEW ]] && echo few >"$benchdata.json.zst" || : >"$benchdata.json.zst" ;;
get) : >"$benchdata.json.zst" ;;
esac
"#;

#[test]
fn objects_are_put_and_got_by_warp() -> Outcome {
    if !needs(&["fio", "bash"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let [program, calls, fail, few] = ["warp", "calls", "fail", "few"].map(|name| folder.path().join(name));
    let install = |version: &str| -> Outcome {
        let script = WARP.replace("CALLS", &text(&calls)).replace("FAIL", &text(&fail));
        let script = script.replace("FEW", &text(&few));
        // By a shell: what this process has open for writing, another test's process may have for a moment,
        // too, and then it cannot be run.
        let write = r#"printf %s "$2" >"$1" && chmod 755 "$1""#;
        let script = script.replace("VERSION", version);
        let run = in_time("sh", &["-c", write, "sh", &text(&program), &script]);
        assert_eq!(run.code, Some(0), "{run:?}");
        Ok(())
    };
    let (address, state) = gateway()?;
    let json = text(&folder.path().join("run.json"));
    let targets =
        ["none", "drive"].map(|name| format!("{name}=s3+http://{address}/warp-{name}?class=STANDARD"));
    let bench = |client: &str| {
        let (dir, path) = (text(folder.path()), std::env::var("PATH").unwrap_or_default());
        let path = format!("PATH={dir}:{path}");
        let mut all = vec![&*path, "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=top-secret"];
        all.extend([env!("CARGO_BIN_EXE_pumice"), "bench", "s3", "--s3-client", client, "--size", "64M"]);
        all.extend(["--dir", &dir, "--minutes", "0", "--json", &json]);
        targets.iter().for_each(|target| all.extend(["--target", target]));
        in_time("env", &all)
    };
    let found = || -> Outcome<Value> { Ok(serde_json::from_str(&fs::read_to_string(&json)?)?) };
    install("1.3.1")?;
    let run = bench("auto");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("objects put and got by the client: warp 1.3.1"), "{run:?}");
    assert!(run.stdout.contains("warp 1.3.1: its data is random, which does not compress"), "{run:?}");
    let document = found()?;
    assert_eq!(document["s3_client"], "warp 1.3.1", "{document:#}");
    let series = document["series"].as_array().ok_or("series")?;
    assert_eq!(series[0]["scene"], "random", "{document:#}");
    assert_eq!(series[0]["samples"][0]["bytes"], 419_430_400, "{document:#}");
    assert_eq!(series[0]["mb_per_s"]["median"], 100.0, "{document:#}");
    let space = document["findings"].as_array().into_iter().flatten();
    assert!(space.clone().count() == 6 && space.clone().all(|it| it["verdict"] == "cannot_be_tested"));
    let said = fs::read_to_string(&calls)?;
    assert!(said.contains("--noclear") && !said.contains("top-secret"), "{said}");
    // Too few requests for a figure are no failure: nothing is said of that target.
    fs::write(&few, "")?;
    let run = bench("warp");
    assert_eq!(run.code, Some(0), "{run:?}");
    let document = found()?;
    let failed = document["failed"].as_array().map_or(0, Vec::len);
    assert_eq!((&document["complete"], failed), (&Value::Bool(false), 0), "{document:#}");
    let left_out = "random on none: warp: too few requests for a figure, 9: the gateway is too slow for warp";
    assert!(document["left_out"][0].as_str().unwrap_or_default().starts_with(left_out), "{document:#}");
    fs::remove_file(&few)?;
    {
        let mut state = state.lock().map_err(|_| "a lock")?;
        assert_eq!(state.puts.len(), 6, "{:?}", state.puts);
        // What it put is gone, and so are the buckets that were made.
        assert_eq!(state.objects.keys().count(), 0);
        state.objects.insert("/warp-none/theirs".to_string(), b"theirs".to_vec());
    }
    // warp is kept from a bucket with objects of others.
    let run = bench("warp");
    assert_eq!(run.code, Some(1), "{run:?}");
    let holds = "target none: the bucket warp-none holds objects, such as theirs";
    assert!(run.stderr.contains(holds), "{run:?}");
    let run = bench("auto");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(found()?["s3_client"], "own");
    assert!(run.stdout.contains(&format!("the client is this program's own: {holds}")), "{run:?}");
    assert_eq!(state.lock().map_err(|_| "a lock")?.objects.keys().collect::<Vec<_>>(), ["/warp-none/theirs"]);
    state.lock().map_err(|_| "a lock")?.objects.clear();
    fs::write(&fail, "")?;
    let run = bench("warp");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.ends_with("pumice: warp: Error preparing server: denied.\n"), "{run:?}");
    // What the gateway stores after the objects were removed is looked for at the end.
    state.lock().map_err(|_| "a lock")?.is_late = true;
    let run = bench("warp");
    assert_eq!(run.code, Some(1), "{run:?}");
    {
        let state = state.lock().map_err(|_| "a lock")?;
        assert!(!state.is_late && state.objects.is_empty(), "{:?}", state.objects.keys());
    }
    install("0.7.0")?;
    let run = bench("warp");
    assert!(run.code == Some(1) && run.stderr.contains("too old, expected 0.8.0 or newer"), "{run:?}");
    assert_eq!(bench("auto").code, Some(0));
    assert_eq!(found()?["s3_client"], "own");
    Ok(())
}
