//! What servers need to take the requests of a FUSE file from the kernel, and who has it now.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use fuse::{Mount, Share};
use host::patience::patiently;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The shares of a mount. One process at a time serves them: a server, or this one, which answers no requests
/// and only questions about the file, so that nobody who looks at it waits for a server.
pub(crate) struct Shares {
    all: Vec<Share>,
    state: Mutex<State>,
}

struct State {
    mount: Mount,
    /// The last server that got them. `None`: it is unknown which process that is.
    server: Option<OwnedFd>,
}

impl Shares {
    /// Takes a mount that was handed over.
    pub(crate) fn new(mount: Mount, all: Vec<Share>) -> Shares {
        Shares { all, state: Mutex::new(State { mount, server: None }) }
    }

    /// Returns them for a server, which has them from now on, for as long as it lives. `pid`: `None` if its
    /// number means nothing here.
    pub(crate) fn for_server(&self, pid: Option<u32>) -> &[Share] {
        let mut state = self.state.lock();
        // Known before it gets them.
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        state.server = pid.and_then(|pid| patiently(|| pidfd_open(pid, PidfdFlags::empty())).ok());
        if let Err(error) = state.mount.stop() {
            tracing::warn!(%error, "the FUSE file was not answered for while there was no server");
        }
        &self.all
    }

    /// Answers questions about the file, of `size_bytes`, if the last server has ended.
    pub(crate) fn answer(&self, size_bytes: u64) {
        let mut state = self.state.lock();
        if !state.server.as_ref().is_some_and(has_ended) {
            return;
        }
        if let Err(error) = state.mount.answer(size_bytes) {
            tracing::warn!(%error, "who looks at the FUSE file waits for a server");
        }
    }

    /// Returns whether this process has them alone: the last server has certainly ended.
    pub(crate) fn are_alone(&self) -> bool {
        self.state.lock().server.as_ref().is_some_and(has_ended)
    }

    /// Returns whether the kernel has ended the connection: somebody has aborted it.
    pub(crate) fn has_ended(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.all.first().is_some_and(|share| {
            let mut device = [PollFd::new(&share.device, PollFlags::empty())];
            poll(&mut device, Some(&at_once)).is_ok() && device[0].revents().contains(PollFlags::ERR)
        })
    }

    /// Makes the kernel ask for the size of the file again.
    ///
    /// # Errors
    /// If it is not mounted any more.
    pub(crate) fn forget_size(&self) -> io::Result<()> {
        self.state.lock().mount.forget_size()
    }

    /// The file system outlives this process from now on, unless it is unmounted.
    pub(crate) fn keep(&self) {
        self.state.lock().mount.keep();
    }

    /// Unmounts the file system.
    ///
    /// # Errors
    /// If answering failed.
    pub(crate) fn unmount(&self, patience: Duration) -> io::Result<()> {
        self.state.lock().mount.unmount(patience)
    }
}

/// Returns whether a process has certainly ended, with all its threads.
fn has_ended(process: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut ends = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ends, Some(&at_once)).is_ok_and(|count| count > 0) && ends[0].revents().contains(PollFlags::IN)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_the_end_of_a_process_counts() -> io::Result<()> {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        assert!(!has_ended(&process));
        drop(child.stdin.take());
        child.wait()?;
        assert!(has_ended(&process));
        Ok(())
    }
}
