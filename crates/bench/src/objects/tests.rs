//! A stand-in for a gateway, and what is put to it and got from it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rusty_s3::{Bucket, Credentials, UrlStyle};

use super::gateway::agent;
use super::*;

#[test]
fn data_has_its_share_of_zeros() {
    let job = ObjectJob { is_put: true, object_kib: 64, clients: 1, zeros_percent: 25, warp: None };
    let (mut one, mut again) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    job.fill(7, &mut one);
    job.fill(7, &mut again);
    assert_eq!(one, again);
    job.fill(8, &mut again);
    assert_ne!(one, again);
    let zeros = one.iter().filter(|byte| **byte == 0).count();
    // A quarter, and one in 256 of the rest.
    assert!((16_384..17_000).contains(&zeros), "{zeros}");
    assert_eq!((job.count(1 << 20), job.count(1)), (16, 1));
}

/// Answers a request: its method, its path and the number of its connection.
pub(crate) type Answer = dyn Fn(&str, &str, usize) -> (&'static str, Vec<u8>) + Send + Sync;

/// A stand-in for a gateway, which ends with the test, and access to a bucket in it.
pub(crate) fn gateway(answer: Box<Answer>) -> Access {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let answer: Arc<Answer> = answer.into();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(|it| it.ok()).enumerate() {
            let answer = answer.clone();
            std::thread::spawn(move || serve(&stream, number, &*answer));
        }
    });
    Access::new(
        Gateway { agent: agent(), bucket: bucket(&endpoint), credentials: Credentials::new("key", "secret") },
        None,
        "run/".to_string(),
        Stop::default(),
    )
}

fn bucket(endpoint: &str) -> Bucket {
    let endpoint = endpoint.parse().expect("a URL");
    Bucket::new(endpoint, UrlStyle::Path, "b", "us-east-1").expect("a bucket")
}

#[test]
fn a_gateway_that_does_not_answer_does_not_hold_a_run() {
    let access = gateway(Box::new(|_, _, _| {
        std::thread::sleep(PATIENCE);
        ("200 OK", listed(&[]))
    }));
    let stop = Stop::default();
    let since = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(POLL * 3);
            stop.set();
        });
        assert!(access.first_key(&stop).expect_err("interrupted").is_interrupted());
    });
    assert!(since.elapsed() < PATIENCE / 2);
}

#[test]
fn what_a_client_that_was_killed_has_put_is_waited_for() {
    let listings = Arc::new(Mutex::new(Vec::new()));
    let seen = listings.clone();
    let access = gateway(Box::new(move |_, _, _| {
        seen.lock().expect("a lock").push(Instant::now());
        ("200 OK", listed(&[]))
    }));
    access.will_be_put_to();
    let killed_at = Instant::now();
    access.was_cut();
    assert_eq!(access.remove_all(), None);
    let seen = listings.lock().expect("a lock");
    assert!(seen.len() == 1 && seen[0] - killed_at >= LATE, "{seen:?}");
}

/// Access to a bucket behind a gateway that asks to stop as soon as it is asked what it does not answer, and
/// the request to stop.
fn hung(is_answered: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> (Access, Stop) {
    let stop = Stop::default();
    let at_request = stop.clone();
    let mut access = gateway(Box::new(move |method, path, _| {
        if !is_answered(method, path) {
            at_request.set();
            std::thread::sleep(PATIENCE * 2);
        }
        if method == "HEAD" {
            ("404 Not Found", Vec::new())
        } else {
            ("200 OK", listed(&["run/1".to_string()]))
        }
    }));
    access.stop = stop.clone();
    (access, stop)
}

#[test]
fn after_an_interruption_a_gateway_that_does_not_answer_is_not_waited_for() {
    const CUT: &str = "S3 gateway: no end 3 seconds after the interruption";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (access, _stop) = hung(|method, _| method == "PUT");
            (0..3).for_each(|object| access.put(object, &[1; 16]).expect("put"));
            access.is_made.store(true, Ordering::Relaxed);
            let stays = access.remove_all().expect("all stay");
            let bucket = "; so does the bucket, made for the run";
            assert_eq!(stays, format!("3 objects may stay under b/run/: {CUT}{bucket}"));
            assert_eq!(access.remove_all(), None, "it is not tried again");
        });
        for (answered, named) in [("PUT", ""), ("GET", "; such as run/1")] {
            scope.spawn(move || {
                let (access, _stop) = hung(move |method, _| method == answered);
                access.will_be_put_to();
                let stays = access.remove_all().expect("they stay");
                assert_eq!(stays, format!("objects may stay under b/run/: {CUT}{named}"));
            });
        }
        scope.spawn(|| {
            let (access, _stop) = hung(|_, path| path != "/b/" && path != "/b");
            access.is_made.store(true, Ordering::Relaxed);
            let stays = access.remove_all().expect("it stays");
            assert_eq!(stays, format!("the bucket b, made for the run, stays: {CUT}"));
        });
        scope.spawn(|| {
            let (access, _stop) = hung(|method, _| method == "HEAD");
            let error = access.open_bucket().expect_err("interrupted");
            assert!(error.is_interrupted(), "{error}");
            assert_eq!(error.to_string(), format!("interrupted; the bucket b may have been made: {CUT}"));
        });
        for is_put in [true, false] {
            scope.spawn(move || {
                let (access, stop) = hung(|_, _| false);
                let (job, access) = (ObjectJob { is_put, ..GET }, Arc::new(access));
                let error = run(&job, &access, 4096, 1, &stop).map(drop).expect_err("interrupted");
                assert!(error.is_interrupted() && access.may_be_late() == is_put, "{error}");
            });
        }
        // One that answers is cleaned up after an interruption, too.
        scope.spawn(|| {
            let (access, stop) = hung(|_, _| true);
            access.put(0, &[1; 16]).expect("put");
            stop.set();
            access.is_made.store(true, Ordering::Relaxed);
            assert_eq!(access.remove_all(), None);
        });
    });
}

