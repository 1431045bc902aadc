//! Output of a server on standard output: drives and their addresses. A separate thread writes it, so that a
//! blocked pipe does not stop the server.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Largest number of lines that wait to be printed. Further lines are dropped.
const LINES_MAX: usize = 4096;
/// Longest time that the end of the server waits for these lines.
const FINISHED_WITHIN: Duration = Duration::from_secs(1);

/// Prints lines in the order of arrival.
pub(super) struct Printer {
    lines: Option<SyncSender<String>>,
    /// Closed by the thread when all lines are printed.
    finished: Receiver<()>,
}

impl Printer {
    pub(super) fn start() -> std::io::Result<Printer> {
        let (lines, waiting) = sync_channel::<String>(LINES_MAX);
        let (running, finished) = sync_channel(0);
        let print = move || {
            let _running: SyncSender<()> = running;
            for line in waiting {
                // The server continues if its output is closed.
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
