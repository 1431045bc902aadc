//! Making a served drive compress better: dictionaries are trained when enough was written, and what lies cold is settled,
//! at a share of a processor; at once and at full speed if a user asks.
//!
//! One task a drive does all of it, one thing at a time. What keeps a processor busy is done by the thread of
//! [`crate::compute`], the rest (reading, decompressing, appending) by the worker that the task lives on; both count.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drive::{Drive, Error, Settle, SettleStep, Trained};
use layout::BLOCK_BYTES;
use media::AnyMedia;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

use crate::compression::{SettleRunReport, SettlingReport, TrainingReport};
use crate::compute::{Meter, thread_time};
use crate::events::EventKind;
use crate::monitor::EventSender;
use crate::requests::Requests;
use crate::workers::Workers;

/// How often it is looked whether there is something to do.
const LOOK: Duration = Duration::from_secs(1);
/// Pauses that make up for time spent are saved up to this: timers are no finer.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Pause after a pass that found nothing to do, and after an error.
const REST: Duration = Duration::from_secs(60);
/// A drive that nothing was written to for so long is settled altogether.
const IDLE: Duration = Duration::from_secs(30);
/// Of the packs that fill a drive, the part that data lies untouched before it counts as cold.
const COLD_PART: u64 = 4;
/// How often dictionaries that nothing needs any more are looked for.
const FORGET_INTERVAL: Duration = Duration::from_secs(60);
/// How often a user's run looks whether there is room again, and how long it waits for that.
const ROOM_POLL: Duration = Duration::from_millis(20);
const ROOM_PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a pack, from the least to the most.
const PACK_BYTES: (u64, u64) = (4 << 10, 512 << 10);

type Answer = oneshot::Sender<Result<Trained, Error>>;

