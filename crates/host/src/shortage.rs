//! Shortage of memory, for processes that writes of the kernel depend on. While such a process has a request
//! to answer, it must not wait for writes: they may wait for that request.
//!
//! | wait | avoided by |
//! | --- | --- |
//! | The kernel writes other data back before it gives the process memory, or lets it write. | [`become_io_flusher`] |
//! | Memory of the process has to be read from swap space. | [`lock_memory`] |
//! | The process was killed for its memory. | [`set_kill_score`] |

use std::io;

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, configure_io_flusher_behavior, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::Root;

/// `PF_MEMALLOC_NOIO` in the flags of a thread (`include/linux/sched.h`): its allocations start no writes,
/// and wait for none. Of an I/O flusher.
const NO_IO: u64 = 0x0008_0000;
/// Kill score of a process that is never killed for its memory.
pub const NEVER_KILLED: i16 = -1000;
/// Kill score of a process before which others are killed.
pub const KILLED_LATE: i16 = -900;
/// Field of `proc_pid_stat(5)` with the flags of a thread, counted from 1.
const FLAGS_FIELD: usize = 9;

/// Tells the kernel that writes depend on this thread, and on all threads and programs that it starts
/// (`PR_SET_IO_FLUSHER`, Linux 5.6). Needs `CAP_SYS_RESOURCE` in the first user namespace. Returns whether
/// the kernel has agreed.
pub fn become_io_flusher() -> bool {
    configure_io_flusher_behavior(true).is_ok()
}

/// Lets this process, and the programs that it starts, lock any amount of memory. Returns whether they may.
pub fn lift_lock_limit() -> bool {
    let none = Rlimit { current: None, maximum: None };
    getrlimit(Resource::Memlock).current.is_none() || setrlimit(Resource::Memlock, none).is_ok()
}

/// Keeps all memory of this process out of swap space, what it gets later too. Pages that it has not touched
/// are not allocated by that. Does nothing where the amount is limited: at the limit the process would get no
/// memory at all.
///
/// # Errors
/// `PermissionDenied` if the amount is limited; an error of the kernel, which may not know this (Linux 4.4).
pub fn lock_memory() -> io::Result<()> {
    let is_privileged =
        capabilities(None).is_ok_and(|found| found.effective.contains(CapabilitySet::IPC_LOCK));
    if getrlimit(Resource::Memlock).current.is_some() && !is_privileged {
        return Err(Errno::PERM.into());
    }
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// Gives up `CAP_SYS_RESOURCE`, for this thread and those that it starts: what it is for is done. Root keeps
/// it.
pub fn give_up_resources() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mut found = capabilities(None)?;
    if !found.permitted.contains(CapabilitySet::SYS_RESOURCE) {
        return Ok(());
    }
    // The kernel removes it from the ambient set, too.
    for set in [&mut found.effective, &mut found.permitted, &mut found.inheritable] {
        set.remove(CapabilitySet::SYS_RESOURCE);
    }
    Ok(set_capabilities(None, found)?)
}

/// Sets for how likely the kernel is to kill a process for its memory: from -1000, never, to 1000
/// (`proc_pid_oom_score_adj(5)`). Less than before needs `CAP_SYS_RESOURCE`.
///
/// # Errors
/// If the process is gone, or privileges are missing.
pub fn set_kill_score(process: &str, score: i16) -> io::Result<()> {
    std::fs::write(format!("/proc/{process}/oom_score_adj"), score.to_string())
}

/// Makes the kernel kill a process for its memory like any other, if it inherited from this one that it is
/// killed late.
pub fn kill_like_others(process: &str) {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").ok();
    if own.and_then(|own| own.trim().parse::<i16>().ok()).is_some_and(|own| own < 0) {
        // It may have ended.
        let _ = set_kill_score(process, 0);
    }
}

/// Returns whether all threads of a process are I/O flushers ([`become_io_flusher`]). `None` if that is not
/// to be seen.
pub fn is_io_flusher(root: &Root, process: &str) -> Option<bool> {
    let threads = root.names(format!("proc/{process}/task"), |_| true);
    let flags = |thread: &String| {
        let stat = root.text(format!("proc/{process}/task/{thread}/stat"))?;
        // The name in parentheses may contain anything; the next field is field 3.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(FLAGS_FIELD - 3)?.parse::<u64>().ok()
    };
    // Threads end at any time.
    let found: Vec<bool> = threads.iter().filter_map(flags).map(|flags| flags & NO_IO != 0).collect();
    (!found.is_empty()).then(|| found.iter().all(|it| *it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    #[test]
    fn a_flusher_has_it_in_all_its_threads() {
        let stat =
            |flags: u64| format!("7 (a ) 1 2 3) S 1 7 7 0 -1 {flags} 1 2 3 4 10 20 30 40 20 0 1 0 4711 6");
        let (with, without) = (stat(0x58_0140), stat(0x40_0140));
        let is = |first: &str, second: &str| {
            let files = [("proc/7/task/7/stat", first), ("proc/7/task/8/stat", second)];
            let (_folder, root) = tree(&files);
            is_io_flusher(&root, "7")
        };
        assert_eq!(is(&with, &with), Some(true));
        assert_eq!(is(&with, &without), Some(false));
        assert_eq!(is(&without, ""), Some(false), "a thread that has ended does not count");
        assert_eq!(is("", ""), None);
        let (_folder, root) = tree(&[]);
        assert_eq!(is_io_flusher(&root, "7"), None);
    }

    #[test]
    fn the_kernel_shows_what_it_was_told() {
        // On a thread of its own, which ends with it.
        let told = std::thread::spawn(|| {
            let agreed = become_io_flusher();
            let id = rustix::thread::gettid().as_raw_nonzero().to_string();
            let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).expect("this thread");
            let flags =
                stat.rsplit(')').next().expect("fields").split_whitespace().nth(6).map(str::parse::<u64>);
            (agreed, flags.expect("flags").expect("a number") & NO_IO != 0)
        });
        let (agreed, is_shown) = told.join().expect("ended");
        assert_eq!(agreed, is_shown);
    }
}
