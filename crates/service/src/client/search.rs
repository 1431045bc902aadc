//! The server of one drive, found again and again: the socket that had the drive is asked first, and alone.
//! If it has to be searched for, all are asked side by side, and the first that has the drive is taken, so
//! that a server that hangs delays no other drive.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use status::{DriveState, StatusAnswer, StatusReport};

use crate::client::exchange::{PATIENCE, Together};
use crate::client::other_file::OtherFile;
use crate::client::runtime_dir::runtime_dirs;
use crate::client::servers::{
    ANSWERS_MAX_BYTES, FoundDrives, LOOK_PATIENCE, SilentServer, is_at, parse_status, peer, receive_status,
    sockets_in,
};
use crate::error::ServiceError;
use crate::paths::absolute;

/// Time that a search waits for servers that do not answer. They are not forgotten: the search after their
/// answer finds the drive.
const GLANCE: Duration = Duration::from_secs(1);
/// Times that a server which has not answered is asked again.
const AGAIN: usize = 2;
/// Interval of looks at what another thread has found.
const POLL: Duration = Duration::from_millis(10);
/// Most sockets that are asked at a time. A server has one for each drive.
const ASKED_MAX: usize = 128;

/// See the [module](self). Clones share what they find.
#[derive(Clone)]
pub struct DriveSearch {
    path: PathBuf,
    dirs: Vec<PathBuf>,
    /// Only a server that has the very file counts to which the path leads now. Otherwise also one that has
    /// opened the drive by this path, whatever is there by now: a device of the drive needs its server as
    /// long as that lives.
    is_exact: bool,
    /// [`GLANCE`] and [`PATIENCE`].
    glance: Duration,
    patience: Duration,
    found: Arc<Mutex<Found>>,
    answers: Arc<Answers>,
}

/// Limits the memory for answers of servers that are asked at a time. A search that ends returns nothing of
/// it: its threads do.
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
    /// Sockets whose answers are waited for.
    asked: HashMap<PathBuf, Asked>,
    /// When each of the sockets that there are was asked last: what hangs must not hide what was not asked
    /// yet.
    last_asked: HashMap<PathBuf, Instant>,
    /// The drive, of a server that could not open it.
    down: Option<StatusReport>,
    /// The file of a server that has opened it by this path, which leads elsewhere by now.
    other_file: Option<OtherFile>,
}

/// A question that was not answered yet.
struct Asked {
    since: Instant,
    /// The server's process id, once it is connected.
    pid: Option<u32>,
}

/// The drive, if the server has it; or why that is not known.
type Answered = Result<Option<StatusReport>, SilentServer>;

/// Who asks a server.
enum Aside {
    /// A thread of this search.
    Asked,
    /// One of another search, since a moment ago.
    ByOther,
    /// Nobody: none listens there, or, with the reason, it cannot be asked.
    Nobody(Option<SilentServer>),
}

impl DriveSearch {
    /// A search for the server of the drive at `path`.
    pub fn new(path: &Path) -> DriveSearch {
        DriveSearch::in_dirs(path, runtime_dirs())
    }

    fn in_dirs(path: &Path, dirs: Vec<PathBuf>) -> DriveSearch {
        let (found, answers) = (Arc::default(), Arc::default());
        let (path, is_exact) = (path.to_path_buf(), false);
        DriveSearch { path, dirs, is_exact, glance: GLANCE, patience: PATIENCE, found, answers }
    }

    /// The same search, for a server that has the very file or device to which the path leads now.
    pub(super) fn exactly(&self) -> DriveSearch {
        DriveSearch { is_exact: true, ..self.clone() }
    }

    /// The drive as its server reports it; `None` if no server has it open, or if its server has not answered
    /// in time: within ten seconds if it had the drive before, else within one.
    pub fn find(&self) -> Option<StatusReport> {
        self.find_within(self.glance).ok()
    }

    /// As [`DriveSearch::find`], and waits ten seconds for servers that do not answer.
    pub fn find_patiently(&self) -> Option<StatusReport> {
        self.find_within(self.patience).ok()
    }

    /// As [`DriveSearch::find_patiently`], with the admin socket of the server.
    ///
    /// # Errors
    ///
    /// The servers that may have the drive and did not answer.
    pub(super) fn find_with_socket(&self) -> Result<Option<(PathBuf, StatusReport)>, Vec<SilentServer>> {
        let report = self.find_within(self.patience)?;
        Ok(self.found.lock().socket.clone().map(|socket| (socket, report)))
    }