/// Improves a drive until stopped.
pub(crate) struct Improver {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// What the task works on, and what others ask of it.
pub(crate) struct Shared {
    pub(crate) drive: Drive<AnyMedia>,
    pub(crate) path: PathBuf,
    pub(crate) requests: Arc<Requests>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) events: EventSender,
    /// Bits of a number from 0 to 100.
    background_cpu_percent: AtomicU64,
    wake: Notify,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    wanted: Vec<Answer>,
    training: Option<TrainingReport>,
    settling: SettlingReport,
    /// Time that the worker spent.
    worker_time: Duration,
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Improver {
    /// Starts the task on worker `index`.
    pub(crate) fn start(
        workers: &Workers,
        index: usize,
        (drive, path): (Drive<AnyMedia>, PathBuf),
        requests: Arc<Requests>,
        (meter, events): (Arc<Meter>, EventSender),
        background_cpu_percent: f64,
    ) -> Improver {
        let shared = Arc::new(Shared {
            drive,
            path,
            requests,
            meter,
            events,
            background_cpu_percent: AtomicU64::new(background_cpu_percent.to_bits()),
            wake: Notify::new(),
            memory: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let task = workers.spawn_on(index, improve(shared.clone(), stopped));
        Improver { shared, stop, task: tokio::sync::Mutex::new(Some(task)) }
    }

    /// Ends it: work of the compute thread is given up, the rest goes on to the end of its step.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.lock().await.take() {
            // A task that panicked has told so already.
            let _ = task.await;
        }
    }

    /// Changes the share of a processor.
    pub(crate) fn set_background_cpu_percent(&self, percent: f64) {
        self.shared.background_cpu_percent.store(percent.to_bits(), Ordering::Relaxed);
        self.shared.wake.notify_one();
    }

    /// Trains a dictionary now.
    pub(crate) async fn train(&self) -> Result<Trained, Error> {
        let (answer, answered) = oneshot::channel();
        self.shared.memory.lock().wanted.push(answer);
        self.shared.wake.notify_one();
        answered
            .await
            .unwrap_or_else(|_| Err(Error::Io("training was given up: the drive was closed".into())))
    }

    /// Begins a run that settles everything, unless one is under way.
    pub(crate) fn start_run(&self) {
        {
            let mut memory = self.shared.memory.lock();
            if memory.run().is_some() {
                return;
            }
            memory.settling.run = Some(SettleRunReport {
                state: "running".to_string(),
                started_unix_seconds: unix_seconds(),
                total_bytes: self.shared.drive.logical_capacity_bytes(),
                ..SettleRunReport::default()
            });
        }
        self.shared.wake.notify_one();
    }

    /// Ends the run that is under way, if one is.
    pub(crate) fn stop_run(&self) {
        self.shared.end_run("stopped", None);
    }

    pub(crate) fn training_report(&self) -> Option<TrainingReport> {
        self.shared.memory.lock().training.clone()
    }

    pub(crate) fn settling_report(&self) -> SettlingReport {
        let memory = self.shared.memory.lock();
        let mut report = memory.settling.clone();
        report.background_cpu_percent = self.shared.percent();
        report.cpu_seconds = (memory.worker_time + self.shared.meter.busy()).as_secs_f64();
        if report.state.is_empty() {
            report.state = "resting".to_string();
        }
        if report.run.as_ref().is_some_and(|run| run.state == "running") {
            report.state = "asked".to_string();
        }
        report
    }
}

impl Memory {
    /// The run that is under way.
    fn run(&mut self) -> Option<&mut SettleRunReport> {
        self.settling.run.as_mut().filter(|run| run.state == "running")
    }
}

/// Where a pass is, and when the next thing may be done.
#[derive(Default)]
struct Pass {
    /// `None`: between passes.
    next: Option<u64>,
    found: bool,
    /// Nothing was found in all of the drive, and nothing will be as long as this is so.
    nothing: Option<Reason>,
    begun: Option<Reason>,
    /// Another pass for a reason of this kind begins at this time at the earliest.
    rest_until: Option<Instant>,
    not_before: Option<Instant>,
    /// Time to rest that is not rested yet.
    owed: Duration,
    forget_at: Option<Instant>,
    /// Writes and trims seen, and since when there were no others.
    seen: u64,
    quiet_since: Option<Instant>,
}

/// What decides on whether there is something to settle.
#[derive(Clone, Copy, PartialEq)]
enum Reason {
    /// Everything may be, and so much was written.
    All(u64),
    /// What is older than so many packs may be, and so many there are.
    Old(u64, u64),
}

/// A user's run.
#[derive(Default)]
struct Run {
    begun: bool,
    no_room_since: Option<Instant>,
}

async fn improve(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut pass = Pass::default();
    let mut run = Run::default();
    loop {
        let step = shared.step(&mut pass, &mut run);
        let Some(pause) = shared.unless_closing(&mut stopped, step).await else { break };
        let rest = async {
            match pause {
                Duration::ZERO => tokio::task::yield_now().await,
                pause => tokio::time::sleep(pause).await,
            }
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            () = shared.wake.notified() => {}
            () = rest => {}
        }
    }
    shared.end_run("stopped", Some("the drive was closed".into()));
    // Whoever waits for training is told by its answer being dropped.
    shared.memory.lock().wanted.clear();
}

impl Shared {
    /// `None`: the drive is closing, and the work was given up. That is done only while the compute thread has some of it:
    /// nothing of the drive changes until its answer is taken.
    async fn unless_closing<T>(
        &self,
        stopped: &mut watch::Receiver<bool>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        const POLL: Duration = Duration::from_millis(1);
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            _ = stopped.wait_for(|stop| *stop) => {}
        }
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = tokio::time::sleep(POLL) => if self.meter.is_under_way() {
                    return None;
                }
            }
        }
    }

    /// Does one thing. Answers when to look again.
    async fn step(&self, pass: &mut Pass, run: &mut Run) -> Duration {
        let wanted = self.memory.lock().wanted.pop();
        if let Some(answer) = wanted {
            // Whoever asked may have gone.
            let _ = answer.send(self.train(true).await);
            return Duration::ZERO;
        }
        let position = self.memory.lock().run().map(|run| run.position_bytes);
        match position {
            Some(position) => self.run_step(run, position).await,
            None => {
                *run = Run::default();
                self.background_step(pass).await
            }
        }
    }

    fn percent(&self) -> f64 {
        f64::from_bits(self.background_cpu_percent.load(Ordering::Relaxed))
    }

    async fn train(&self, asked: bool) -> Result<Trained, Error> {
        let trained = self.timed(self.drive.train()).await;
        if let Ok(trained) = &trained {
            self.memory.lock().training = Some(TrainingReport::new(trained, asked, unix_seconds()));
            match trained.ids.len() {
                0 => {
                    tracing::info!(drive = %self.path.display(), outcome = trained.outcome, "no new dictionary");
                }
                count => {
                    let new = if count == 1 { "a new dictionary" } else { "new dictionaries" };
                    self.events.tell(
                        EventKind::DictionaryAdopted,
                        format!("{new} for new data; {}", trained.outcome),
                    );
                }
            }
        }
        trained
    }

    /// Counts the time that work keeps this thread busy.
    async fn timed<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut spent = Duration::ZERO;
        let done = std::future::poll_fn(|context| {
            let before = thread_time();
            let polled = work.as_mut().poll(context);
            spent += thread_time().saturating_sub(before);
            polled
        })
        .await;
        self.memory.lock().worker_time += spent;
        done
    }

    fn time(&self) -> Duration {
        self.memory.lock().worker_time + self.meter.busy()
    }

    fn set_state(&self, state: &str) {
        let settling = &mut self.memory.lock().settling;
        if settling.state != state {
            settling.state = state.to_string();
        }
    }

    fn end_run(&self, state: &str, reason: Option<String>) {
        let mut memory = self.memory.lock();
        let Some(run) = memory.run() else { return };
        run.state = state.to_string();
        run.reason = reason;
        run.finished_unix_seconds = Some(unix_seconds());
        tracing::info!(
            drive = %self.path.display(),
            state,
            reason = run.reason,
            bytes = run.settled_bytes,
            before = run.before_bytes,
            after = run.after_bytes,
            "settling"
        );
    }

    /// A step of settling, counted.
    async fn settle(&self, block: u64, which: Settle) -> Result<SettleStep, Error> {
        let step = self.timed(self.drive.settle_step(block, which)).await;
        if let Ok(step) = &step {
            let mut memory = self.memory.lock();
            let settling = &mut memory.settling;
            settling.settled_bytes += step.blocks_count * BLOCK_BYTES as u64;
            settling.before_bytes += step.before_bytes;
            settling.after_bytes += step.after_bytes;
        }
        step
    }

    async fn run_step(&self, run: &mut Run, position: u64) -> Duration {
        if !std::mem::replace(&mut run.begun, true) {
            // What is still in memory cannot be settled; and a better dictionary settles better.
            let begun = async {
                self.drive.flush().await?;
                if self.drive.training_is_due() {
                    self.train(false).await?;
                }
                Ok::<(), Error>(())
            };
            if let Err(error) = begun.await {
                self.end_run("failed", Some(error.to_string()));
                return Duration::ZERO;
            }
        }
        let step = match self.settle(position / BLOCK_BYTES as u64, Settle::All).await {
            Ok(step) => step,
            Err(error) => {
                self.end_run("failed", Some(error.to_string()));
                return Duration::ZERO;
            }
        };
        {
            let mut memory = self.memory.lock();
            let Some(report) = memory.run() else { return Duration::ZERO };
            report.total_bytes = self.drive.logical_capacity_bytes();
            report.position_bytes =
                step.next_block.map_or(report.total_bytes, |block| block * BLOCK_BYTES as u64);
            report.settled_bytes += step.blocks_count * BLOCK_BYTES as u64;
            report.before_bytes += step.before_bytes;
            report.after_bytes += step.after_bytes;
        }
        if step.next_block.is_none() {
            self.end_run("finished", None);
            return Duration::ZERO;
        }
        if !step.no_room || step.blocks_count > 0 {
            run.no_room_since = None;
            return Duration::ZERO;
        }
        if run.no_room_since.get_or_insert_with(Instant::now).elapsed() > ROOM_PATIENCE {
            let why =
                "free segments are few and cleaning finds no more; trim, or let the drive grow (set-size)";
            self.end_run("failed", Some(why.into()));
        }
        ROOM_POLL
    }

    async fn background_step(&self, pass: &mut Pass) -> Duration {
        let now = Instant::now();
        let share = self.percent() / 100.0;
        pass.look_at_hosts(&self.requests, now);
        if share <= 0.0 || self.drive.writable().is_err() {
            self.set_state("off");
            *pass = Pass { seen: pass.seen, quiet_since: pass.quiet_since, ..Pass::default() };
            return LOOK;
        }
        if let Some(left) = pass.not_before.and_then(|at| at.checked_duration_since(now)) {
            return left.min(LOOK);
        }
        pass.not_before = None;
        if self.drive.pace().writers.is_some() && !pass.is_quiet(now) {
            self.set_state("waiting");
            return LOOK;
        }
        let before = self.time();
        let rest = match self.next_in_background(pass, now).await {
            Ok(rest) => rest,
            Err(Error::NoSpace) => {
                self.set_state("waiting");
                LOOK
            }
            Err(error) => {
                tracing::warn!(drive = %self.path.display(), %error, "background compression failed");
                REST
            }
        };
        pass.owed += rest_after(self.time().saturating_sub(before), share);
        if rest.max(pass.owed) < PAUSE_MIN {
            return Duration::ZERO;
        }
        let rest = rest.max(std::mem::take(&mut pass.owed));
        pass.not_before = Some(Instant::now() + rest);
        rest.min(LOOK)
    }

    /// Does what is due, in the order of what it gains. Answers how long to rest whatever was spent.
    async fn next_in_background(&self, pass: &mut Pass, now: Instant) -> Result<Duration, Error> {
        if self.drive.training_is_due() {
            self.train(false).await?;
            return Ok(Duration::ZERO);
        }
        if pass.forget_at.is_none_or(|at| now >= at) {
            pass.forget_at = Some(now + FORGET_INTERVAL);
            self.drive.forget_dictionaries().await?;
        }
        let (which, reason) = self.what_to_settle(pass, now);
        let Some(block) = pass.next.or_else(|| pass.begin(reason, now)) else {
            self.set_state("resting");
            return Ok(LOOK);
        };
        self.set_state("working");
        let step = self.settle(block, which).await?;
        pass.found |= step.blocks_count > 0;
        pass.next = step.next_block;
        let mut memory = self.memory.lock();
        memory.settling.position_bytes = step.next_block.unwrap_or(0) * BLOCK_BYTES as u64;
        if step.no_room {
            memory.settling.state = "waiting".to_string();
            return Ok(LOOK);
        }
        if pass.next.is_some() {
            return Ok(Duration::ZERO);
        }
        memory.settling.passes_count += 1;
        if pass.found {
            return Ok(Duration::ZERO);
        }
        memory.settling.state = "resting".to_string();
        pass.nothing = pass.begun;
        pass.rest_until = Some(Instant::now() + REST);
        Ok(LOOK)
    }

    /// What is cold now, and what that depends on.
    fn what_to_settle(&self, pass: &Pass, now: Instant) -> (Settle, Reason) {
        if pass.is_quiet(now) {
            return (Settle::All, Reason::All(pass.seen));
        }
        let status = self.drive.status();
        let packs = cold_packs(
            u64::from(status.segments_count) * u64::from(status.segment_bytes),
            status.counters.physical_written_bytes,
            status.sequence,
        );
        (Settle::OlderThan(packs), Reason::Old(packs, status.sequence))
    }
}

