//! Making a served drive compress better: dictionaries are trained when enough was written, and cold data is
//! settled, at a share of a processor; at once and at full speed if a user requests it.
//!
//! One task per drive does all of it, one thing at a time. Work that keeps a processor busy is done by the
//! thread of [`crate::workers::compute`], the rest (reading, decompressing, appending) by the worker of the
//! task. Both count.

mod again;
mod pass;
mod rate;
mod room;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drive::{Drive, Error, Settle, SettleStep, Trained};
use layout::BLOCK_BYTES;
use media::{AnyMedia, Media};
use parking_lot::Mutex;
use status::{
    EventKind, RunState, SettleRunReport, SettlingReport, SettlingState, SurveyReport, TrainingReport, shown,
    unix_seconds_now,
};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::watch::compression::training_report;
use crate::watch::events::EventSink;
use crate::watch::requests::Requests;
use crate::workers::compute::Meter;
use crate::workers::pause::{rest, rest_after};
use crate::workers::pool::Workers;

/// Interval of looking for something to do.
const LOOK: Duration = Duration::from_secs(1);
/// Pauses that make up for used time are accumulated up to this, because timers are not more precise.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Pause after a pass that found nothing to do, and after an error.
const REST: Duration = Duration::from_secs(60);
/// Interval of checks for unused dictionaries.
const FORGET_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which a user's run checks whether there is room again, and longest wait.
const ROOM_POLL: Duration = Duration::from_millis(20);
const ROOM_PATIENCE: Duration = Duration::from_secs(60);

/// After a pass that cost too much, hosts write this part of the capacity before the next.
const DEAR_PART: u64 = 64;

use pass::{Pass, Reason, cold_packs};
use rate::Rate;

type Answer = oneshot::Sender<Result<Trained, Error>>;

/// Improves a drive until stopped.
pub(crate) struct Improver {
    context: Arc<ImproverContext<AnyMedia>>,
    stop: watch::Sender<bool>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// Data of the task, and requests of others.
pub(crate) struct ImproverContext<M: Media> {
    pub(crate) drive: Drive<M>,
    pub(crate) path: PathBuf,
    pub(crate) requests: Arc<Requests>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) events: EventSink,
    /// Returns the processor time of the current thread.
    thread_time: fn() -> Duration,
    /// Bits of a number from 0 to 100.
    background_cpu_percent: AtomicU64,
    wake: Notify,
    memory: Mutex<Memory>,
}

struct Memory {
    wanted: Vec<Answer>,
    /// The task has ended and answers no more.
    over: bool,
    training: Option<TrainingReport>,
    settling: SettlingReport,
    rate: Rate,
    survey: Option<SurveyReport>,
    /// Time used on the worker.
    worker_time: Duration,
}

impl Improver {
    /// Starts the task on worker `index`.
    pub(crate) fn start(
        workers: &Workers,
        index: usize,
        context: Arc<ImproverContext<AnyMedia>>,
    ) -> Improver {
        let (stop, stopped) = watch::channel(false);
        let task = workers.spawn_on(index, improve(context.clone(), stopped));
        Improver { context, stop, task: tokio::sync::Mutex::new(Some(task)) }
    }