#[test]
fn a_gateway_that_does_not_say_whether_there_is_a_bucket_is_given_up() {
    let access = gateway(Box::new(|_, _, _| {
        std::thread::sleep(PATIENCE);
        ("200 OK", Vec::new())
    }));
    let error = access.is_there().expect_err("no answer").to_string();
    assert!(error.starts_with("target b: http://127.0.0.1:"), "{error}");
    assert!(error.ends_with(": the gateway does not answer within 10 seconds"), "{error}");
}

#[test]
fn a_gateway_that_is_busy_between_scenes_is_waited_for() {
    let access = gateway(Box::new(|_, _, _| {
        std::thread::sleep(ANSWER + Duration::from_secs(1));
        ("200 OK", Vec::new())
    }));
    access.open_bucket().expect("the bucket is there");
}

#[test]
fn what_a_gateway_stores_late_is_removed_or_named() {
    let late = Arc::new(Mutex::new(vec!["run/1".to_string()]));
    let (held, stuck) = (late.clone(), Arc::new(AtomicBool::new(false)));
    let is_stuck = stuck.clone();
    let access = gateway(Box::new(move |method, _, _| {
        let mut held = held.lock().expect("a lock");
        if method == "DELETE" && !is_stuck.load(Ordering::Relaxed) {
            held.clear();
        }
        ("200 OK", listed(&held))
    }));
    assert_eq!((access.remove_late(), late.lock().expect("a lock").len()), (None, 0));
    stuck.store(true, Ordering::Relaxed);
    late.lock().expect("a lock").extend((1..=5).map(|number| format!("run/{number}")));
    let stays = access.remove_late().expect("they stay");
    let named = "the gateway still lists what was removed; such as run/1, run/2, run/3";
    assert_eq!(stays, format!("objects may stay under b/run/: {named}"));
}

fn serve(stream: &TcpStream, number: usize, answer: &Answer) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink()).ok()?;
        let (method, target) = line.split_once(' ')?;
        let (status, body) = answer(method, target.split_once('?')?.0, number);
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut stream = stream;
        stream.write_all(&[head.as_bytes(), &body].concat()).ok()?;
    }
}

const GET: ObjectJob = ObjectJob { is_put: false, object_kib: 4, clients: 1, zeros_percent: 25, warp: None };

#[test]
fn objects_are_got_over_one_connection_and_compared() {
    let connections = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = connections.clone();
    let access = gateway(Box::new(move |_, path, number| {
        seen.lock().expect("a lock").insert(number);
        let (mut data, object) = (vec![0; 4096], path.rsplit('/').next().expect("a name"));
        GET.fill(object.parse().expect("a number"), &mut data);
        // Of another length than what was put.
        match object {
            "3" => data.push(0),
            "4" => data.truncate(4095),
            _ => {}
        }
        ("200 OK", data)
    }));
    let mut data = vec![0; 4096];
    for object in [0, 1, 0] {
        access.get(object, &mut data).expect("got");
    }
    assert_eq!(connections.lock().expect("a lock").len(), 1);
    let longer = access.get(3, &mut data).expect_err("longer");
    assert!(longer.to_string().ends_with("run/3: longer than what was put"), "{longer}");
    access.get(4, &mut data).expect_err("shorter");
    // A single object is the last one that is got, too.
    let get = |damage: u8| {
        let access = gateway(Box::new(move |_, _, _| {
            let mut data = vec![0; 4096];
            GET.fill(0, &mut data);
            data[17] ^= damage;
            ("200 OK", data)
        }));
        run(&GET, &Arc::new(access), 4096, 1, &Stop::default())
    };
    assert!(get(0).expect("as put").read_bytes >= 4096);
    let differs = get(1).map(|_| ()).expect_err("damaged").to_string();
    assert!(differs.ends_with("run/0: not what was put"), "{differs}");
}

