//! The server of one drive, found again and again: the socket that had the drive is asked first, and alone. If it has to be searched
//! for, all are asked side by side, and the first that has the drive is taken, so that a server that hangs delays no other drive.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use status::{DriveState, StatusAnswer, StatusReport};

use crate::client::exchange::{PATIENCE, Together};
use crate::client::runtime_dir::runtime_dirs;
use crate::client::servers::{
    FoundDrives, SilentServer, ask_status, is_at, parse_status, receive_status, sockets_in,
};

/// Time that a search waits for servers that do not answer. They are not forgotten: the search after their answer finds the drive.
const GLANCE: Duration = Duration::from_secs(1);
/// Interval of looks at what another thread has found.
const POLL: Duration = Duration::from_millis(10);
/// Most servers that are asked at a time.
const ASKED_MAX: usize = 64;

/// See the [module](self). Clones share what they find.
#[derive(Clone)]
pub struct DriveSearch {
    path: PathBuf,
    dirs: Vec<PathBuf>,
    found: Arc<Mutex<Found>>,
    answers: Arc<Answers>,
}

/// Limits the memory for answers of servers that are asked at a time. A search that ends returns nothing of it: its threads do.
#[derive(Default)]
struct Answers {
    received: Together,
    /// One is parsed at a time: its reports may take much more than its text.
    parsing: Mutex<()>,
}

#[derive(Default)]
struct Found {
    /// The socket that had the drive when it was asked last.
    socket: Option<PathBuf>,
    /// Sockets whose answers are waited for, each with the time of the question.
    asked: HashMap<PathBuf, Instant>,
    /// The drive, of a server that could not open it.
    down: Option<StatusReport>,
}

/// Who asks a server.
enum Aside {
    /// A thread of this search.
    Asked,
    /// One of another search, since a moment ago.
    ByOther,
    /// Nobody: none listens there, or there is no thread for it.
    Nobody,
}

impl DriveSearch {
    /// A search for the server of the drive at `path`.
    pub fn new(path: &Path) -> DriveSearch {
        DriveSearch::in_dirs(path, runtime_dirs())
    }

    fn in_dirs(path: &Path, dirs: Vec<PathBuf>) -> DriveSearch {
        DriveSearch { path: path.to_path_buf(), dirs, found: Arc::default(), answers: Arc::default() }
    }

    /// The drive as its server reports it; `None` if no server has it open, or if its server has not answered in time: within ten
    /// seconds if it had the drive before, else within one.
    pub fn find(&self) -> Option<StatusReport> {
        self.find_within(GLANCE)
    }

    /// As [`DriveSearch::find`], and waits ten seconds for servers that do not answer.
    pub fn find_patiently(&self) -> Option<StatusReport> {
        self.find_within(PATIENCE)
    }

    /// As [`DriveSearch::find_patiently`], with the admin socket of the server.
    pub(super) fn find_with_socket(&self) -> Option<(PathBuf, StatusReport)> {
        let report = self.find_patiently()?;
        let socket = self.found.lock().socket.clone()?;
        Some((socket, report))
    }

    /// The drive as its server reports it, also if it is down, and the servers that have not answered within `patience` if there is
    /// none.
    pub(super) fn look(&self, patience: Duration) -> FoundDrives {
        if let Some(report) = self.find_within(patience) {
            return FoundDrives { drives: vec![report], silent: Vec::new() };
        }
        let mut found = self.found.lock();
        let drives = found.down.take().into_iter().collect();
        let mut sockets: Vec<PathBuf> = found.asked.keys().cloned().collect();
        drop(found);
        sockets.sort();
        FoundDrives { drives, silent: sockets.into_iter().map(SilentServer::at).collect() }
    }

    fn find_within(&self, patience: Duration) -> Option<StatusReport> {
        let known = self.found.lock().socket.clone();
        if let Some(known) = &known {
            if let Some(report) = self.ask(known) {
                return Some(report);
            }
            let mut found = self.found.lock();
            if found.socket.as_ref() == Some(known) {
                found.socket = None;
            }
        }
        let since = Instant::now();
        let (mut sockets, mut others) = (Vec::new(), Vec::new());
        for socket in sockets_in(&self.dirs).into_iter().filter(|socket| Some(socket) != known.as_ref()) {
            // None is asked twice at a time.
            match self.found.lock().asked.get(&socket).map(Instant::elapsed) {
                None => sockets.push(socket),
                Some(elapsed) if elapsed < GLANCE => others.push(socket),
                Some(_) => {}
            }
        }
        let mut sockets = sockets.into_iter();
        let (sender, answers) = channel();
        let mut waiting = 0;
        loop {
            while waiting < ASKED_MAX && self.found.lock().asked.len() < ASKED_MAX {
                let Some(socket) = sockets.next() else { break };
                match self.ask_aside(&socket, sender.clone()) {
                    Aside::Asked => waiting += 1,
                    Aside::ByOther => others.push(socket),
                    Aside::Nobody => {}
                }
            }
            let (socket, others_are_asked) = {
                let found = self.found.lock();
                (found.socket.clone(), others.iter().any(|socket| found.asked.contains_key(socket)))
            };
            if let Some(socket) = socket.filter(|socket| others.contains(socket)) {
                return self.ask(&socket);
            }
            // What others ask is waited for, but not long.
            let patience = if waiting > 0 { patience } else { patience.min(GLANCE) };
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() || (waiting == 0 && !others_are_asked) {
                return None;
            }
            match answers.recv_timeout(if others_are_asked { left.min(POLL) } else { left }) {
                Ok(Some(report)) => return Some(report),
                Ok(None) => waiting -= 1,
                Err(_) => {}
            }
        }
    }