    /// Ends the task: work of the compute thread is abandoned, the rest continues to the end of its step.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.lock().await.take() {
            // A panic of the task was already reported.
            let _ = task.await;
        }
    }

    /// Changes the share of a processor.
    pub(crate) fn set_background_cpu_percent(&self, percent: f64) {
        self.context.background_cpu_percent.store(percent.to_bits(), Ordering::Relaxed);
        self.context.wake.notify_one();
    }

    /// Trains a dictionary now.
    pub(crate) async fn train(&self) -> Result<Trained, Error> {
        let (answer, answered) = oneshot::channel();
        {
            let mut memory = self.context.memory.lock();
            match memory.over {
                false => memory.wanted.push(answer),
                true => drop(answer),
            }
        }
        self.context.wake.notify_one();
        answered
            .await
            .unwrap_or_else(|_| Err(Error::Io("training was given up: the drive was closed".into())))
    }

    /// Starts a run that settles everything, unless one is running.
    pub(crate) fn start_run(&self) {
        self.context.start_run();
    }

    /// Stops the run in progress, if any.
    pub(crate) fn stop_run(&self) {
        self.context.end_run(RunState::Stopped, None);
    }

    pub(crate) fn training_report(&self) -> Option<TrainingReport> {
        self.context.memory.lock().training.clone()
    }

    pub(crate) fn survey_report(&self) -> Option<SurveyReport> {
        self.context.memory.lock().survey.clone()
    }

    pub(crate) fn settling_report(&self) -> SettlingReport {
        let memory = self.context.memory.lock();
        let mut report = memory.settling.clone();
        report.background_cpu_percent = self.context.percent();
        report.cpu_seconds = (memory.worker_time + self.context.meter.busy()).as_secs_f64();
        if report.run.as_ref().is_some_and(|run| run.state == RunState::Running) {
            report.state = SettlingState::Asked;
        }
        report.bytes_per_second = memory.rate.bytes_per_second(Instant::now());
        report
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            wanted: Vec::new(),
            over: false,
            training: None,
            settling: SettlingReport { state: SettlingState::Resting, ..SettlingReport::default() },
            rate: Rate::default(),
            survey: None,
            worker_time: Duration::ZERO,
        }
    }
}

impl Memory {
    /// Returns the run in progress.
    fn run(&mut self) -> Option<&mut SettleRunReport> {
        self.settling.run.as_mut().filter(|run| run.state == RunState::Running)
    }
}

/// A run started by a user.
#[derive(Default)]
struct Run {
    begun: bool,
    /// The pass is at its last part: data settled before the dictionaries in use.
    again: bool,
    no_room_since: Option<Instant>,
}

/// Improves a drive until stopped.
pub(crate) async fn improve<M: Media>(context: Arc<ImproverContext<M>>, mut stopped: watch::Receiver<bool>) {
    let mut pass = Pass::default();
    let mut run = Run::default();
    loop {
        let step = context.step(&mut pass, &mut run);
        let Some(pause) = context.unless_closing(&mut stopped, step).await else { break };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            () = context.wake.notified() => {}
            () = rest(pause) => {}
        }
    }
    context.end_run(RunState::Stopped, Some("the drive was closed".into()));
    // A request for training is answered by dropping the channel.
    let mut memory = context.memory.lock();
    memory.over = true;
    memory.wanted.clear();
}

impl<M: Media> ImproverContext<M> {
    pub(crate) fn new(
        (drive, path): (Drive<M>, PathBuf),
        requests: Arc<Requests>,
        (meter, events): (Arc<Meter>, EventSink),
        background_cpu_percent: f64,
        thread_time: fn() -> Duration,
    ) -> Arc<ImproverContext<M>> {
        Arc::new(ImproverContext {
            drive,
            path,
            requests,
            meter,
            events,
            thread_time,
            background_cpu_percent: AtomicU64::new(background_cpu_percent.to_bits()),
            wake: Notify::new(),
            memory: Mutex::default(),
        })
    }

    /// Does the work. Returns `None` if the drive is closing and the work was abandoned. It is abandoned only
    /// while a part of it is with the compute thread: nothing on the drive changes until the result of that
    /// part is used.
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

    /// Does one piece of work. Returns the pause before the next one.
    async fn step(&self, pass: &mut Pass, run: &mut Run) -> Duration {
        let wanted = self.memory.lock().wanted.pop();
        if let Some(answer) = wanted {
            // The requester may be gone.
            let _ = answer.send(self.train(true).await);
            pass.counted = None;
            return Duration::ZERO;
        }
        let position = self.memory.lock().run().map(|run| run.position_bytes);
        match position {
            Some(position) => {
                // A user's run may use any time.
                pass.counted = None;
                self.run_step(run, position).await
            }
            None => {
                *run = Run::default();
                self.background_step(pass).await
            }
        }
    }

