//! The log, on standard error: one line per event, without any data stored on a drive. A thread of its own writes it, so that a
//! log nobody reads, or a full disk under it, delays no request and stops no server: lines that find no room are dropped.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use parking_lot::Mutex;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that wait to be written, at most.
const LINES_MAX: usize = 4096;

/// Waits for the thread that writes, when dropped: for a second at most.
static WRITER: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Logs from now on: warnings and notices, or what `PUMICE_LOG` says (`debug`, `nbd=trace`, ...).
pub(crate) fn start(format: Format) {
    let filter = EnvFilter::try_from_env("PUMICE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .thread_name("pumice-log")
        .finish(OneLine);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal() && format == Format::Text)
        .with_target(false);
    let started = match format {
        Format::Text => log.try_init(),
        Format::Json => log.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        *WRITER.lock() = Some(guard);
    }
}

/// Writes out what was logged so far, if that takes no longer than a second; what is logged later may be lost.
pub(crate) fn finish() {
    let guard = WRITER.lock().take();
    drop(guard);
}

/// Standard error, on which what is written at once is one line, whatever names of files it holds.
struct OneLine;

/// A line without further breaks in it.
fn one_line(line: &[u8]) -> Cow<'_, [u8]> {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    if !text.iter().any(is_break) {
        return line.into();
    }
    let mut mended: Vec<u8> = text.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect();
    mended.extend(&line[text.len()..]);
    mended.into()
}

impl Write for OneLine {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        std::io::stderr().write_all(&one_line(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_line_break_does_not_break_the_line() {
        assert_eq!(*one_line(b"one line\n"), *b"one line\n");
        assert_eq!(*one_line(b"drive=a\nWARN forged\r\n"), *b"drive=a WARN forged \n");
        assert_eq!(*one_line(b"no end"), *b"no end");
        assert_eq!(*one_line(b"\n"), *b"\n");
    }
}