    /// As [`DriveSearch::find`], for a server that has the very file to which the path leads now. Searches
    /// from now on begin with that.
    ///
    /// # Errors
    ///
    /// [`ServiceError::OtherFile`] if a server has another file, which it has opened by this path.
    pub fn find_exactly(&self) -> Result<Option<StatusReport>, ServiceError> {
        self.find_exactly_within(self.glance)
    }

    /// As [`DriveSearch::find_exactly`], and waits ten seconds for servers that do not answer.
    ///
    /// # Errors
    ///
    /// As for [`DriveSearch::find_exactly`].
    pub fn find_exactly_patiently(&self) -> Result<Option<StatusReport>, ServiceError> {
        self.find_exactly_within(self.patience)
    }

    fn find_exactly_within(&self, patience: Duration) -> Result<Option<StatusReport>, ServiceError> {
        let exact = self.exactly();
        match exact.find_within(patience) {
            Ok(report) => Ok(Some(report)),
            Err(_) => exact.other_file().map_or(Ok(None), |other| Err(other.into())),
        }
    }

    /// The file of a server that has opened it by this path, which leads elsewhere, if the last search has
    /// found one.
    pub(super) fn other_file(&self) -> Option<OtherFile> {
        self.found.lock().other_file.take()
    }

    /// As [`DriveSearch::find_patiently`], for a drive that a server had a moment ago: one that listens still
    /// and has not answered is asked again, twice.
    pub fn find_again(&self) -> Option<StatusReport> {
        for _ in 0..AGAIN {
            let known = self.found.lock().socket.clone();
            if let Some(report) = self.find_patiently() {
                return Some(report);
            }
            let known = known.filter(|socket| match socket_file::connect(socket, Duration::ZERO) {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::TimedOut,
            })?;
            self.found.lock().socket = Some(known);
        }
        self.find_patiently()
    }

    /// The drive as its server reports it, also if it is down; see [`find_drives`](crate::find_drives).
    pub fn look_again(&self) -> FoundDrives {
        self.look(LOOK_PATIENCE)
    }

    /// The drive as its server reports it, also if it is down; if there is none, the servers of which it is
    /// not known, because they have not answered within `patience`, or not properly, or were not asked.
    pub(super) fn look(&self, patience: Duration) -> FoundDrives {
        match self.find_within(patience) {
            Ok(report) => FoundDrives { drives: vec![report], ..FoundDrives::default() },
            Err(silent) => {
                let down = self.found.lock().down.take();
                FoundDrives { drives: down.into_iter().collect(), silent, other_file: self.other_file() }
            }
        }
    }

    /// The drive as its server reports it.
    ///
    /// # Errors
    ///
    /// The servers that may have the drive, in the order of their sockets.
    fn find_within(&self, patience: Duration) -> Result<StatusReport, Vec<SilentServer>> {
        let known = self.found.lock().socket.clone();
        let mut silent = Vec::new();
        if let Some(known) = &known {
            let since = Instant::now();
            if let Some(report) = self.ask(known) {
                return Ok(report);
            }
            if since.elapsed() >= self.patience {
                silent.push(SilentServer::late(known, None, since.elapsed()));
            }
            let mut found = self.found.lock();
            if found.socket.as_ref() == Some(known) {
                found.socket = None;
            }
        }
        let since = Instant::now();
        let (sockets, mut others) = self.to_ask(known.as_deref());
        let mut sockets = sockets.into_iter();
        let (sender, answers) = channel();
        let mut waiting = 0;
        loop {
            while waiting < ASKED_MAX && self.found.lock().asked.len() < ASKED_MAX {
                let Some(socket) = sockets.next() else { break };
                match self.ask_aside(&socket, &sender) {
                    Aside::Asked => waiting += 1,
                    Aside::ByOther => others.push(socket),
                    Aside::Nobody(why) => silent.extend(why),
                }
            }
            let (socket, others_are_asked) = {
                let found = self.found.lock();
                (found.socket.clone(), others.iter().any(|socket| found.asked.contains_key(socket)))
            };
            if let Some(socket) = socket.filter(|socket| others.contains(socket)) {
                return self.ask(&socket).ok_or(silent);
            }
            // What others ask is waited for, but not long.
            let patience = if waiting > 0 { patience } else { patience.min(self.glance) };
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() || (waiting == 0 && !others_are_asked) {
                break;
            }
            match answers.recv_timeout(if others_are_asked { left.min(POLL) } else { left }) {
                Ok(Ok(Some(report))) => return Ok(report),
                Ok(Ok(None)) => waiting -= 1,
                Ok(Err(server)) => {
                    waiting -= 1;
                    silent.push(server);
                }
                Err(_) => {}
            }
        }
        let found = self.found.lock();
        // Answers are sent under this lock: none is missing both here and among those that are waited for.
        for answer in answers.try_iter() {
            match answer {
                Ok(Some(report)) => return Ok(report),
                Ok(None) => {}
                Err(server) => silent.push(server),
            }
        }
        if let Some(socket) = found.socket.clone() {
            drop(found);
            return self.ask(&socket).ok_or(silent);
        }
        let late = |(socket, asked): (&PathBuf, &Asked)| {
            SilentServer::late(socket, asked.pid, asked.since.elapsed())
        };
        silent.extend(found.asked.iter().map(late));
        let others = found.asked.len();
        drop(found);
        silent.extend(sockets.map(|socket| SilentServer::not_asked(&socket, others)));
        silent.sort_by(|one, other| one.socket.cmp(&other.socket));
        Err(silent)
    }

