//! Tests of finding drives among servers that hang, fill memory or are gone.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// A server of one drive, and how often it was asked. It answers after a time; never without one.
fn server(dir: &Path, name: &str, drive: &str, after: Option<Duration>) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(dir.join(name)).expect("bound");
    let drives = vec![StatusReport { path: drive.into(), ..StatusReport::default() }];
    let answer = serde_json::to_string(&StatusAnswer { drives }).expect("JSON");
    let count = Arc::new(AtomicUsize::new(0));
    let asked = count.clone();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming().flatten() {
            asked.fetch_add(1, Ordering::Relaxed);
            let Some(after) = after else {
                silent.push(stream);
                continue;
            };
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            thread::sleep(after);
            let _ = writeln!(&stream, "{answer}");
        }
    });
    count
}

/// Far more than any server takes that answers.
const LONG: Duration = Duration::from_secs(30);

fn search(dir: &tempfile::TempDir, path: &str, glance: Duration) -> DriveSearch {
    let search = DriveSearch::in_dirs(Path::new(path), vec![dir.path().to_path_buf()]);
    DriveSearch { glance, patience: LONG, ..search }
}

#[test]
fn a_server_is_known_by_its_process_id_here() {
    let dir = tempfile::tempdir().expect("a directory");
    let listener = UnixListener::bind(dir.path().join("down-1.sock")).expect("bound");
    // As in a container: it takes itself for process 1.
    let server = Some(status::ServerReport { pid: 1, ..status::ServerReport::default() });
    let drives = vec![StatusReport { path: "/drive".into(), server, ..StatusReport::default() }];
    let answer = serde_json::to_string(&StatusAnswer { drives }).expect("JSON");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = writeln!(&stream, "{answer}");
        }
    });
    let drive = search(&dir, "/drive", LONG);
    // The second time it is asked without a search.
    for _ in 0..2 {
        let found = drive.find().expect("found");
        assert_eq!(found.server.expect("a server").pid, std::process::id());
    }
}

#[test]
fn a_server_that_hangs_delays_no_other_drive() {
    let dir = tempfile::tempdir().expect("a directory");
    let hung = server(dir.path(), "down-1.sock", "/hung", None);
    let asked = server(dir.path(), "down-2.sock", "/drive", Some(Duration::ZERO));
    let other = server(dir.path(), "down-3.sock", "/other", Some(Duration::ZERO));
    let since = Instant::now();
    let drive = search(&dir, "/drive", LONG);
    for _ in 0..10 {
        assert_eq!(drive.find().expect("found").path, Path::new("/drive"));
    }
    assert_eq!(drive.find_patiently().expect("found").path, Path::new("/drive"));
    assert!(since.elapsed() < LONG, "it is not waited for");
    let counts = [&hung, &asked, &other].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts[1], 11);
    assert!(counts[0] <= 1 && counts[2] <= 1, "only the right one is asked again: {counts:?}");
    // A drive that nobody has: the one that hangs may have it, and is waited for once.
    let glance = Duration::from_secs(2);
    let (nobody, since) = (search(&dir, "/nobody", glance), Instant::now());
    for _ in 0..5 {
        assert!(nobody.find().is_none());
    }
    assert!(since.elapsed() < glance * 4, "not each time: {:?}", since.elapsed());
}

