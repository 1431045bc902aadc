//! Repeated searches for the server of one drive: the socket that had the drive is asked first, and alone. If
//! it has to be searched for, all are asked side by side, and the first that has the drive is taken, so that
//! a server that hangs delays no other drive. One that has another drive by the same path is taken only if no
//! server has the right one.

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
use status::{DriveState, FileId, StatusAnswer, StatusReport};

use crate::error::AskError;
use crate::exchange::{PATIENCE, Together};
use crate::identity::is_at;
use crate::other_file::OtherFile;
use crate::runtime_dir::runtime_dirs;
use crate::servers::{
    ANSWERS_MAX_BYTES, FoundDrives, SEARCH_PATIENCE, SilentServer, parse_status, peer, receive_status,
    sockets_in,
};
use crate::wanted::{Fit, Wanted};
use host::file::absolute;

/// Time that a search waits for servers that do not answer. They are not forgotten: the search after their
/// answer finds the drive.
const GLANCE: Duration = Duration::from_secs(1);
/// Times that a server which has not answered is asked again.
const AGAIN: usize = 2;
/// Interval of checks of the results of other threads.
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
    state: Arc<Mutex<SearchState>>,
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
struct SearchState {
    /// The drive that is searched for, once it is known.
    wanted: Option<Wanted>,
    /// The socket that had the drive when it was asked last.
    socket: Option<PathBuf>,
    /// A socket that had another drive by the same path.
    other: Option<PathBuf>,
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

/// A drive at the path, if the server has one; or why that is not known.
type Answered = Result<Option<(Fit, StatusReport)>, SilentServer>;

/// Asker of a server.
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
        let (state, answers) = (Arc::default(), Arc::default());
        let (path, is_exact) = (path.to_path_buf(), false);
        DriveSearch { path, dirs, is_exact, glance: GLANCE, patience: PATIENCE, state, answers }
    }

    /// The same search, for a server that has the very file or device to which the path leads now.
    pub(crate) fn exactly(&self) -> DriveSearch {
        DriveSearch { is_exact: true, ..self.clone() }
    }

    /// The same search, for the drive with this id in this file: if several servers have opened a drive by
    /// the path, the one that has that. A server that has it by another path counts too. `file`: `None` if it
    /// is unknown.
    pub fn for_drive(self, uuid: &str, file: Option<&FileId>) -> DriveSearch {
        self.state.lock().wanted = Some(Wanted::new(uuid, file));
        self
    }

    /// Searches from now on for the drive in a report; see [`DriveSearch::for_drive`].
    pub fn follow(&self, report: &StatusReport) {
        self.state.lock().wanted = Some(Wanted::of(report));
    }

    /// The drive as its server reports it; `None` if no server has it open, or if its server has not answered
    /// in time: within ten seconds if it had the drive before, else within one. If only servers of other
    /// drives have opened one by this path, the best of those: the same drive in another file, before another
    /// drive.
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
    pub(crate) fn find_with_socket(&self) -> Result<Option<(PathBuf, StatusReport)>, Vec<SilentServer>> {
        let report = self.find_within(self.patience)?;
        Ok(self.state.lock().socket.clone().map(|socket| (socket, report)))
    }

    /// As [`DriveSearch::find`], for a server that has the very file to which the path leads now. Searches
    /// from now on are for that drive.
    ///
    /// # Errors
    ///
    /// [`AskError::OtherFile`] if a server has another file, which it has opened by this path.
    pub fn find_exactly(&self) -> Result<Option<StatusReport>, AskError> {
        self.find_exactly_within(self.glance)
    }

    /// As [`DriveSearch::find_exactly`], and waits ten seconds for servers that do not answer.
    ///
    /// # Errors
    ///
    /// As for [`DriveSearch::find_exactly`].
    pub fn find_exactly_patiently(&self) -> Result<Option<StatusReport>, AskError> {
        self.find_exactly_within(self.patience)
    }

    fn find_exactly_within(&self, patience: Duration) -> Result<Option<StatusReport>, AskError> {
        let exact = self.exactly();
        match exact.find_within(patience) {
            Ok(report) => {
                self.follow(&report);
                Ok(Some(report))
            }
            Err(_) => exact.other_file().map_or(Ok(None), |other| Err(other.into())),
        }
    }

    /// The file of a server that has opened it by this path, which leads elsewhere, if the last search has
    /// found one.
    pub(crate) fn other_file(&self) -> Option<OtherFile> {
        self.state.lock().other_file.take()
    }

    /// As [`DriveSearch::find_patiently`], for a drive that a server had a moment ago: one that listens still
    /// and has not answered is asked again, twice.
    pub fn find_again(&self) -> Option<StatusReport> {
        for _ in 0..AGAIN {
            let known = self.state.lock().socket.clone();
            if let Some(report) = self.find_patiently() {
                return Some(report);
            }
            let known = known.filter(|socket| match socket_file::connect(socket, Duration::ZERO) {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::TimedOut,
            })?;
            self.state.lock().socket = Some(known);
        }
        self.find_patiently()
    }

    /// The drive as its server reports it, also if it is down; see [`find_drives`](crate::find_drives).
    pub fn search_again(&self) -> FoundDrives {
        self.search_within(SEARCH_PATIENCE)
    }

    /// The drive as its server reports it, also if it is down; if there is none, the servers of which it is
    /// not known, because they have not answered within `patience`, or not properly, or were not asked.
    pub(crate) fn search_within(&self, patience: Duration) -> FoundDrives {
        match self.find_within(patience) {
            Ok(report) => FoundDrives { drives: vec![report], ..FoundDrives::default() },
            Err(silent) => {
                let down = self.state.lock().down.take();
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
        let known = self.state.lock().socket.clone();
        let (mut best, mut silent) = (Best::default(), Vec::new());
        if let Some(known) = &known {
            let since = Instant::now();
            if let Some(its) = best.take(self.ask(known)) {
                return Ok(its);
            }
            if best.0.is_none() && since.elapsed() >= self.patience {
                silent.push(SilentServer::late(known, None, since.elapsed()));
            }
            let mut state = self.state.lock();
            if state.socket.as_ref() == Some(known) {
                state.socket = None;
            }
        }
        let since = Instant::now();
        let (sockets, mut others) = self.to_ask(known.as_deref());
        let mut sockets = sockets.into_iter();
        let (sender, answers) = channel();
        let mut waiting = 0;
        loop {
            while waiting < ASKED_MAX && self.state.lock().asked.len() < ASKED_MAX {
                let Some(socket) = sockets.next() else { break };
                match self.ask_aside(&socket, &sender) {
                    Aside::Asked => waiting += 1,
                    Aside::ByOther => others.push(socket),
                    Aside::Nobody(why) => silent.extend(why),
                }
            }
            let (socket, others_are_asked) = {
                let state = self.state.lock();
                (state.socket.clone(), others.iter().any(|socket| state.asked.contains_key(socket)))
            };
            if let Some(socket) = socket.filter(|socket| others.contains(socket)) {
                best.take_second(self.ask(&socket));
                return best.or(silent);
            }
            // Waits for the requests of other threads, but not long.
            let patience = if waiting > 0 { patience } else { patience.min(self.glance) };
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() || (waiting == 0 && !others_are_asked) {
                break;
            }
            match answers.recv_timeout(if others_are_asked { left.min(POLL) } else { left }) {
                Ok(Ok(answer)) => {
                    waiting -= 1;
                    if let Some(its) = best.take(answer) {
                        return Ok(its);
                    }
                }
                Ok(Err(server)) => {
                    waiting -= 1;
                    silent.push(server);
                }
                Err(_) => {}
            }
        }
        let state = self.state.lock();
        // Answers are sent under this lock: none is missing both here and among those that are waited for.
        for answer in answers.try_iter() {
            match answer {
                Ok(answer) => {
                    if let Some(its) = best.take(answer) {
                        return Ok(its);
                    }
                }
                Err(server) => silent.push(server),
            }
        }
        // Result of another thread.
        let other = state.other.clone().filter(|socket| best.0.is_none() && others.contains(socket));
        if let Some(socket) = state.socket.clone().or(other) {
            drop(state);
            best.take_second(self.ask(&socket));
            return best.or(silent);
        }
        let late = |(socket, asked): (&PathBuf, &Asked)| {
            SilentServer::late(socket, asked.pid, asked.since.elapsed())
        };
        silent.extend(state.asked.iter().map(late));
        let others = state.asked.len();
        drop(state);
        silent.extend(sockets.map(|socket| SilentServer::not_asked(&socket, others)));
        silent.sort_by(|one, other| one.socket.cmp(&other.socket));
        best.or(silent)
    }

    /// Returns the sockets to ask, the least recently asked first, and those that are being asked since a
    /// moment ago. None is asked twice at a time.
    fn to_ask(&self, known: Option<&Path>) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let all = sockets_in(&self.dirs);
        let mut state = self.state.lock();
        // Sockets that are gone are forgotten.
        let mut before = std::mem::take(&mut state.last_asked);
        let (mut sockets, mut others) = (Vec::new(), Vec::new());
        for socket in all.into_iter().filter(|socket| Some(socket.as_path()) != known) {
            let last = before.remove(&socket);
            if let Some(last) = last {
                state.last_asked.insert(socket.clone(), last);
            }
            match state.asked.get(&socket).map(|asked| asked.since.elapsed()) {
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
            let mut state = self.state.lock();
            match state.asked.entry(socket.to_path_buf()) {
                Entry::Occupied(_) => return Aside::ByOther,
                Entry::Vacant(place) => place.insert(Asked { since, pid: None }),
            };
            state.last_asked.insert(socket.to_path_buf(), since);
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
        self.state.lock().asked.remove(socket);
        Aside::Nobody(SilentServer::failed(socket, None, since.elapsed(), &error))
    }

    /// Takes the answer of a server that was asked.
    fn take(&self, asked: PathBuf, answer: Answered, sender: &Sender<Answered>) {
        let mut state = self.state.lock();
        state.asked.remove(&asked);
        match &answer {
            Ok(Some((Fit::Its, _))) => state.socket = Some(asked),
            Ok(Some(_)) => state.other = Some(asked),
            Ok(None) | Err(_) => {}
        }
        // Fails if the receiver is gone.
        let _ = sender.send(answer);
    }

    /// The drive as the server at a socket reports it, if that has it open.
    fn ask(&self, socket: &Path) -> Option<(Fit, StatusReport)> {
        self.answer_of(socket, None).ok().flatten()
    }

    /// As [`DriveSearch::ask`], for one of many servers that are asked at a time.
    fn answer_of(&self, socket: &Path, stream: Option<UnixStream>) -> Answered {
        let (since, mut pid) = (Instant::now(), None);
        let ask = || -> io::Result<Option<(Fit, StatusReport)>> {
            let stream = stream.map_or_else(|| socket_file::connect(socket, self.patience), Ok)?;
            pid = peer(&stream);
            if let Some(asked) = self.state.lock().asked.get_mut(socket) {
                asked.pid = pid;
            }
            let mut part = self.answers.received.part();
            let answer = receive_status(stream, self.patience, &mut part)?;
            let parsed = {
                let _one = self.answers.parsing.lock();
                parse_status(&answer, ANSWERS_MAX_BYTES)?
            };
            // Not under that lock: access to the path of another drive may hang.
            Ok(parsed.and_then(|answer| self.drive_in(answer, pid)))
        };
        ask()
            .or_else(|error| SilentServer::failed(socket, pid, since.elapsed(), &error).map_or(Ok(None), Err))
    }

    /// The drive in the answer of a server, whose process has this id here. The answer names the id that the
    /// server knows of itself, which in a container is that of another process here.
    fn drive_in(&self, mut answer: StatusAnswer, pid: Option<u32>) -> Option<(Fit, StatusReport)> {
        for report in &mut answer.drives {
            if let (Some(pid), Some(server)) = (pid, &mut report.server) {
                server.pid = pid;
            }
        }
        if self.is_exact {
            return self.exact_drive_in(answer).map(|report| (Fit::Its, report));
        }
        let wanted = self.state.lock().wanted.clone();
        let is_wanted = |report: &StatusReport| wanted.as_ref().is_some_and(|it| it.is_in(report));
        let named = absolute(&self.path);
        if answer.drives.iter().any(|report| report.path == named && report.state != DriveState::Down) {
            // The files of the others are not accessed.
            answer.drives.retain(|report| report.path == named || is_wanted(report));
        }
        let at_path =
            answer.drives.into_iter().filter(|report| is_wanted(report) || is_at(report, &self.path));
        let (down, open): (Vec<_>, Vec<_>) = at_path.partition(|report| report.state == DriveState::Down);
        if let Some(down) = down.into_iter().next() {
            self.state.lock().down = Some(down);
        }
        let fitting = open.into_iter().map(|report| (Fit::of(&report, &self.path, wanted.as_ref()), report));
        // The first one, of several that fit as well.
        fitting.rev().max_by_key(|(fit, _)| *fit)
    }
}

/// The report that fits best so far.
#[derive(Default)]
struct Best(Option<(Fit, StatusReport)>);

impl Best {
    /// Takes an answer. Returns the report if it is that of the drive itself.
    fn take(&mut self, answer: Option<(Fit, StatusReport)>) -> Option<StatusReport> {
        match answer {
            Some((Fit::Its, report)) => Some(report),
            answer => {
                self.take_second(answer);
                None
            }
        }
    }

    /// Takes an answer if it fits better.
    fn take_second(&mut self, answer: Option<(Fit, StatusReport)>) {
        let known = self.0.as_ref().map(|(fit, _)| *fit);
        if answer.as_ref().map(|(fit, _)| *fit) > known {
            self.0 = answer;
        }
    }

    fn or(self, silent: Vec<SilentServer>) -> Result<StatusReport, Vec<SilentServer>> {
        self.0.map(|(_, report)| report).ok_or(silent)
    }
}

impl DriveSearch {
    fn exact_drive_in(&self, answer: StatusAnswer) -> Option<StatusReport> {
        let mut found = None;
        for report in answer.drives {
            let is_down = report.state == DriveState::Down;
            match OtherFile::check(&self.path, report) {
                Ok(Some(report)) if is_down => self.state.lock().down = Some(report),
                Ok(Some(report)) => found = Some(report),
                Ok(None) => {}
                Err(other) => self.state.lock().other_file = Some(*other),
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
mod tests;
