//! What a server prints on standard output: which drive it serves where. A thread of its own writes it, so that a pipe that
//! nobody empties stops no server.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait to be printed, at most; what finds no room is not printed.
const LINES_MAX: usize = 4096;
/// How long the end of a server waits for them.
const FINISHED_WITHIN: Duration = Duration::from_secs(1);

/// Prints lines in the order in which they come.
pub(super) struct Printer {
    lines: Option<SyncSender<String>>,
    /// Closed by the thread when all is printed.
    finished: Receiver<()>,
}

impl Printer {
    pub(super) fn start() -> std::io::Result<Printer> {
        let (lines, waiting) = sync_channel::<String>(LINES_MAX);
        let (running, finished) = sync_channel(0);
        let print = move || {
            let _running: SyncSender<()> = running;
            for line in waiting {
                // A server whose output nobody reads serves all the same.
                let _ = writeln!(std::io::stdout(), "{line}");
            }
        };
        std::thread::Builder::new().name("pumice-print".into()).spawn(print)?;
        Ok(Printer { lines: Some(lines), finished })
    }

    pub(super) fn print(&self, line: String) {
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(line);
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.finished.recv_timeout(FINISHED_WITHIN);
    }
}
