//! Processes by id and time of start: ids are reused.

use std::time::{Duration, Instant};

use host::patience::patiently;
use host::process::{Stat, stat, try_stat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Time for a process that was killed to end.
const KILLED: Duration = Duration::from_secs(10);
/// Time for one that was stopped to be resumed, before it is killed.
const STOPPED: Duration = Duration::from_secs(10);
/// Time after which the start of a process that cannot be asked for counts as unknown.
const UNKNOWN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// A process, never confused with a later one that has its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Its start, in ticks since boot; `None`: it has ended.
    pub(crate) started: Option<u64>,
}

impl Process {
    /// One that has ended.
    pub(crate) const ENDED: Process = Process { pid: 0, started: None };

    /// The process that has this id now.
    pub(crate) fn of(pid: u32) -> Process {
        let since = Instant::now();
        loop {
            match try_stat(pid) {
                Ok(found) => return Process { pid, started: found.map(|found| found.started_ticks) },
                // One without a start has ended, as far as others know.
                Err(error) if since.elapsed() >= UNKNOWN => {
                    tracing::error!(pid, %error, "it is unknown when the process was started");
                    return Process { pid, started: None };
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }

    pub(crate) fn is_running(self) -> bool {
        !wait_for_end(self.pid, self.started, Duration::ZERO)
    }

    /// Ends the process by SIGTERM; if that takes longer than `patience` and it may be killed, by SIGKILL. A
    /// stopped process does not react to SIGTERM: it is killed after ten seconds. Returns false if it does
    /// not end.
    pub(crate) fn end(self, patience: Duration, may_kill: bool) -> bool {
        self.signal(Signal::TERM);
        let patience = if may_kill && self.is_stopped() { patience.min(STOPPED) } else { patience };
        if wait_for_end(self.pid, self.started, patience) {
            return true;
        }
        if !may_kill {
            return false;
        }
        tracing::error!(pid = self.pid, "it does not end: killing it");
        self.kill()
    }

    /// Kills the process. Returns false if it does not end.
    pub(crate) fn kill(self) -> bool {
        self.signal(Signal::KILL);
        wait_for_end(self.pid, self.started, KILLED)
    }

    /// Returns whether the process was stopped: SIGSTOP, or a debugger.
    pub(crate) fn is_stopped(self) -> bool {
        let is_it = |started| self.started.is_none_or(|known| known == started);
        stat(self.pid).is_some_and(|found| matches!(found.state, 'T' | 't') && is_it(found.started_ticks))
    }

    fn signal(self, signal: Signal) {
        let id = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let open = |id| patiently(|| pidfd_open(id, PidfdFlags::empty()));
        let Some(Ok(process)) = id.map(open) else { return };
        // Checked once its id cannot be reused.
        if self.started.is_some() && started(self.pid) == self.started {
            // It has ended if that fails.
            let _ = pidfd_send_signal(&process, signal);
        }
    }
}

/// Returns when a process was started, in ticks since the start of the machine; `None` if there is none with
/// this id.
pub(crate) fn started(pid: u32) -> Option<u64> {
    stat(pid).map(|found| found.started_ticks)
}

/// Waits until a process has ended: the kernel has closed all its files by then, and its sockets. Returns
/// false if it has not in time, or if that is unknown. `started`: its start; another process with this id is
/// not waited for.
pub(crate) fn wait_for_end(pid: u32, started: Option<u64>, patience: Duration) -> bool {
    let may_be_it = || {
        let is_it = |found: Option<Stat>| found.is_some_and(|found| Some(found.started_ticks) == started);
        started.is_some() && try_stat(pid).map_or(true, is_it)
    };
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let (true, Some(id)) = (may_be_it(), id) else { return true };
    let process = match patiently(|| pidfd_open(id, PidfdFlags::empty())) {
        Ok(process) => process,
        Err(error) => return Errno::from_io_error(&error) == Some(Errno::SRCH),
    };
    // It may have ended before it was opened.
    if !may_be_it() {
        return true;
    }
    let since = Instant::now();
    loop {
        let left = patience.saturating_sub(since.elapsed());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(count) => return count > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_waited_for_and_no_other_one() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let (pid, start) = (child.id(), started(child.id()));
        assert!(start.is_some());
        assert!(!wait_for_end(pid, start, Duration::from_millis(50)));
        assert!(wait_for_end(pid, start.map(|start| start + 1), Duration::ZERO), "the id is another's");
        assert!(wait_for_end(pid, None, Duration::ZERO));
        drop(child.stdin.take());
        assert!(wait_for_end(pid, start, Duration::from_secs(10)), "also while nobody has waited for it");
        child.wait().expect("ended");
        assert_eq!(started(pid), None);
    }

    #[test]
    fn a_process_is_ended_and_no_other_one() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo; while :; do sleep 0.1; done"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut line).expect("it runs");
        let process = Process::of(child.id());
        let other = Process { started: process.started.map(|start| start + 1), ..process };
        assert!(process.is_running() && !other.is_running());
        assert!(other.end(Duration::ZERO, true) && process.is_running(), "the id is another's");
        assert!(!process.end(Duration::from_millis(100), false) && process.is_running());
        process.signal(Signal::STOP);
        while !process.is_stopped() {
            std::thread::yield_now();
        }
        assert!(!other.is_stopped());
        assert!(
            process.end(Duration::from_secs(3600), true) && !process.is_running(),
            "it takes no notice of SIGTERM"
        );
        child.wait().expect("ended");
        assert!(process.end(Duration::ZERO, false));
    }
}
