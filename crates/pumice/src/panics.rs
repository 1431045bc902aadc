//! Panic hook that ends the process on a panic in any thread.
//!
//! tokio catches panics of tasks, and a panic in a thread ends only that thread. The server would continue
//! with a drive whose state is half changed, because the panic came between two steps that belong together.
//! Ending the process immediately is safe: a drive recovers at its next opening, as after a power cut.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::process::abort;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Time that the log may take to accept the message. Standard error may be blocked.
const LOGGED_WITHIN: Duration = Duration::from_secs(1);

/// Installs a hook that logs a panic, once, and ends the process by SIGABRT.
pub(crate) fn end_the_process() {
    std::panic::set_hook(Box::new(end));
}

fn end(panic: &PanicHookInfo<'_>) {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::Relaxed) {
        // Another thread panicked first and is writing its message.
        thread::sleep(LOGGED_WITHIN);
        abort();
    }
    // Without this thread the process could hang while writing. Ending matters more than the message.
    let _ = thread::Builder::new().name("pumice-abort".into()).spawn(|| {
        thread::sleep(LOGGED_WITHIN);
        abort();
    });
    log(panic);
    abort();
}

/// Logs a panic. It runs before unwinding, so the locks of this thread are still held and no other thread
/// sees the state that they guard.
fn log(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let location = panic.location().map_or_else(|| "unknown".to_string(), ToString::to_string);
    let current = thread::current();
    let thread = current.name().unwrap_or("unnamed");
    let dropped = crate::logging::dropped();
    tracing::error!(thread, location, "panic: {message}; ending at once, drives recover when opened again");
    let is_logged = tracing::enabled!(tracing::Level::ERROR) && crate::logging::dropped() == dropped;
    if !(is_logged && crate::logging::finish()) {
        let line = format!("pumice: panic in thread {thread} at {location}: {message}").replace('\n', " ");
        // A failure to report the failure is ignored.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        let _ = writeln!(std::io::stderr(), "{backtrace}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, ExitStatus, Stdio};
    use std::time::Instant;

    use service::{IoChoice, Workers};

    use super::*;

    /// Environment variable set in the child process that is to panic.
    const CHILD: &str = "PUMICE_TEST_PANICS";
    const LIMIT: Duration = Duration::from_secs(60);

    fn is_child() -> bool {
        std::env::var_os(CHILD).is_some()
    }

    /// Runs the start of the program, which installs the hook.
    fn begin() {
        crate::run(["pumice", "--version"]);
    }

    /// Runs the same test again in a child process.
    fn child(test: &str, stderr: Stdio) -> Child {
        Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", &format!("panics::tests::{test}"), "--nocapture"])
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", "0")
            .env_remove("PUMICE_LOG")
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("this program again")
    }

    fn wait(mut child: Child) -> ExitStatus {
        let since = Instant::now();
        while since.elapsed() < LIMIT {
            if let Some(status) = child.try_wait().expect("it is ours") {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        panic!("it did not end");
    }

    /// Returns the output of the child on standard error before SIGABRT ended it.
    fn last_words(test: &str) -> String {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let status = wait(child(test, file.reopen().expect("the file again").into()));
        let said = std::fs::read_to_string(file.path()).expect("what it said");
        assert_eq!(status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{status:?}: {said}");
        said
    }

    #[test]
    fn a_panic_of_a_task_that_tokio_would_catch() {
        if is_child() {
            begin();
            crate::logging::start(crate::logging::Format::Text);
            let workers = Workers::start(Some(1), IoChoice::Plain).expect("a worker");
            workers.spawn_on(0, async { panic!("half\nchanged") });
            thread::sleep(LIMIT);
            return;
        }
        let said = last_words("a_panic_of_a_task_that_tokio_would_catch");
        assert_eq!(said.lines().count(), 1, "{said}");
        for what in ["ERROR", "half changed", "panics.rs:", "thread=\"pumice-"] {
            assert!(said.contains(what), "{what}: {said}");
        }
    }

    #[test]
    fn threads_that_panic_together_are_reported_once() {
        if is_child() {
            begin();
            for _ in 0..8 {
                thread::spawn(|| panic!("no log here"));
            }
            thread::sleep(LIMIT);
            return;
        }
        let said = last_words("threads_that_panic_together_are_reported_once");
        assert_eq!(said.matches("pumice: panic in thread unnamed at ").count(), 1, "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    #[test]
    fn a_log_that_nobody_reads_does_not_keep_the_process_alive() {
        if is_child() {
            begin();
            crate::logging::start(crate::logging::Format::Json);
            panic!("unheard");
        }
        let (unread, full) = std::io::pipe().expect("a pipe");
        let full = OwnedFd::from(full);
        fill(&full);
        let status = wait(child("a_log_that_nobody_reads_does_not_keep_the_process_alive", full.into()));
        assert_eq!(status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{status:?}");
        drop(unread);
    }

    fn fill(pipe: &OwnedFd) {
        let flags = rustix::fs::fcntl_getfl(pipe).expect("flags");
        rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK).expect("set");
        for len in [1 << 16, 1] {
            while rustix::io::write(pipe, &vec![b'.'; len]).is_ok() {}
        }
        rustix::fs::fcntl_setfl(pipe, flags).expect("set back");
    }
}