impl Pass {
    fn look_at_hosts(&mut self, requests: &Requests, now: Instant) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seen = of(&requests.writes) + of(&requests.trims);
        if seen != self.seen || self.quiet_since.is_none() {
            self.seen = seen;
            self.quiet_since = Some(now);
        }
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.quiet_since.is_some_and(|since| now.saturating_duration_since(since) >= IDLE)
    }

    /// Begins at the beginning, unless nothing could be found again, or nothing was found a moment ago.
    fn begin(&mut self, reason: Reason, now: Instant) -> Option<u64> {
        let same = |before: &Reason| matches!(before, Reason::All(_)) == matches!(reason, Reason::All(_));
        let resting =
            self.rest_until.is_some_and(|until| now < until) && self.nothing.as_ref().is_some_and(same);
        if resting || self.nothing == Some(reason) {
            return None;
        }
        self.nothing = None;
        self.found = false;
        self.begun = Some(reason);
        Some(0)
    }
}

/// Packs after which data that was left alone counts as cold, for a drive of so many bytes in segments that has written so
/// many bytes in `sequence` packs.
fn cold_packs(segments_bytes: u64, written_bytes: u64, sequence: u64) -> u64 {
    let (least, most) = PACK_BYTES;
    let pack_bytes = written_bytes.checked_div(sequence).unwrap_or(most).clamp(least, most);
    segments_bytes / pack_bytes / COLD_PART
}

