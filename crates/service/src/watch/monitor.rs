//! Periodic observation of a served drive: events, growth, latencies of the last minute, the devices under
//! it.
//!
//! It runs beside the threads that carry requests, on the runtime on which the drive was opened.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use drive::{Drive, Share, State, Status};
use media::AnyMedia;
use parking_lot::Mutex;
use status::{
    BackingPlace, BackingReport, CopyReport, EventKind, FileId, StatusReport, TimeToFull, meaningful_bytes,
    shown,
};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::watch::backing::Prober;
use crate::watch::backing_path::{BackingPath, by_descriptor};
use crate::watch::copies::Copies;
use crate::watch::error_counts::ErrorCounts;
use crate::watch::events::{Event, EventLog, EventSink, Seen, WarnAt, Watcher};
use crate::watch::growth::{Growth, Limits, SAMPLE_INTERVAL, Sample};
use crate::watch::hook::Hook;
use crate::watch::latency::Snapshot;
use crate::watch::length::Length;
use crate::watch::opened_file::id_of_media;
use crate::watch::report::{assess, limit_bytes, used_ratio};
use crate::watch::requests::Requests;

/// Interval of polls for events.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of measuring the backing, and looking where it is.
const LENGTH_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of asking the devices under the drive.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of looking for copies of the drive.
const COPIES_INTERVAL: Duration = Duration::from_secs(5);
/// Period of recent latencies.
const RECENT: Duration = Duration::from_secs(60);

/// Settings of the monitoring of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorSettings {
    /// Levels of physical space in use that cause an event.
    pub warn_at: WarnAt,
    /// Command run by `sh -c` for each event.
    pub on_event: Option<String>,
}

/// Monitors a drive until stopped.
pub(crate) struct Monitor {
    watched: Arc<Watched>,
    stop: watch::Sender<bool>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    hook: tokio::sync::Mutex<Option<Hook>>,
}

/// The drive, and what was observed.
struct Watched {
    drive: Drive<AnyMedia>,
    path: PathBuf,
    id: String,
    requests: Arc<Requests>,
    opened: Instant,
    memory: Mutex<Memory>,
}

struct Memory {
    watcher: Watcher,
    events: EventLog,
    growth: Growth,
    /// Earlier latencies, oldest first.
    latencies: VecDeque<(Duration, Snapshot)>,
    backing: BackingReport,
    /// See [`BackingReport::missing_bytes`].
    missing_bytes: u64,
    /// See [`BackingReport::place`].
    place: BackingPlace,
    /// See [`BackingReport::file`].
    file: Option<FileId>,
    copies: Vec<CopyReport>,
    /// Time already added to the drive's own counter.
    powered: Duration,
    /// Events reported by others since the last poll.
    reported: Vec<(EventKind, String)>,
}