    /// See [`Improver::start_run`].
    pub(crate) fn start_run(&self) {
        {
            let mut memory = self.memory.lock();
            if memory.over || memory.run().is_some() {
                return;
            }
            memory.settling.run = Some(SettleRunReport {
                state: RunState::Running,
                started_unix_seconds: unix_seconds_now(),
                total_bytes: self.drive.logical_capacity_bytes(),
                ..SettleRunReport::default()
            });
        }
        self.wake.notify_one();
    }

    fn percent(&self) -> f64 {
        f64::from_bits(self.background_cpu_percent.load(Ordering::Relaxed))
    }

    async fn train(&self, asked: bool) -> Result<Trained, Error> {
        let trained = self.timed(self.drive.train()).await;
        if let Ok(trained) = &trained {
            self.memory.lock().training = Some(training_report(trained, asked, unix_seconds_now()));
            match trained.ids.len() {
                0 => {
                    tracing::info!(drive = %shown(&self.path), outcome = trained.outcome, "no new dictionary");
                }
                count => {
                    let new = if count == 1 { "a new dictionary" } else { "new dictionaries" };
                    (self.events)(
                        EventKind::DictionaryAdopted,
                        format!("{new} for new data; {}", trained.outcome),
                    );
                }
            }
        }
        trained
    }