/// How long to rest after work that took `took`, so that it takes `share` of the time.
fn rest_after(took: Duration, share: f64) -> Duration {
    took.mul_f64((1.0 / share.clamp(0.001, 1.0)) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_its_share_of_the_time() {
        let took = Duration::from_millis(90);
        assert_eq!(rest_after(took, 1.0), Duration::ZERO);
        assert_eq!(rest_after(took, 0.5), took);
        assert_eq!(rest_after(took, 0.1).as_millis(), 810);
        assert_eq!(rest_after(took, 0.0), rest_after(took, 0.001), "bounded");
    }

    #[test]
    fn cold_is_what_a_quarter_of_the_drive_was_written_after() {
        // 1 GiB in packs of 64 KiB: 16384 of them.
        assert_eq!(cold_packs(1 << 30, 10 << 30, 163_840), 4096);
        // Nothing known: large packs, so that little time passes before something counts as cold.
        assert_eq!(cold_packs(1 << 30, 0, 0), 512);
        // Sequence numbers outlive a wipe, the counter does not.
        assert_eq!(cold_packs(1 << 30, 0, 1000), 65_536);
    }

    #[test]
    fn a_pass_that_found_nothing_is_not_repeated_for_the_same_reason() {
        let (mut pass, now) = (Pass::default(), Instant::now());
        assert_eq!(pass.begin(Reason::All(7), now), Some(0));
        pass.nothing = pass.begun;
        assert_eq!(pass.begin(Reason::All(7), now), None);
        assert_eq!(pass.begin(Reason::All(8), now), Some(0), "something was written");
        pass.nothing = Some(Reason::Old(10, 100));
        assert_eq!(pass.begin(Reason::Old(10, 100), now), None);
        assert_eq!(pass.begin(Reason::Old(10, 101), now), Some(0));
    }

    #[test]
    fn a_pass_that_found_nothing_is_rested_from_unless_the_drive_becomes_idle() {
        let (mut pass, now) = (Pass::default(), Instant::now());
        assert_eq!(pass.begin(Reason::Old(10, 100), now), Some(0));
        (pass.nothing, pass.rest_until) = (pass.begun, Some(now + REST));
        assert_eq!(pass.begin(Reason::Old(10, 101), now), None);
        assert_eq!(pass.begin(Reason::All(3), now), Some(0));
        (pass.nothing, pass.rest_until) = (Some(Reason::Old(10, 100)), Some(now + REST));
        assert_eq!(pass.begin(Reason::Old(10, 101), now + REST), Some(0));
    }

    #[test]
    fn a_drive_is_idle_half_a_minute_after_the_last_write() {
        let (mut pass, requests, start) = (Pass::default(), Requests::new(1), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        pass.look_at_hosts(&requests, at(0));
        assert!(!pass.is_quiet(at(29)) && pass.is_quiet(at(30)));
        requests.writes.fetch_add(1, Ordering::Relaxed);
        pass.look_at_hosts(&requests, at(31));
        requests.reads.fetch_add(1, Ordering::Relaxed);
        pass.look_at_hosts(&requests, at(40));
        assert!(!pass.is_quiet(at(60)) && pass.is_quiet(at(61)));
    }
}