impl Monitor {
    /// Starts to monitor a drive that was just opened, on the current runtime.
    pub(crate) async fn start(
        path: &Path,
        (drive, media): (&Drive<AnyMedia>, &Arc<AnyMedia>),
        requests: Arc<Requests>,
        settings: &MonitorSettings,
    ) -> Monitor {
        let status = drive.status();
        let id = uuid::Uuid::from_bytes(status.uuid).to_string();
        let hook =
            settings.on_event.clone().map(|command| Hook::start(command, path.to_path_buf(), id.clone()));
        // Opened now, when the process still has the privileges with which the drive was opened.
        let (backing, opened) = (path.to_path_buf(), Arc::downgrade(media));
        let (open, file, backing) = aside(move || {
            let open = Open::at(&backing, opened.clone());
            // Without the disks' own programs, which take longer and are run later.
            (open, id_of_media(&opened), Prober::sysfs_only().probe(&backing))
        })
        .await
        .unwrap_or_default();
        let watched = Arc::new(Watched {
            drive: drive.clone(),
            path: path.to_path_buf(),
            id,
            requests,
            opened: Instant::now(),
            memory: Mutex::new(Memory {
                watcher: Watcher::new(settings.warn_at.clone(), ErrorCounts::before_opening(&status)),
                events: EventLog::default(),
                growth: Growth::default(),
                latencies: VecDeque::new(),
                backing,
                missing_bytes: 0,
                place: open.as_ref().map_or(BackingPlace::Unknown, |open| open.place.known()),
                file,
                copies: Vec::new(),
                powered: Duration::ZERO,
                reported: Vec::new(),
            }),
        });
        let (stop, stopped) = watch::channel(false);
        let monitor = Monitor {
            watched: watched.clone(),
            stop,
            task: tokio::sync::Mutex::new(None),
            hook: tokio::sync::Mutex::new(hook),
        };
        let mut opened = match (status.recovered.clean, status.recovered.packs_count) {
            (true, _) => "opened; it had been closed properly".to_string(),
            (false, packs) => format!("opened; recovered {packs} packs after it was not closed"),
        };
        if status.recovered.start_lost {
            opened += "; the start of the backing was lost, and the superblock and checkpoints far from it were used";
        }
        // Includes those that the opening itself has found: they get no event of their own.
        let ErrorCounts { bad_segments, damaged_segments, .. } = ErrorCounts::from(&status);
        if bad_segments + damaged_segments > 0 {
            opened += &format!(
                "; segments set aside: {bad_segments} bad (a write to them failed), {damaged_segments} damaged (they \
                 hold what cannot be read)"
            );
        }
        let seen = watched.seen(&status, &watched.memory.lock());
        monitor.emit(&[seen.event(EventKind::Opened, opened)]).await;
        let events = {
            let hook = monitor.hook.lock().await;
            let sender = hook.as_ref().map(Hook::sender);
            tokio::spawn(watch_drive(watched, open, sender, stopped))
        };
        *monitor.task.lock().await = Some(events);
        monitor
    }

    /// Returns a function that other tasks call to report events: a kind and a one-line message, without any
    /// data stored on the drive.
    pub(crate) fn event_sink(&self) -> EventSink {
        let watched = self.watched.clone();
        Box::new(move |kind, message| watched.memory.lock().reported.push((kind, message)))
    }

    async fn emit(&self, events: &[Event]) {
        let hook = self.hook.lock().await;
        self.watched.emit(events, hook.as_ref().map(Hook::sender).as_ref());
    }

    /// Reports what happened until now, before a change that may end it.
    pub(crate) async fn catch_up(&self) {
        let events = self.watched.new_events();
        self.emit(&events).await;
    }

    /// Ends monitoring, after a last poll.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.lock().await.take() {
            // A panic of the task was already reported.
            let _ = task.await;
        }
        self.catch_up().await;
        self.watched.count_powered();
    }

    /// Reports that the drive is closed, with the result. Waits for commands that are still to be run.
    pub(crate) async fn closed(&self, result: &Result<(), drive::Error>) {
        let message = match result {
            Ok(()) => "closed".to_string(),
            Err(error) => format!("not closed properly, it recovers at its next opening: {error}"),
        };
        let seen = self.watched.seen(&self.watched.drive.status(), &self.watched.memory.lock());
        self.emit(&[seen.event(EventKind::Closed, message)]).await;
        if let Some(hook) = self.hook.lock().await.take() {
            hook.finish().await;
        }
    }

    /// Adds the observations to a report.
    pub(crate) fn complete(&self, report: &mut StatusReport, status: &Status) {
        let watched = &self.watched;
        let at = watched.opened.elapsed();
        let now = watched.requests.latencies.snapshot();
        let memory = watched.memory.lock();
        report.power_on_seconds += at.saturating_sub(memory.powered).as_secs();
        let (missing_bytes, place, file) = (memory.missing_bytes, memory.place, memory.file.clone());
        let backing = BackingReport { missing_bytes, place, file, ..memory.backing.clone() };
        assess(report, backing, memory.watcher.warn_at());
        report.copies.clone_from(&memory.copies);
        report.time_to_full = match status.backing_full {
            // The free space of the drive cannot be written.
            true => TimeToFull::none_left(),
            false => memory.growth.predict(&sample(at, status), limits(status)),
        };
        report.recently_written = memory
            .growth
            .recently_written(&sample(at, status), meaningful_bytes(report.physical_limit_bytes));
        report.estimate();
        let Some(server) = &mut report.server else { return };
        server.events = memory.events.report(memory.watcher.warn_at());
        let earlier = memory.latencies.iter().rev().find(|(then, _)| at.saturating_sub(*then) >= RECENT);
        server.latency_recent = match earlier {
            Some((then, before)) => now.since(before).report(at - *then),
            None => now.report(at),
        };
        server.latency = now.report(at);
    }
}