    /// Asks a server on a thread of its own. A socket that a server left behind is removed here: who finds the drive may end
    /// before a thread has done it.
    fn ask_aside(&self, socket: &Path, sender: Sender<Option<StatusReport>>) -> Aside {
        match self.found.lock().asked.entry(socket.to_path_buf()) {
            Entry::Occupied(_) => return Aside::ByOther,
            Entry::Vacant(place) => place.insert(Instant::now()),
        };
        let (search, asked) = (self.clone(), socket.to_path_buf());
        let is_asked = match socket_file::connect(socket, Duration::ZERO) {
            Ok(stream) => spawn(move || {
                let report = search.ask_on(stream);
                search.take(asked, report, &sender);
            }),
            // More clients wait than it accepts.
            Err(error) if error.kind() == ErrorKind::TimedOut => spawn(move || {
                let stream = socket_file::connect(&asked, PATIENCE).ok();
                let report = stream.and_then(|stream| search.ask_on(stream));
                search.take(asked, report, &sender);
            }),
            Err(_) => {
                socket_file::remove_if_dead(socket);
                false
            }
        };
        if is_asked {
            return Aside::Asked;
        }
        self.found.lock().asked.remove(socket);
        Aside::Nobody
    }

    /// Takes the answer of a server that was asked.
    fn take(&self, asked: PathBuf, report: Option<StatusReport>, sender: &Sender<Option<StatusReport>>) {
        let mut found = self.found.lock();
        found.asked.remove(&asked);
        if report.is_some() {
            found.socket = Some(asked);
        }
        drop(found);
        // Fails when nobody waits any more.
        let _ = sender.send(report);
    }

    /// The drive as the server at a socket reports it, if that has it open.
    fn ask(&self, socket: &Path) -> Option<StatusReport> {
        let answer = ask_status(socket).ok();
        if answer.is_none() {
            socket_file::remove_if_dead(socket);
        }
        self.drive_in(answer)
    }

    /// As [`DriveSearch::ask`], for one of many servers that are asked at a time.
    fn ask_on(&self, stream: UnixStream) -> Option<StatusReport> {
        let mut part = self.answers.received.part();
        let answer = receive_status(stream, &mut part).ok()?;
        let _one = self.answers.parsing.lock();
        self.drive_in(parse_status(&answer))
    }

    fn drive_in(&self, answer: Option<StatusAnswer>) -> Option<StatusReport> {
        let at_path = answer?.drives.into_iter().filter(|report| is_at(report, &self.path));
        let (down, open): (Vec<_>, Vec<_>) = at_path.partition(|report| report.state == DriveState::Down);
        if let Some(down) = down.into_iter().next() {
            self.found.lock().down = Some(down);
        }
        open.into_iter().next()
    }
}

