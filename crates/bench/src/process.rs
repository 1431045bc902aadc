//! Other programs: started in their own process group, watched, timed and ended.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use host::process::{Stat, ids, stat};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::error::{BenchError, Result};

/// Interval between looks at a program.
const POLL: Duration = Duration::from_millis(5);
/// Time that a server may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a server to become ready.
pub(crate) const READY: Duration = Duration::from_secs(30);

/// Request to stop, which a signal handler sets.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end of the run: what was measured is kept.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether somebody asked.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

/// Returns the path of an installed program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns the path of an installed program, or an error that names its package.
pub(crate) fn need(program: &str, package: &'static str) -> Result<PathBuf> {
    find(program).ok_or_else(|| BenchError::Missing { program: program.to_string(), package })
}

/// A command that the kernel ends by `signal` (`KILL` or `TERM`) when the thread that started it ends:
/// SIGKILL or a panic of this program leaves no process behind. `setpriv` of util-linux sets it; without it
/// the program runs all the same.
fn command<S: AsRef<OsStr>>(program: &Path, arguments: &[S], signal: &str) -> Command {
    let mut command = match find("setpriv") {
        Some(setpriv) if program.is_file() => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", signal, "--"]).arg(program);
            command
        }
        _ => Command::new(program),
    };
    // A group of its own: Ctrl-C reaches only this process, which ends the others in order.
    command.args(arguments).process_group(0).stdin(Stdio::null());
    command
}

fn name(program: &Path) -> String {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// A program that ran to its end.
pub(crate) struct Ended {
    pub(crate) output: String,
    /// User and system time, in seconds, of its threads and of the children that it waited for.
    pub(crate) cpu_seconds: f64,
}

/// Runs a program to its end, for at most `limit`. Its output must fit in a file in `folder`.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &Path,
    arguments: &[S],
    folder: &Path,
    limit: Duration,
    stop: &Stop,
) -> Result<Ended> {
    run_with(program, arguments, &[], folder, limit, stop)
}

/// As [`run`], with more in the program's environment.
pub(crate) fn run_with<S: AsRef<OsStr>>(
    program: &Path,
    arguments: &[S],
    environment: &[(&str, &Path)],
    folder: &Path,
    limit: Duration,
    stop: &Stop,
) -> Result<Ended> {
    let failed = |problem: String| BenchError::program(&name(program), problem);
    let [out, err] = ["out", "err"].map(|name| tempfile::Builder::new().prefix(name).tempfile_in(folder));
    let (out, err) = (out.map_err(BenchError::io(folder))?, err.map_err(BenchError::io(folder))?);
    let file = |file: &tempfile::NamedTempFile| file.reopen().map_err(BenchError::io(folder));
    let mut command = command(program, arguments, "KILL");
    command.envs(environment.iter().copied()).stdout(file(&out)?).stderr(file(&err)?);
    let spawned = command.spawn();
    let mut group = Group(Some(spawned.map_err(|error| failed(format!("cannot be run: {error}")))?));
    let since = Instant::now();
    while !group.ended() {
        stop.check()?;
        if since.elapsed() > limit {
            let problem = format!("not done after {} seconds", limit.as_secs());
            return Err(BenchError::killed(&name(program), problem));
        }
        sleep(POLL);
    }
    let cpu_seconds = group.pid().map_or(0.0, |pid| cpu_seconds(pid, true));
    let status = group.reap().map_err(|error| failed(error.to_string()))?;
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    if !status.success() {
        let said = text(err.path());
        let line = said.trim().lines().last().map_or(status.to_string(), str::to_string);
        return Err(match status.code() {
            Some(_) => failed(line),
            None => BenchError::killed(&name(program), line),
        });
    }
    Ok(Ended { output: text(out.path()), cpu_seconds })
}

/// A child process and its group, killed when dropped.
#[derive(Debug)]
struct Group(Option<Child>);

impl Group {
    fn pid(&self) -> Option<u32> {
        self.0.as_ref().map(Child::id)
    }

    /// Returns whether it ended. It is not reaped, so that its times can still be read.
    fn ended(&self) -> bool {
        let Some(child) = &self.0 else { return true };
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(Pid::from_child(child)), how), Ok(None))
    }

    fn reap(&mut self) -> std::io::Result<std::process::ExitStatus> {
        match self.0.take() {
            Some(mut child) => child.wait(),
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.0 {
            // The process id is still valid, because the child was not waited for yet.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.reap();
    }
}

/// A server, ended when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    group: Group,
    program: String,
    log: PathBuf,
}