/// Servers of long answers. Each waits with the end of its answer until all have sent the rest, or one of
/// them was not taken.
fn filling(dir: &tempfile::TempDir, count: usize) {
    let bytes = 15 << 20;
    let (sent, is_refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for number in 0..count {
        let listener = UnixListener::bind(dir.path().join(format!("down-1{number}.sock"))).expect("bound");
        let (sent, is_refused) = (sent.clone(), is_refused.clone());
        thread::spawn(move || {
            // One asks, and others see whether it is dead.
            for stream in listener.incoming().flatten() {
                if !BufReader::new(&stream).read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {
                    continue;
                }
                match (&stream).write_all(&vec![b' '; bytes]) {
                    Ok(()) => _ = sent.fetch_add(1, Ordering::Relaxed),
                    Err(_) => is_refused.store(true, Ordering::Relaxed),
                }
                while !is_refused.load(Ordering::Relaxed) && sent.load(Ordering::Relaxed) < count {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
    }
}

#[test]
fn servers_that_fill_the_memory_hide_no_drive() {
    let [dir, other] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let count = 8;
    filling(&dir, count);
    let asked = server(dir.path(), "down-9.sock", "/drive", Some(Duration::from_millis(100)));
    assert!(search(&dir, "/drive", LONG).find_patiently().is_some());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // No search takes them all.
    filling(&other, count);
    let found = search(&other, "/nobody", LONG).search_within(LONG);
    let refused = |it: &&SilentServer| it.what.ends_with("the answers of all servers are longer than 64 MiB");
    assert!(found.silent.iter().filter(refused).count() > 0, "{:?}", found.silent);
    assert_eq!(found.silent.len(), count);
}

#[test]
fn a_look_names_servers_that_do_not_answer_and_finds_drives_that_are_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let _hung = server(dir.path(), "down-1.sock", "/hung", None);
    server(dir.path(), "down-2.sock", "/drive", Some(Duration::ZERO));
    let look = |path: &str, patience| search(&dir, path, LONG).search_within(patience);
    let patience = Duration::from_secs(5);
    let found = look("/drive", LONG);
    assert_eq!((found.drives.len(), found.silent), (1, Vec::new()));
    let found = look("/nobody", patience);
    assert_eq!((found.drives.len(), found.silent.len()), (0, 1), "{:?}", found.silent);
    let hung = &found.silent[0];
    assert_eq!((&hung.socket, hung.pid), (&dir.path().join("down-1.sock"), Some(std::process::id())));
    assert!(hung.what.starts_with("did not answer within "), "{hung}");
    let answers = |name: &str, text: &'static str| {
        let listener = UnixListener::bind(dir.path().join(name)).expect("bound");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                let _ = writeln!(&stream, "{text}");
            }
        });
    };
    answers("down-3.sock", r#"{"drives":[{"path":"/down","state":"down"}]}"#);
    answers("down-4.sock", r#"{"error":"too old"}"#);
    answers("down-5.sock", "NBDMAGICIHAVEOPT");
    let found = look("/down", patience);
    assert_eq!((found.drives.len(), found.silent.len()), (1, 2), "{:?}", found.silent);
    assert_eq!(found.drives[0].state, DriveState::Down);
    assert_eq!(found.silent[1].what, "gives no status: it answers: too old");
}

#[test]
fn an_answer_at_the_last_moment_is_a_drive_or_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    server(dir.path(), "down-1.sock", "/drive", Some(Duration::ZERO));
    // It answers while these are being asked, when the time is over.
    let hung = |number| UnixListener::bind(dir.path().join(format!("down-2{number}.sock"))).expect("bound");
    let listeners: Vec<_> = (0..60).map(hung).collect();
    for _ in 0..3 {
        let drive = search(&dir, "/drive", LONG);
        let found = DriveSearch { patience: Duration::from_secs(1), ..drive }.search_within(Duration::ZERO);
        let named = found.silent.iter().filter(|it| it.socket.ends_with("down-1.sock")).count();
        assert_eq!(found.drives.len() + named, 1, "{found:?}");
        assert!(found.drives.len() == 1 || found.silent.len() == listeners.len() + 1, "{found:?}");
    }
}

#[test]
fn very_many_sockets_of_servers_that_hang_do_not_hide_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let hung =
        |number| UnixListener::bind(dir.path().join(format!("down-1{number:03}.sock"))).expect("bound");
    let _listeners: Vec<_> = (0..ASKED_MAX).map(hung).collect();
    server(dir.path(), "down-9.sock", "/drive", Some(Duration::ZERO));
    let patience = Duration::from_secs(5);
    let drive = DriveSearch { patience, ..search(&dir, "/drive", patience / 4) };
    let found = drive.search_within(patience / 4);
    assert_eq!((found.drives.len(), found.silent.len()), (0, ASKED_MAX + 1), "all are named");
    let last = &found.silent[ASKED_MAX];
    assert_eq!(last.socket, dir.path().join("down-9.sock"));
    assert_eq!(last.what, format!("was not asked, because {ASKED_MAX} others did not answer"));
    // Once those that hang are given up, the one that was not asked yet comes first.
    let since = Instant::now();
    while !drive.state.lock().asked.is_empty() {
        assert!(since.elapsed() < LONG, "they are given up");
        thread::sleep(Duration::from_millis(50));
    }
    let (to_ask, _) = drive.to_ask(None);
    assert_eq!((to_ask.len(), &to_ask[0]), (ASKED_MAX + 1, &dir.path().join("down-9.sock")));
    assert!(drive.find_patiently().is_some());
}

#[test]
fn what_servers_left_behind_is_gone_when_the_drive_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let (rounds, mut at_once) = (20, 0);
    for _ in 0..rounds {
        server(dir.path(), "down-6.sock", "/drive", Some(Duration::ZERO));
        for number in 0..20 {
            // Before and behind the one that answers.
            for name in ["1", "9"] {
                drop(
                    UnixListener::bind(dir.path().join(format!("down-{name}{number}.sock"))).expect("bound"),
                );
            }
        }
        let (since, mut looks) = (Instant::now(), 0);
        loop {
            assert!(search(&dir, "/drive", LONG).find_patiently().is_some());
            looks += 1;
            let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
            if left.len() == 1 {
                break;
            }
            // A process that another test starts holds what this one has dropped, until it runs its
            // program.
            assert!(since.elapsed() < LONG, "{left:?}");
            thread::sleep(Duration::from_millis(10));
        }
        at_once += usize::from(looks == 1);
        std::fs::remove_file(dir.path().join("down-6.sock")).expect("removed");
    }
    assert!(at_once >= rounds / 2, "{at_once}");
}