    /// Returns the sockets to ask, the least recently asked first, and those that are being asked since a
    /// moment ago. None is asked twice at a time.
    fn to_ask(&self, known: Option<&Path>) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let all = sockets_in(&self.dirs);
        let mut found = self.found.lock();
        // What is gone is forgotten.
        let mut before = std::mem::take(&mut found.last_asked);
        let (mut sockets, mut others) = (Vec::new(), Vec::new());
        for socket in all.into_iter().filter(|socket| Some(socket.as_path()) != known) {
            let last = before.remove(&socket);
            if let Some(last) = last {
                found.last_asked.insert(socket.clone(), last);
            }
            match found.asked.get(&socket).map(|asked| asked.since.elapsed()) {
                None => sockets.push((last, socket)),
                Some(elapsed) if elapsed < self.glance => others.push(socket),
                Some(_) => {}
            }
        }
        sockets.sort_by_key(|(last, _)| *last);
        (sockets.into_iter().map(|(_, socket)| socket).collect(), others)
    }

    /// Asks a server on a thread of its own. A socket that a server left behind is removed here: who finds
    /// the drive may end before a thread has done it.
    fn ask_aside(&self, socket: &Path, sender: &Sender<Answered>) -> Aside {
        let since = Instant::now();
        {
            let mut found = self.found.lock();
            match found.asked.entry(socket.to_path_buf()) {
                Entry::Occupied(_) => return Aside::ByOther,
                Entry::Vacant(place) => place.insert(Asked { since, pid: None }),
            };
            found.last_asked.insert(socket.to_path_buf(), since);
        }
        let connected = match socket_file::connect(socket, Duration::ZERO) {
            Ok(stream) => Ok(Some(stream)),
            // More clients wait than it accepts.
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        };
        let asked = connected.and_then(|stream| {
            let (search, asked, sender) = (self.clone(), socket.to_path_buf(), sender.clone());
            spawn(move || {
                let answer = search.answer_of(&asked, stream);
                search.take(asked, answer, &sender);
            })
        });
        let Err(error) = asked else { return Aside::Asked };
        self.found.lock().asked.remove(socket);
        Aside::Nobody(SilentServer::failed(socket, None, since.elapsed(), &error))
    }

    /// Takes the answer of a server that was asked.
    fn take(&self, asked: PathBuf, answer: Answered, sender: &Sender<Answered>) {
        let mut found = self.found.lock();
        found.asked.remove(&asked);
        if matches!(answer, Ok(Some(_))) {
            found.socket = Some(asked);
        }
        // Fails when nobody waits any more.
        let _ = sender.send(answer);
    }

    /// The drive as the server at a socket reports it, if that has it open.
    fn ask(&self, socket: &Path) -> Option<StatusReport> {
        self.answer_of(socket, None).ok().flatten()
    }

    /// As [`DriveSearch::ask`], for one of many servers that are asked at a time.
    fn answer_of(&self, socket: &Path, stream: Option<UnixStream>) -> Answered {
        let (since, mut pid) = (Instant::now(), None);
        let ask = || -> io::Result<Option<StatusReport>> {
            let stream = stream.map_or_else(|| socket_file::connect(socket, self.patience), Ok)?;
            pid = peer(&stream);
            if let Some(asked) = self.found.lock().asked.get_mut(socket) {
                asked.pid = pid;
            }
            let mut part = self.answers.received.part();
            let answer = receive_status(stream, self.patience, &mut part)?;
            let parsed = {
                let _one = self.answers.parsing.lock();
                parse_status(&answer, ANSWERS_MAX_BYTES)?
            };
            // Not under that lock: drives of others may lie where a look at a path does not end.
            Ok(parsed.and_then(|answer| self.drive_in(answer, pid)))
        };
        ask()
            .or_else(|error| SilentServer::failed(socket, pid, since.elapsed(), &error).map_or(Ok(None), Err))
    }

    /// The drive in the answer of a server, whose process has this id here. The answer names the id that the
    /// server knows of itself, which in a container is that of another process here.
    fn drive_in(&self, mut answer: StatusAnswer, pid: Option<u32>) -> Option<StatusReport> {
        for report in &mut answer.drives {
            if let (Some(pid), Some(server)) = (pid, &mut report.server) {
                server.pid = pid;
            }
        }
        if self.is_exact {
            return self.exact_drive_in(answer);
        }
        let named = absolute(&self.path);
        if answer.drives.iter().any(|report| report.path == named && report.state != DriveState::Down) {
            // The files of the others are not looked at.
            answer.drives.retain(|report| report.path == named);
        }
        let at_path = answer.drives.into_iter().filter(|report| is_at(report, &self.path));
        let (down, open): (Vec<_>, Vec<_>) = at_path.partition(|report| report.state == DriveState::Down);
        if let Some(down) = down.into_iter().next() {
            self.found.lock().down = Some(down);
        }
        open.into_iter().next()
    }
}

