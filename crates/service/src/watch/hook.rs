//! The command that is run for events (`--on-event`).
//!
//! The event is passed in environment variables, never in the text of the command, so no file name can become
//! part of a command. Commands of all drives run one at a time, each for a limited time.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use status::{EventKind, shown, unix_seconds};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard, mpsc};
use tokio::task::JoinHandle;

use crate::watch::events::Event;

/// A command that takes longer is killed, with everything that it started.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Events that wait for their command. More are dropped, and the log reports that.
const QUEUE: usize = 64;
/// Longest wait of a closing drive for commands that are still to be run.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// One command at a time in this process.
static TURN: Mutex<()> = Mutex::const_new(());

/// User and home for commands, if they are not those of the environment.
static ACCOUNT: OnceLock<(OsString, OsString)> = OnceLock::new();

/// See [`before_commands`].
static PREPARATION: OnceLock<fn()> = OnceLock::new();

/// Has a function called before each command for an event is started, on a thread that may block. The first
/// call counts.
pub fn before_commands(prepare: fn()) {
    let _ = PREPARATION.set(prepare);
}

/// Holds back the commands of all drives in this process while it exists.
pub struct CommandsHeld(#[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

impl CommandsHeld {
    /// Sets user and home in the environment of commands, in place of those of the server. Call it when the
    /// process has become that user.
    pub fn run_as(&self, user: &str, home: &Path) {
        // A process changes its user at most once.
        let _ = ACCOUNT.set((user.into(), home.into()));
    }
}

/// Holds back commands for events until the result is dropped. Those of events in the meantime are run then.
pub async fn hold_commands() -> CommandsHeld {
    CommandsHeld(TURN.lock().await)
}

/// Runs a command for each event of a drive, in order.
pub(crate) struct Hook {
    events: Sender,
    running: JoinHandle<()>,
}

/// Accepts events for which the command is to be run.
#[derive(Clone)]
pub(crate) struct Sender(mpsc::Sender<Event>);

impl Sender {
    /// Runs the command for an event, after those before it.
    pub(crate) fn send(&self, event: &Event) {
        if self.0.try_send(event.clone()).is_err() {
            tracing::warn!(
                event = event.kind.as_str(),
                "too many events wait for the command of --on-event: it is not run for this one"
            );
        }
    }
}

/// The command, and the drive that is passed to it.
#[derive(Clone)]
struct Settings {
    command: String,
    drive: PathBuf,
    id: String,
    timeout: Duration,
}

impl Hook {
    /// Starts on the current runtime.
    pub(crate) fn start(command: String, drive: PathBuf, id: String) -> Hook {
        Hook::start_with(Settings { command, drive, id, timeout: TIMEOUT })
    }

    fn start_with(settings: Settings) -> Hook {
        let (events, mut queue) = mpsc::channel::<Event>(QUEUE);
        let running = tokio::spawn(async move {
            while let Some(event) = queue.recv().await {
                let _turn = TURN.lock().await;
                if let Err(why) = run(&settings, &event).await {
                    let (drive, event) = (shown(&settings.drive), event.kind.as_str());
                    tracing::warn!(%drive, event, %why, "the command of --on-event failed");
                }
            }
        });
        Hook { events: Sender(events), running }
    }

    /// Returns a sender of events. All of them must be dropped for [`Hook::finish`] to end early.
    pub(crate) fn sender(&self) -> Sender {
        self.events.clone()
    }

    /// Accepts no more events, and waits a while for those accepted.
    pub(crate) async fn finish(self) {
        drop(self.events);
        let mut running = self.running;
        if tokio::time::timeout(CLOSE_PATIENCE, &mut running).await.is_err() {
            tracing::warn!("the command of --on-event takes too long: killed");
            running.abort();
            // Until it is killed with what it started.
            let _ = running.await;
        }
    }
}

/// Returns whether the command gets a variable of the server's environment, which may hold secrets.
fn is_passed_on(name: &str) -> bool {
    const ORDINARY: [&str; 7] = ["HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"];
    ORDINARY.contains(&name) || name.starts_with("LC_") || name.starts_with("PUMICE_")
}

/// Returns the environment of the command.
fn environment(settings: &Settings, event: &Event) -> Vec<(OsString, OsString)> {
    let passed_on = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on));
    let of_event = describe(settings, event).into_iter().map(|(name, value)| (name.into(), value));
    let of_account = ACCOUNT.get().into_iter().flat_map(|(user, home)| {
        [("USER", user), ("LOGNAME", user), ("HOME", home)].map(|(name, value)| (name.into(), value.clone()))
    });
    // The last value of a name counts.
    passed_on.chain(of_account).chain(of_event).collect()
}