    /// Counts the time for which work keeps this thread busy.
    async fn timed<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut spent = Duration::ZERO;
        let done = std::future::poll_fn(|context| {
            let before = (self.thread_time)();
            let polled = work.as_mut().poll(context);
            spent += (self.thread_time)().saturating_sub(before);
            polled
        })
        .await;
        self.memory.lock().worker_time += spent;
        done
    }

    fn time(&self) -> Duration {
        self.memory.lock().worker_time + self.meter.busy()
    }

    fn set_state(&self, state: SettlingState) {
        self.memory.lock().settling.state = state;
    }

    fn end_run(&self, state: RunState, reason: Option<String>) {
        assert_ne!(state, RunState::Running, "a run ends in another state");
        let mut memory = self.memory.lock();
        let Some(run) = memory.run() else { return };
        run.state = state;
        run.reason = reason;
        run.finished_unix_seconds = Some(unix_seconds_now());
        tracing::info!(
            drive = %shown(&self.path),
            %state,
            reason = run.reason,
            bytes = run.settled_bytes,
            before = run.before_bytes,
            after = run.after_bytes,
            "settling"
        );
    }

    /// A step of settling, counted.
    async fn settle(&self, block: u64, which: Settle) -> Result<SettleStep, Error> {
        let step = self.timed(self.drive.settle_step(block, which)).await?;
        self.count(&step, which == Settle::Again);
        Ok(step)
    }

    fn count(&self, step: &SettleStep, again: bool) {
        let mut memory = self.memory.lock();
        let bytes = step.blocks_count * BLOCK_BYTES as u64;
        memory.rate.count(Instant::now(), bytes);
        let settling = &mut memory.settling;
        settling.settled_bytes += bytes;
        settling.before_bytes += step.before_bytes;
        settling.after_bytes += step.after_bytes;
        if again {
            settling.again_bytes += bytes;
        }
    }

    async fn run_step(&self, run: &mut Run, position: u64) -> Duration {
        if !std::mem::replace(&mut run.begun, true) {
            // Data still in memory cannot be settled, and a better dictionary settles better.
            let begun = async {
                self.drive.flush().await?;
                if self.drive.training_is_due() || self.drive.is_untrained() {
                    self.train(false).await?;
                }
                Ok::<(), Error>(())
            };
            if let Err(error) = begun.await {
                self.end_run(RunState::Failed, Some(error.to_string()));
                return Duration::ZERO;
            }
        }
        if room::is_short(&self.path) {
            let why = "the file system under the drive is nearly full, and settling writes before it frees; make room \
                in it";
            self.end_run(RunState::Failed, Some(why.into()));
            return Duration::ZERO;
        }
        let which = if run.again { Settle::Again } else { Settle::All };
        let settled = async {
            let step = self.settle(position / BLOCK_BYTES as u64, which).await?;
            let more = step.next_block.is_none() && !run.again && self.pays_again().await?;
            Ok::<_, Error>((step, more))
        };
        let (step, more) = match settled.await {
            Ok(done) => done,
            Err(error) => {
                self.end_run(RunState::Failed, Some(error.to_string()));
                return Duration::ZERO;
            }
        };
        run.again |= more;
        {
            let mut memory = self.memory.lock();
            let Some(report) = memory.run() else { return Duration::ZERO };
            report.total_bytes = self.drive.logical_capacity_bytes();
            let end = if more { 0 } else { report.total_bytes };
            report.position_bytes = step.next_block.map_or(end, |block| block * BLOCK_BYTES as u64);
            report.settled_bytes += step.blocks_count * BLOCK_BYTES as u64;
            report.before_bytes += step.before_bytes;
            report.after_bytes += step.after_bytes;
        }
        if step.next_block.is_none() && !more {
            self.end_run(RunState::Finished, None);
            return Duration::ZERO;
        }
        if !step.no_room || step.blocks_count > 0 {
            run.no_room_since = None;
            return Duration::ZERO;
        }
        if run.no_room_since.get_or_insert_with(Instant::now).elapsed() > ROOM_PATIENCE {
            let why =
                "free segments are few and cleaning finds no more; trim, or let the drive grow (set-size)";
            self.end_run(RunState::Failed, Some(why.into()));
        }
        ROOM_POLL
    }

    async fn background_step(&self, pass: &mut Pass) -> Duration {
        let now = Instant::now();
        let share = self.percent() / 100.0;
        pass.look_at_hosts(&self.requests, now);
        if pass.room_asked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK) {
            (pass.room_asked_at, pass.is_short) = (Some(now), room::is_short(&self.path));
            self.drive.set_backing_is_short(pass.is_short);
        }
        if share <= 0.0 || self.drive.writable().is_err() {
            self.set_state(SettlingState::Off);
            *pass = pass.switched_off();
            return LOOK;
        }
        let counted = *pass.counted.get_or_insert_with(|| self.time());
        if let Some(left) = pass.not_before.and_then(|at| at.checked_duration_since(now)) {
            return left.min(LOOK);
        }
        pass.not_before = None;
        if pass.is_short {
            self.set_state(SettlingState::Waiting);
            return LOOK;
        }
        if self.drive.pace().writers.is_some() && !pass.is_quiet(now) {
            self.set_state(SettlingState::Waiting);
            return LOOK;
        }
        let rest = match self.next_in_background(pass, now).await {
            Ok(rest) => rest,
            Err(Error::NoSpace | Error::BackingFull) => {
                self.set_state(SettlingState::Waiting);
                LOOK
            }
            Err(error) => {
                tracing::warn!(drive = %shown(&self.path), %error, "background compression failed");
                REST
            }
        };
        // Counted since the last step ended, because the compute thread answers before it has reported its
        // time.
        let taken = self.time();
        pass.owed += rest_after(taken.saturating_sub(counted), share);
        pass.counted = Some(taken);
        if rest.max(pass.owed) < PAUSE_MIN {
            return Duration::ZERO;
        }
        let rest = rest.max(std::mem::take(&mut pass.owed));
        pass.not_before = Some(Instant::now() + rest);
        rest.min(LOOK)
    }

    /// Does what is due, in the order of gain. Returns how long to rest independently of the time used.
    async fn next_in_background(&self, pass: &mut Pass, now: Instant) -> Result<Duration, Error> {
        if self.drive.training_is_due() {
            self.train(false).await?;
            return Ok(Duration::ZERO);
        }
        if pass.forget_at.is_none_or(|at| now >= at) {
            pass.forget_at = Some(now + FORGET_INTERVAL);
            self.drive.forget_dictionaries().await?;
        }
        if self.drive.wants_dictionary_places() {
            return self.make_places().await;
        }
        // In turns with everything else, which may otherwise never be done.
        pass.cut_last = !pass.cut_last && self.drive.has_hot();
        if pass.cut_last {
            return self.cut_hot().await;
        }
        let rest = self.survey_and_settle(pass, now).await?;
        if !self.drive.has_hot() {
            return Ok(rest);
        }
        let state = &mut self.memory.lock().settling.state;
        if *state == SettlingState::Resting {
            *state = SettlingState::Working;
        }
        Ok(Duration::ZERO)
    }

    /// Cuts frames that are read at random often.
    async fn cut_hot(&self) -> Result<Duration, Error> {
        self.set_state(SettlingState::Working);
        let Some(step) = self.timed(self.drive.cut_hot_step()).await? else { return Ok(Duration::ZERO) };
        let mut memory = self.memory.lock();
        let settling = &mut memory.settling;
        settling.cut_bytes += step.blocks_count * BLOCK_BYTES as u64;
        settling.cut_before_bytes += step.before_bytes;
        settling.cut_after_bytes += step.after_bytes;
        if step.no_room {
            settling.state = SettlingState::Waiting;
            return Ok(LOOK);
        }
        Ok(Duration::ZERO)
    }

    /// Does a step of a pass, if one is due.
    async fn survey_and_settle(&self, pass: &mut Pass, now: Instant) -> Result<Duration, Error> {
        self.survey_if_due(pass, now).await;
        let (which, reason) = self.what_to_settle(pass, now);
        let counters = self.drive.status().counters;
        pass.cost.note_host_written(counters.host_written_bytes);
        let Some(block) = pass.next.or_else(|| pass.begin(reason, now)) else {
            return self.settle_again(pass).await;
        };
        self.set_state(SettlingState::Working);
        let step = self.settle(block, which).await?;
        pass.found |= step.blocks_count > 0;
        pass.next = step.next_block;
        pass.cost.count(step.before_bytes.saturating_sub(step.after_bytes));
        // Hosts are quiet, so all that is written is for this: also what cleaning has to move.
        if matches!(reason, Reason::Old(..)) {
            pass.cost.begin_anew();
        } else if pass.cost.is_too_high(counters.physical_written_bytes) {
            let gained = pass.cost.gained_bytes;
            tracing::info!(drive = %shown(&self.path), gained, "settling gains too little for what it writes");
            let part = self.drive.logical_capacity_bytes() / DEAR_PART;
            pass.give_up(counters.host_written_bytes + part);
        }
        let mut memory = self.memory.lock();
        memory.settling.position_bytes = step.next_block.unwrap_or(0) * BLOCK_BYTES as u64;
        if step.no_room {
            memory.settling.state = SettlingState::Waiting;
            return Ok(LOOK);
        }
        if pass.next.is_some() {
            return Ok(Duration::ZERO);
        }
        memory.settling.passes_count += 1;
        if pass.found {
            return Ok(Duration::ZERO);
        }
        memory.settling.state = SettlingState::Resting;
        pass.nothing = pass.begun;
        pass.rest_until = Some(Instant::now() + REST);
        Ok(LOOK)
    }

    /// Returns the data that is cold now, and the state that this depends on.
    fn what_to_settle(&self, pass: &Pass, now: Instant) -> (Settle, Reason) {
        if pass.is_quiet(now) {
            return (Settle::Worthwhile(None), Reason::All(pass.seen));
        }
        let status = self.drive.status();
        let packs = cold_packs(
            u64::from(status.segments_count) * u64::from(status.segment_bytes),
            status.counters.physical_written_bytes,
            status.sequence,
        );
        (Settle::Worthwhile(Some(packs)), Reason::Old(packs, status.sequence))
    }
}