impl DriveSearch {
    fn exact_drive_in(&self, answer: StatusAnswer) -> Option<StatusReport> {
        let mut found = None;
        for report in answer.drives {
            let is_down = report.state == DriveState::Down;
            match OtherFile::check(&self.path, report) {
                Ok(Some(report)) if is_down => self.found.lock().down = Some(report),
                Ok(Some(report)) => found = Some(report),
                Ok(None) => {}
                Err(other) => self.found.lock().other_file = Some(*other),
            }
        }
        found
    }
}

fn spawn(ask: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let spawned = thread::Builder::new().name("drive-search".into()).spawn(ask);
    spawned.map(drop).map_err(|error| io::Error::other(format!("there is no thread to ask it: {error}")))
}

#[cfg(test)]
mod tests {
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
            let listener =
                UnixListener::bind(dir.path().join(format!("down-1{number}.sock"))).expect("bound");
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
        let found = search(&other, "/nobody", LONG).look(LONG);
        let refused =
            |it: &&SilentServer| it.what.ends_with("the answers of all servers are longer than 64 MiB");
        assert!(found.silent.iter().filter(refused).count() > 0, "{:?}", found.silent);
        assert_eq!(found.silent.len(), count);
    }

    #[test]
    fn a_look_names_servers_that_do_not_answer_and_finds_drives_that_are_down() {
        let dir = tempfile::tempdir().expect("a directory");
        let _hung = server(dir.path(), "down-1.sock", "/hung", None);
        server(dir.path(), "down-2.sock", "/drive", Some(Duration::ZERO));
        let look = |path: &str, patience| search(&dir, path, LONG).look(patience);
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
        let hung =
            |number| UnixListener::bind(dir.path().join(format!("down-2{number}.sock"))).expect("bound");
        let listeners: Vec<_> = (0..60).map(hung).collect();
        for _ in 0..3 {
            let drive = search(&dir, "/drive", LONG);
            let found = DriveSearch { patience: Duration::from_secs(1), ..drive }.look(Duration::ZERO);
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
        let found = drive.look(patience / 4);
        assert_eq!((found.drives.len(), found.silent.len()), (0, ASKED_MAX + 1), "all are named");
        let last = &found.silent[ASKED_MAX];
        assert_eq!(last.socket, dir.path().join("down-9.sock"));
        assert_eq!(last.what, format!("got no question, because {ASKED_MAX} others did not answer"));
        // Once those that hang are given up, the one that was not asked yet comes first.
        let since = Instant::now();
        while !drive.found.lock().asked.is_empty() {
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
                        UnixListener::bind(dir.path().join(format!("down-{name}{number}.sock")))
                            .expect("bound"),
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
}