#[test]
fn a_server_that_listens_still_is_asked_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("down-1.sock");
    let listener = UnixListener::bind(&socket).expect("bound");
    let answer = r#"{"drives":[{"path":"/drive","state":"online"}]}"#;
    // The second question has no answer, as that of a server which is too busy.
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            if number != 1 {
                let _ = writeln!(&stream, "{answer}");
            }
        }
    });
    let drive = DriveSearch::in_dirs(Path::new("/drive"), vec![dir.path().to_path_buf()]);
    assert!(drive.find().is_some());
    assert!(drive.find_again().is_some());
    std::fs::remove_file(&socket).expect("removed");
    assert!(drive.find_again().is_none(), "it is gone");
}

#[test]
fn threads_share_a_question() {
    let dir = tempfile::tempdir().expect("a directory");
    let asked = server(dir.path(), "down-1.sock", "/drive", Some(Duration::from_millis(250)));
    let hung = server(dir.path(), "down-2.sock", "/hung", None);
    let drive = search(&dir, "/drive", LONG);
    let find = || {
        let drive = drive.clone();
        thread::spawn(move || drive.find().is_some())
    };
    let threads: Vec<_> = (0..8).map(|_| find()).collect();
    for thread in threads {
        assert!(thread.join().expect("no panic"), "each finds it");
    }
    // Once together, and once for each that waited.
    assert!(asked.load(Ordering::Relaxed) <= 8, "{asked:?}");
    assert!(hung.load(Ordering::Relaxed) <= 1);
}

#[test]
fn a_slow_answer_is_used_later_and_a_server_that_is_gone_is_searched_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path();
    server(path, "down-1.sock", "/drive", Some(Duration::from_secs(2)));
    let drive = search(&dir, "/drive", Duration::from_millis(200));
    assert!(drive.find().is_none(), "it is slow");
    let since = Instant::now();
    while drive.find().is_none() {
        assert!(since.elapsed() < LONG, "it was not forgotten");
        thread::sleep(Duration::from_millis(50));
    }
    std::fs::remove_file(path.join("down-1.sock")).expect("removed");
    assert!(drive.find().is_none());
    server(path, "down-2.sock", "/drive", Some(Duration::ZERO));
    assert!(drive.find_patiently().is_some());
}

/// The report of a drive that a server has opened by a path, in a file with this number.
fn report(path: &Path, uuid: &str, inode: u64) -> StatusReport {
    let mut report = StatusReport { path: path.into(), uuid: uuid.to_string(), ..StatusReport::default() };
    report.backing.file = Some(FileId { device: "8:1".to_string(), inode: Some(inode) });
    report
}

/// A server of one drive that answers at once.
fn server_of(dir: &Path, name: &str, report: StatusReport) {
    let listener = UnixListener::bind(dir.join(name)).expect("bound");
    let answer = serde_json::to_string(&StatusAnswer { drives: vec![report] }).expect("JSON");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = writeln!(&stream, "{answer}");
        }
    });
}

#[test]
fn a_server_of_another_drive_at_the_path_hides_no_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = Path::new("/drive");
    server_of(dir.path(), "down-1.sock", report(path, "other", 1));
    let drive = search(&dir, "/drive", LONG);
    let found = |drive: &DriveSearch| drive.find().map(|it| it.backing.file.and_then(|file| file.inode));
    assert_eq!(found(&drive), Some(Some(1)), "whatever is there");
    let drive = drive.for_drive("its", report(path, "its", 3).backing.file.as_ref());
    assert_eq!(found(&drive), Some(Some(1)), "the reason why it waits");
    // A copy comes before another drive, and the drive itself before both, also by another path.
    server_of(dir.path(), "down-2.sock", report(path, "its", 2));
    // A thread of the search before may still ask that server, and keep its answer from this one.
    let finds = |inode: u64| {
        let since = Instant::now();
        while found(&drive) != Some(Some(inode)) {
            assert!(since.elapsed() < LONG, "{inode} is not found");
        }
    };
    finds(2);
    server_of(dir.path(), "down-3.sock", report(Path::new("/moved"), "its", 3));
    finds(3);
    for _ in 0..3 {
        assert_eq!(found(&drive), Some(Some(3)));
    }
    std::fs::remove_file(dir.path().join("down-3.sock")).expect("removed");
    finds(2);
    drive.follow(&report(path, "other", 1));
    finds(1);
}

#[test]
fn threads_find_the_same_drive_among_those_of_its_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = Path::new("/drive");
    server_of(dir.path(), "down-1.sock", report(path, "other", 1));
    let drive = search(&dir, "/drive", LONG).for_drive("its", None);
    for uuid in ["other", "its"] {
        if uuid == "its" {
            server_of(dir.path(), "down-2.sock", report(path, "its", 2));
        }
        let find = || {
            let drive = drive.clone();
            thread::spawn(move || drive.find().map(|it| it.uuid))
        };
        let threads: Vec<_> = (0..8).map(|_| find()).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no panic").as_deref(), Some(uuid));
        }
    }
}