impl Watched {
    fn seen(&self, status: &Status, memory: &Memory) -> Seen {
        let limit = limit_bytes(status);
        Seen {
            at: self.opened.elapsed(),
            used_percent: 100.0 * used_ratio(status),
            available_bytes: limit.saturating_sub(status.physical_used_bytes),
            out_of_space: status.out_of_space,
            backing_full: status.backing_full,
            backing_full_count: status.backing_full_count,
            no_space_count: self.requests.no_space.load(std::sync::atomic::Ordering::Relaxed),
            errors: ErrorCounts::from(status),
            missing_bytes: memory.missing_bytes,
            place: memory.place,
            last_repaired_byte: status.parity.last_repaired_byte,
            last_lost_byte: status.parity.last_lost_byte,
            backing_failing: status.parity.is_failing,
            poisoned: match &status.state {
                State::Poisoned(why) => Some(why.clone()),
                _ => None,
            },
        }
    }

    /// Returns the events since the last poll.
    fn new_events(&self) -> Vec<Event> {
        // The lock comes first: of two callers at a time, the second observes the later state.
        let mut memory = self.memory.lock();
        let seen = self.seen(&self.drive.status(), &memory);
        let mut events = memory.watcher.observe(&seen);
        events.extend(memory.reported.drain(..).map(|(kind, message)| seen.event(kind, message)));
        events
    }

    /// Stores events, logs them and passes them to the command.
    fn emit(&self, events: &[Event], hook: Option<&crate::watch::hook::Sender>) {
        for event in events {
            self.memory.lock().events.add(event);
            log(&self.path, event);
            if let Some(hook) = hook {
                hook.send(event);
            }
        }
    }

    /// Brings the drive's counter of time up to date.
    fn count_powered(&self) {
        let at = self.opened.elapsed();
        let mut memory = self.memory.lock();
        let seconds = at.saturating_sub(memory.powered).as_secs();
        memory.powered += Duration::from_secs(seconds);
        self.drive.count_powered(seconds);
    }

    /// Samples growth and latencies. Called every ten seconds.
    fn sample(&self, status: &Status) {
        self.count_powered();
        let at = self.opened.elapsed();
        let latencies = self.requests.latencies.snapshot();
        let mut memory = self.memory.lock();
        memory.growth.add(sample(at, status));
        while memory.latencies.get(1).is_some_and(|(second, _)| at.saturating_sub(*second) >= RECENT) {
            memory.latencies.pop_front();
        }
        memory.latencies.push_back((at, latencies));
    }
}

fn sample(at: Duration, status: &Status) -> Sample {
    Sample {
        at,
        physical_used_bytes: status.physical_used_bytes,
        logical_used_bytes: status.logical_used_bytes,
        logical_stored_bytes: status.logical_used_bytes.saturating_sub(status.logical_fill_bytes),
        written: by_hosts(status),
    }
}

/// Returns what hosts have written since the drive was opened, without fills.
fn by_hosts(status: &Status) -> Share {
    status.written.iter().filter(|way| !way.settled).fold(Share::default(), |sum, way| Share {
        logical_bytes: sum.logical_bytes + way.share.logical_bytes,
        physical_bytes: sum.physical_bytes + way.share.physical_bytes,
    })
}

fn limits(status: &Status) -> Limits {
    Limits {
        physical_limit_bytes: limit_bytes(status),
        logical_capacity_bytes: status.logical_capacity_bytes,
    }
}