/// Returns false if there is no thread for it.
fn spawn(ask: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name("drive-search".into()).spawn(ask).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    #[test]
    fn a_server_that_hangs_delays_no_other_drive() {
        let dir = tempfile::tempdir().expect("a directory");
        let hung = server(dir.path(), "a.sock", "/hung", None);
        let asked = server(dir.path(), "b.sock", "/drive", Some(Duration::ZERO));
        let other = server(dir.path(), "c.sock", "/other", Some(Duration::ZERO));
        let search = |path: &str| DriveSearch::in_dirs(Path::new(path), vec![dir.path().to_path_buf()]);
        let since = Instant::now();
        let drive = search("/drive");
        for _ in 0..10 {
            assert_eq!(drive.find().expect("found").path, Path::new("/drive"));
        }
        assert_eq!(drive.find_patiently().expect("found").path, Path::new("/drive"));
        assert!(since.elapsed() < GLANCE * 5, "it is not waited for");
        let counts = [&hung, &asked, &other].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts[1], 11);
        assert!(counts[0] <= 1 && counts[2] <= 1, "only the right one is asked again: {counts:?}");
        // A drive that nobody has: the one that hangs may have it, and is waited for once.
        let (nobody, since) = (search("/nobody"), Instant::now());
        for _ in 0..5 {
            assert!(nobody.find().is_none());
        }
        assert!(since.elapsed() < GLANCE * 4, "not each time: {:?}", since.elapsed());
    }

    #[test]
    fn servers_that_fill_the_memory_hide_no_drive() {
        let dir = tempfile::tempdir().expect("a directory");
        let (count, bytes) = (8, 15 << 20);
        let (sender, sent) = channel();
        for number in 0..count {
            let listener = UnixListener::bind(dir.path().join(format!("a{number}.sock"))).expect("bound");
            let sender = sender.clone();
            thread::spawn(move || {
                // One asks, and others see whether it is dead.
                for stream in listener.incoming().flatten() {
                    let mut line = String::new();
                    if BufReader::new(&stream).read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                        let is_sent = (&stream).write_all(&vec![b' '; bytes]).is_ok();
                        let _ = sender.send((stream, is_sent));
                    }
                }
            });
        }
        let asked = server(dir.path(), "z.sock", "/drive", Some(GLANCE / 10));
        let drive = DriveSearch::in_dirs(Path::new("/drive"), vec![dir.path().to_path_buf()]);
        let nobody = DriveSearch::in_dirs(Path::new("/nobody"), vec![dir.path().to_path_buf()]);
        assert!(nobody.find().is_none() && drive.find_patiently().is_some());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        // No search took them all.
        let refused = (0..2 * count)
            .filter_map(|_| sent.recv_timeout(PATIENCE * 3).ok())
            .filter(|(_, is_sent)| !is_sent);
        assert!(refused.take(2).count() == 2);
    }

    #[test]
    fn a_look_names_servers_that_do_not_answer_and_finds_drives_that_are_down() {
        let dir = tempfile::tempdir().expect("a directory");
        let _hung = server(dir.path(), "a.sock", "/hung", None);
        server(dir.path(), "b.sock", "/drive", Some(Duration::ZERO));
        let look =
            |path: &str| DriveSearch::in_dirs(Path::new(path), vec![dir.path().to_path_buf()]).look(GLANCE);
        let found = look("/drive");
        assert_eq!((found.drives.len(), found.silent), (1, Vec::new()));
        let found = look("/nobody");
        let hung = SilentServer { socket: dir.path().join("a.sock"), pid: Some(std::process::id()) };
        assert_eq!((found.drives.len(), found.silent), (0, vec![hung]));
        let listener = UnixListener::bind(dir.path().join("c.sock")).expect("bound");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                let _ = writeln!(&stream, r#"{{"drives":[{{"path":"/down","state":"down"}}]}}"#);
            }
        });
        let found = look("/down");
        assert_eq!((found.drives.len(), found.silent.len()), (1, 1));
        assert_eq!(found.drives[0].state, DriveState::Down);
    }

    #[test]
    fn what_servers_left_behind_is_gone_when_the_drive_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        for _ in 0..20 {
            server(dir.path(), "m.sock", "/drive", Some(Duration::ZERO));
            for number in 0..20 {
                // Before and behind the one that answers.
                for name in ["a", "z"] {
                    drop(UnixListener::bind(dir.path().join(format!("{name}{number}.sock"))).expect("bound"));
                }
            }
            let drive = DriveSearch::in_dirs(Path::new("/drive"), vec![dir.path().to_path_buf()]);
            assert!(drive.find().is_some());
            let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
            assert_eq!(left.len(), 1, "{left:?}");
            std::fs::remove_file(dir.path().join("m.sock")).expect("removed");
        }
    }

    #[test]
    fn threads_share_a_question() {
        let dir = tempfile::tempdir().expect("a directory");
        let asked = server(dir.path(), "a.sock", "/drive", Some(GLANCE / 4));
        let hung = server(dir.path(), "b.sock", "/hung", None);
        let drive = DriveSearch::in_dirs(Path::new("/drive"), vec![dir.path().to_path_buf()]);
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
        assert_eq!(hung.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_slow_answer_is_used_later_and_a_server_that_is_gone_is_searched_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path();
        server(path, "a.sock", "/drive", Some(GLANCE + GLANCE / 2));
        let drive = DriveSearch::in_dirs(Path::new("/drive"), vec![path.to_path_buf()]);
        assert!(drive.find().is_none(), "it is slow");
        let since = Instant::now();
        while drive.find().is_none() {
            assert!(since.elapsed() < PATIENCE, "it was not forgotten");
            thread::sleep(Duration::from_millis(50));
        }
        std::fs::remove_file(path.join("a.sock")).expect("removed");
        assert!(drive.find().is_none());
        server(path, "b.sock", "/drive", Some(Duration::ZERO));
        assert!(drive.find().is_some());
    }
}