/// A list of keys.
pub(crate) fn listed(keys: &[String]) -> Vec<u8> {
    let contents =
        keys.iter().map(|key| format!("<Contents><Key>{key}</Key></Contents>")).collect::<String>();
    let name = "ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
    format!("<{name}><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>").into_bytes()
}

#[test]
fn what_others_put_under_the_prefix_is_removed_and_nothing_else() {
    let objects: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let held = objects.clone();
    let access = gateway(Box::new(move |method, path, _| {
        let mut held = held.lock().expect("a lock");
        match method {
            // A gateway that does not mind the prefix.
            "GET" => ("200 OK", listed(&held.iter().cloned().collect::<Vec<_>>())),
            "DELETE" => {
                held.remove(path.trim_start_matches("/b/"));
                ("204 No Content", Vec::new())
            }
            _ => ("400 Bad Request", Vec::new()),
        }
    }));
    let all = || objects.lock().expect("a lock").iter().cloned().collect::<Vec<_>>();
    let never = Stop::default();
    assert_eq!(access.first_key(&never).expect("a list"), None);
    objects.lock().expect("a lock").extend(["run/x/1", "run/y/2", "runs/3", "theirs"].map(str::to_string));
    // Nothing was put for the run.
    assert_eq!((access.remove_all(), all().len()), (None, 4));
    access.will_be_put_to();
    assert_eq!(access.remove_all(), None);
    assert_eq!(all(), ["runs/3", "theirs"]);
    assert_eq!(access.first_key(&never).expect("a list").as_deref(), Some("runs/3"));
    // One that lists what is gone.
    let stuck = gateway(Box::new(|method, _, _| match method {
        "GET" => ("200 OK", listed(&["run/1".to_string()])),
        _ => ("204 No Content", Vec::new()),
    }));
    stuck.will_be_put_to();
    let stays = stuck.remove_all().expect("it seems to stay");
    assert!(stays.starts_with("objects may stay under b/run/: the gateway still lists"), "{stays}");
    let denied = gateway(Box::new(|method, _, _| match method {
        "GET" => ("200 OK", listed(&["run/1".to_string()])),
        _ => ("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>".to_vec()),
    }));
    denied.will_be_put_to();
    let stays = denied.remove_all().expect("it stays");
    assert!(stays.contains("b/run/") && stays.contains("AccessDenied"), "{stays}");
    let missing = gateway(Box::new(|_, _, _| ("404 Not Found", Vec::new())));
    missing.will_be_put_to();
    assert_eq!((missing.first_key(&never).expect("no bucket"), missing.remove_all()), (None, None));
}

#[test]
fn what_cannot_be_removed_is_counted() {
    let access = gateway(Box::new(|method, path, _| match (method, path) {
        ("DELETE", "/b/run/0") => ("404 Not Found", Vec::new()),
        ("DELETE", "/b/run/1") => ("204 No Content", Vec::new()),
        ("DELETE", _) => ("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>".to_vec()),
        _ => ("200 OK", Vec::new()),
    }));
    for object in 0..4 {
        access.put(object, &[1; 16]).expect("put");
    }
    let stays = access.remove_all().expect("two stay");
    assert!(stays.starts_with("2 objects may stay under b/run/: "), "{stays}");
    assert!(stays.contains("403") && stays.contains("AccessDenied"), "{stays}");
    assert_eq!(access.remove_all(), None);
    // A bucket that somebody else has put something into.
    access.is_made.store(true, Ordering::Relaxed);
    let stays = access.remove_all().expect("the bucket stays");
    assert!(stays.starts_with("the bucket b, made for the run, stays: "), "{stays}");
    // Nobody answers any more.
    let mut gone = gateway(Box::new(|_, _, _| ("200 OK", Vec::new())));
    gone.put(6, &[1; 16]).expect("put");
    gone.gateway.bucket = bucket("http://127.0.0.1:1");
    let stays = gone.remove_all().expect("all stay");
    assert!(stays.starts_with("7 objects may stay under b/run/: "), "{stays}");
}