/// Logs one line per event.
fn log(path: &Path, event: &Event) {
    let (drive, name, message) = (shown(path), event.kind.as_str(), &event.message);
    let used = (event.used_percent * 100.0).round() / 100.0;
    let level = event.level_percent;
    match event.kind {
        EventKind::Opened
        | EventKind::Closed
        | EventKind::SpaceWarningOver
        | EventKind::SpaceBack
        | EventKind::BackingFound
        | EventKind::DictionaryAdopted => {
            tracing::info!(%drive, event = name, used_percent = used, level_percent = level, "{message}");
        }
        EventKind::SpaceWarning
        | EventKind::WritesHeld
        | EventKind::BadSegment
        | EventKind::PageRepaired
        | EventKind::BackingRestored
        | EventKind::BackingMoved
        | EventKind::Unknown => {
            tracing::warn!(%drive, event = name, used_percent = used, level_percent = level, "{message}");
        }
        EventKind::OpenFailed
        | EventKind::WritesLost
        | EventKind::OutOfSpace
        | EventKind::Poisoned
        | EventKind::CorruptRecord
        | EventKind::DamagedSegment
        | EventKind::PageLost
        | EventKind::BackingFailing
        | EventKind::BackingTruncated
        | EventKind::BackingDeleted => {
            tracing::error!(%drive, event = name, used_percent = used, level_percent = level, "{message}");
        }
    }
}

/// Runs work that may take seconds on a thread of its own, so that it blocks neither requests nor the end of
/// the server. Returns `None` if no thread can be started.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let asking = std::thread::Builder::new().name("pumice-probe".into()).spawn(move || {
        // The receiver may be gone.
        let _ = answer.send(work());
    });
    asking.ok()?;
    answered.await.ok()
}

/// The backing, opened a second time to observe it.
struct Open {
    file: Arc<File>,
    length: Length,
    place: BackingPath,
    /// The backing as the drive has it open. Weak, so that it can be closed.
    media: Weak<AnyMedia>,
}

impl Open {
    /// Opens the file or block device, and polls where it is. `None` if it cannot be opened.
    fn at(path: &Path, media: Weak<AnyMedia>) -> Option<Open> {
        let file = Arc::new(File::open(path).ok()?);
        let mut place = BackingPath::of(file.clone(), path);
        place.observe();
        Some(Open { place, length: Length::of(file.clone()), file, media })
    }
}

/// Observes until stopped.
async fn watch_drive(
    watched: Arc<Watched>,
    open: Option<Open>,
    hook: Option<crate::watch::hook::Sender>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut samples = tokio::time::interval(SAMPLE_INTERVAL);
    samples.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let file = open.as_ref().map(|open| open.file.clone());
    let probing = async {
        loop {
            let path = watched.path.clone();
            // Only while the path does not lead to the backing: a file that is held open keeps its file
            // system mounted.
            let is_displaced = watched.memory.lock().place.advice().is_some();
            let file = file.clone().filter(|_| is_displaced);
            let probe = move || match file {
                Some(file) => Prober::new().probe(&by_descriptor(&file)),
                None => Prober::new().probe(&path),
            };
            if let Some(backing) = aside(probe).await {
                watched.memory.lock().backing = backing;
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    };
    let comparing = async {
        let mut copies = Copies::new(watched.path.clone(), watched.id.clone());
        loop {
            let refresh = move || {
                let found = copies.refresh();
                (copies, found)
            };
            // Without a thread, nothing more can be found out.
            let Some((back, found)) = aside(refresh).await else { return std::future::pending().await };
            copies = back;
            watched.memory.lock().copies = found;
            tokio::time::sleep(COPIES_INTERVAL).await;
        }
    };
    let measuring = async {
        let Some(mut open) = open else { return std::future::pending().await };
        loop {
            // Asked first: the backing grows before the drive does.
            let needed = watched.drive.status().physical_size_bytes;
            let measure = move || {
                let (missing, place) = (open.length.missing_bytes(needed), open.place.observe());
                let file = id_of_media(&open.media);
                (open, missing, place, file)
            };
            let Some((back, missing, place, file)) = aside(measure).await else {
                return std::future::pending().await;
            };
            open = back;
            {
                let mut memory = watched.memory.lock();
                memory.place = place;
                memory.file = file.or(memory.file.take());
                // If it cannot be determined, the last result stays.
                memory.missing_bytes = missing.unwrap_or(memory.missing_bytes);
            }
            tokio::time::sleep(LENGTH_INTERVAL).await;
        }
    };
    let monitoring = async {
        loop {
            tokio::select! {
                _ = polls.tick() => {
                    let events = watched.new_events();
                    watched.emit(&events, hook.as_ref());
                }
                _ = samples.tick() => watched.sample(&watched.drive.status()),
            }
        }
    };
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stop| *stop) => {}
        () = probing => {}
        () = comparing => {}
        () = measuring => {}
        () = monitoring => {}
    }
}