/// Returns the variables that describe an event.
fn describe(settings: &Settings, event: &Event) -> Vec<(&'static str, OsString)> {
    let level = event.level_percent.map(|level| level.to_string()).unwrap_or_default();
    // Nothing is known about a drive that is not open.
    let known = |text: String| if event.kind == EventKind::OpenFailed { String::new() } else { text };
    vec![
        ("PUMICE_EVENT", event.kind.as_str().into()),
        ("PUMICE_DRIVE", settings.drive.clone().into()),
        ("PUMICE_ID", settings.id.clone().into()),
        ("PUMICE_TIME", unix_seconds(event.at).to_string().into()),
        ("PUMICE_MESSAGE", event.message.clone().into()),
        ("PUMICE_USED_PERCENT", known(format!("{:.2}", event.used_percent)).into()),
        ("PUMICE_LEVEL_PERCENT", level.into()),
        ("PUMICE_AVAILABLE_BYTES", known(event.available_bytes.to_string()).into()),
    ]
}

/// A group of processes, killed when it is dropped.
struct Group(Option<rustix::process::Pid>);

impl Group {
    /// Lets the processes that are left run: the command has ended and may have started what is to stay.
    fn let_run(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may be gone already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Reason why the command of an event did not succeed.
#[derive(Debug, thiserror::Error)]
enum HookError {
    /// The shell cannot be run.
    #[error("cannot run /bin/sh: {0}")]
    Spawn(#[source] io::Error),
    /// The command ended with another status than 0.
    #[error("{0}")]
    Status(ExitStatus),
    /// The end of the command is unknown.
    #[error("cannot wait for it: {0}")]
    Wait(#[source] io::Error),
    /// The command took longer than this. It was killed.
    #[error("not done after {} s: killed", .0.as_secs_f64())]
    Late(Duration),
}

async fn run(settings: &Settings, event: &Event) -> Result<(), HookError> {
    if let Some(prepare) = PREPARATION.get() {
        // A panic ends the process.
        let _ = tokio::task::spawn_blocking(prepare).await;
    }
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(&settings.command)
        .env_clear()
        .envs(environment(settings, event))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own, so that everything it starts can be ended together.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(HookError::Spawn)?;
    if let Some(id) = child.id() {
        host::shortage::kill_like_others(&id.to_string());
    }
    // Dropped before `child`, which keeps the number of the group from being used again.
    let group = Group(child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())));
    let waited = tokio::time::timeout(settings.timeout, child.wait()).await;
    match waited {
        Ok(ended) => {
            group.let_run();
            match ended {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(HookError::Status(status)),
                Err(error) => Err(HookError::Wait(error)),
            }
        }
        Err(_) => {
            drop(group);
            let _ = child.wait().await;
            Err(HookError::Late(settings.timeout))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn event(kind: EventKind, message: &str) -> Event {
        Event {
            kind,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
            message: message.into(),
            used_percent: 90.456,
            available_bytes: 4711,
            level_percent: Some(90),
        }
    }

    fn settings(command: &str, drive: &str) -> Settings {
        Settings { command: command.into(), drive: drive.into(), id: "some-id".into(), timeout: TIMEOUT }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> std::io::Result<T> {
        Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
    }

    #[test]
    fn the_command_learns_what_happened_from_its_environment() -> Outcome {
        let dir = tempfile::tempdir()?;
        let out = dir.path().join("out").display().to_string();
        let names = ["EVENT", "ID", "TIME", "USED_PERCENT", "LEVEL_PERCENT", "AVAILABLE_BYTES", "MESSAGE"];
        let variables = names.map(|name| format!("$PUMICE_{name}")).join("|");
        let command = format!("echo \"{variables}\" > {out}");
        block_on(run(&settings(&command, "/srv/d"), &event(EventKind::SpaceWarning, "a message")))??;
        assert_eq!(std::fs::read_to_string(out)?, "space-warning|some-id|1000|90.46|90|4711|a message\n");
        Ok(())
    }

    #[test]
    fn names_are_no_part_of_the_command() -> Outcome {
        let dir = tempfile::tempdir()?;
        let (out, trap) = (dir.path().join("out"), dir.path().join("trap"));
        let hostile = format!("/srv/$(touch {0})`touch {0}`; touch {0} #'\"", trap.display());
        let command = format!("printf %s \"$PUMICE_DRIVE\" > {}", out.display());
        let hostile_event = event(EventKind::Poisoned, &hostile);
        block_on(run(&settings(&command, &hostile), &hostile_event))??;
        assert_eq!(std::fs::read_to_string(out)?, hostile);
        assert!(!trap.exists(), "part of a name was run");
        Ok(())
    }

    /// Command that starts another process, writes its number to a file, and waits for it.
    fn hangs(pid_file: &Path) -> String {
        format!("sleep 600 & echo $! > {}; wait", pid_file.display())
    }

    /// Waits for the end of the process whose number is in a file.
    fn wait_for_its_end(pid_file: &Path) -> Outcome {
        let pid: i32 = std::fs::read_to_string(pid_file)?.trim().parse()?;
        // It may take a moment until its end is noticed.
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        for _ in 0..2000 {
            if gone() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("process {pid} is still there").into())
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_what_it_started() -> Outcome {
        let dir = tempfile::tempdir()?;
        let pid_file = dir.path().join("pid");
        let settings =
            Settings { timeout: Duration::from_millis(500), ..settings(&hangs(&pid_file), "/srv/d") };
        let why =
            block_on(run(&settings, &event(EventKind::Opened, "")))?.err().ok_or("it was not killed")?;
        assert!(matches!(why, HookError::Late(_)), "{why}");
        wait_for_its_end(&pid_file)
    }

    #[test]
    fn a_command_that_is_not_waited_for_is_killed_with_what_it_started() -> Outcome {
        let dir = tempfile::tempdir()?;
        let pid_file = dir.path().join("pid");
        let settings = settings(&hangs(&pid_file), "/srv/d");
        block_on(async {
            let event = event(EventKind::Closed, "");
            let running = tokio::spawn(async move { run(&settings, &event).await });
            while std::fs::read_to_string(&pid_file).unwrap_or_default().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // As at the end of the patience of a closing drive.
            running.abort();
            let _ = running.await;
        })?;
        wait_for_its_end(&pid_file)
    }

    #[test]
    fn what_is_to_be_done_before_commands_is_done() -> Outcome {
        static DONE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        before_commands(|| {
            DONE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        block_on(run(&settings("true", "/srv/d"), &event(EventKind::Opened, "")))??;
        assert!(DONE.load(std::sync::atomic::Ordering::Relaxed) > 0);
        Ok(())
    }

    #[test]
    fn commands_run_in_order_and_a_failure_stops_nothing() -> Outcome {
        let dir = tempfile::tempdir()?;
        let out = dir.path().join("out");
        let command = format!("echo \"$PUMICE_MESSAGE\" >> {}; exit 3", out.display());
        block_on(async {
            let hook = Hook::start_with(settings(&command, "/srv/d"));
            (0..10).for_each(|n| hook.events.send(&event(EventKind::SpaceWarning, &n.to_string())));
            hook.finish().await;
        })?;
        let lines: Vec<String> = (0..10).map(|n| format!("{n}\n")).collect();
        assert_eq!(std::fs::read_to_string(out)?, lines.concat());
        Ok(())
    }

    #[test]
    fn more_events_than_can_wait_are_dropped() -> Outcome {
        let dir = tempfile::tempdir()?;
        let out = dir.path().join("out");
        let command = format!("echo x >> {}", out.display());
        block_on(async {
            let hook = Hook::start_with(settings(&command, "/srv/d"));
            // Nothing runs before this task waits.
            (0..QUEUE + 50).for_each(|_| hook.events.send(&event(EventKind::SpaceWarning, "")));
            hook.finish().await;
        })?;
        assert_eq!(std::fs::read_to_string(out)?.lines().count(), QUEUE);
        Ok(())
    }
}