impl Server {
    /// Starts a server whose messages go to the file `log`.
    pub(crate) fn start<S: AsRef<OsStr>>(
        program: &Path,
        arguments: &[S],
        environment: &[(OsString, OsString)],
        log: &Path,
    ) -> Result<Server> {
        let messages = File::create(log).map_err(BenchError::io(log))?;
        // In order: file systems are unmounted, drives are closed.
        let mut command = command(program, arguments, "TERM");
        command.envs(environment.iter().cloned()).stdout(Stdio::null()).stderr(messages);
        let program = name(program);
        let child = command
            .spawn()
            .map_err(|error| BenchError::program(&program, format!("cannot be run: {error}")))?;
        Ok(Server { group: Group(Some(child)), program, log: log.to_path_buf() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.group.pid().unwrap_or(0)
    }

    /// Waits until `ready` returns a value. Fails if the server ends before.
    pub(crate) fn wait<T>(&self, stop: &Stop, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let since = Instant::now();
        loop {
            if self.group.ended() {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let line = log.trim().lines().last().unwrap_or("it ended").to_string();
                return Err(BenchError::program(&self.program, line));
            }
            if let Some(value) = ready()? {
                return Ok(value);
            }
            stop.check()?;
            if since.elapsed() > READY {
                return Err(BenchError::program(
                    &self.program,
                    format!("not ready after {} s", READY.as_secs()),
                ));
            }
            sleep(POLL * 4);
        }
    }
}

impl Drop for Server {
    /// Asks it to end, and kills it after a while.
    fn drop(&mut self) {
        self.group.signal(Signal::TERM);
        let since = Instant::now();
        while !self.group.ended() && since.elapsed() < PATIENCE {
            sleep(POLL);
        }
    }
}

/// Whether there is a process of this id.
pub(crate) fn exists(pid: u32) -> bool {
    stat(pid).is_some()
}

/// User and system time of a process so far, in seconds; 0 if it is gone. `children`: with those that it
/// waited for.
pub(crate) fn cpu_seconds(pid: u32, children: bool) -> f64 {
    let ticks = |stat: Stat| stat.cpu_ticks + if children { stat.children_cpu_ticks } else { 0 };
    seconds(stat(pid).map_or(0, ticks))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// User and system time so far, in seconds, of the kernel threads that do the work of btrfs and loop devices:
/// threads of these names, and workers that are bound to no processor. The kernel does not say whose work
/// such a worker does: that of other file systems is among it.
pub(crate) fn kernel_cpu_seconds() -> f64 {
    /// Parent of all kernel threads.
    const KTHREADD: u32 = 2;
    let kernel = ids().filter_map(stat).filter(|it| it.parent == KTHREADD && works_for_stores(&it.name));
    seconds(kernel.map(|it| it.cpu_ticks).sum())
}

/// Whether a kernel thread of this name may do the work of btrfs or of a loop device.
fn works_for_stores(name: &str) -> bool {
    ["btrfs", "loop", "kworker/u"].iter().any(|known| name.starts_with(known))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes a program that can be run at once. A shell writes it: what this process has open for writing,
    /// so have for a moment the processes that other tests start, and then the kernel does not run it
    /// (`ETXTBSY`).
    pub(crate) fn script(path: &Path, text: &str) {
        const WRITE: &str = r#"printf %s "$2" >"$1" && chmod 755 "$1""#;
        let written = Command::new("sh").args(["-c", WRITE, "sh"]).arg(path).arg(text).status();
        assert!(written.expect("a shell").success(), "{}", path.display());
    }

    #[test]
    fn kernel_threads_of_stores() {
        for (name, expected) in [
            ("kworker/u8:3-btrfs-endio-write", true),
            ("loop0", true),
            ("btrfs-transaction", true),
            ("kworker/0:1-events", false),
            ("ksoftirqd/0", false),
            ("jbd2/vda-8", false),
        ] {
            assert_eq!(works_for_stores(name), expected, "{name}");
        }
    }

    #[test]
    fn processes_end_with_who_started_them() {
        if find("setpriv").is_none() {
            eprintln!("skipped: no setpriv");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (sleeper, log) = (find("sleep").expect("sleep"), folder.path().join("log"));
        // The end of a thread counts like that of the process, and no destructor runs.
        let started = std::thread::spawn(move || {
            let server = Server::start(&sleeper, &["60"], &[], &log).expect("started");
            let pid = server.pid();
            // Until setpriv has become the program.
            let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            while name().trim() != "sleep" {
                sleep(POLL);
            }
            std::mem::forget(server);
            pid
        });
        let pid = started.join().expect("its process id");
        let since = Instant::now();
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next())
        };
        while !matches!(state(), None | Some('Z')) {
            assert!(since.elapsed() < READY, "process {pid} goes on");
            sleep(POLL);
        }
    }

    #[test]
    fn programs_run_fail_and_are_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = Stop::default();
        let shell = find("sh").expect("a shell");
        let run = |script: &str, limit| run(&shell, &["-c", script], folder.path(), limit, &stop);
        let long = Duration::from_secs(20);
        assert_eq!(run("echo yes", long).expect("it ran").output, "yes\n");
        let error = run("echo first >&2; echo last >&2; exit 3", long).err().expect("it failed");
        assert_eq!(error.to_string(), "sh: last");
        assert!(!error.may_be_done());
        let error = run("kill -9 $$", long).err().expect("it was killed");
        assert!(error.may_be_done() && error.to_string().contains("signal: 9"), "{error}");
        let error = run("sleep 60", Duration::from_millis(20)).err().expect("too long");
        assert!(error.may_be_done() && error.to_string().contains("not done after 0 seconds"), "{error}");
        stop.set();
        let error = run("sleep 60", long).err().expect("interrupted");
        assert!(error.may_be_done() && error.is_interrupted(), "{error}");
    }
}
