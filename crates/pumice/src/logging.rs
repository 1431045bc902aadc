//! The log on standard error: one line per event, without any data stored on a drive. A separate thread
//! writes it. A blocked reader or a full disk therefore delays no request and stops no server: lines that do
//! not fit in the buffer are dropped, and their number is logged.

use std::borrow::Cow;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Largest number of lines that wait to be written.
const LINES_MAX: usize = 4096;
/// Environment variable with the levels to log.
const LEVELS_VARIABLE: &str = "PUMICE_LOG";
/// Longest time that [`finish`] waits for these lines.
const FINISHED_WITHIN: Duration = Duration::from_secs(1);

/// Number of lines logged, including those dropped.
static LOGGED: AtomicUsize = AtomicUsize::new(0);
/// Number of lines that the thread has written, or failed to write.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);
/// Counter of dropped lines.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Reads levels such as `debug` or `nbd=trace,drive=debug`. `info` applies to everything else.
fn levels(text: &str) -> Option<Targets> {
    // `Targets` takes a single word that is no level for the name of a target, and no word at all for a
    // level.
    let is_level = |level: &str| !level.is_empty() && level.parse::<LevelFilter>().is_ok();
    if !text.split(',').all(|item| item.split('=').next_back().is_some_and(is_level)) {
        return None;
    }
    let targets: Targets = text.parse().ok()?;
    Some(match targets.default_level() {
        Some(_) => targets,
        None => targets.with_default(LevelFilter::INFO),
    })
}

/// Starts the log at level `info`, or with the levels in `PUMICE_LOG`.
pub(crate) fn start(format: Format) {
    let wanted = std::env::var(LEVELS_VARIABLE).ok().filter(|text| !text.is_empty());
    let levels_wanted = wanted.as_deref().map(levels);
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .thread_name("pumice-log")
        .finish(OneLine { format, reported: 0 });
    let _ = DROPPED.set(writer.error_counter());
    // Dropping the guard prints to standard output if the log is stuck, and may hang there.
    std::mem::forget(guard);
    let colours = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    let lines =
        layer().with_writer(Counting(writer)).with_ansi(format == Format::Text && colours).with_target(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let default = || Targets::new().with_default(LevelFilter::INFO);
    let targets = levels_wanted.clone().flatten().unwrap_or_else(default);
    // An error means that a log was already started.
    let _ = tracing_subscriber::registry().with(targets).with(lines).try_init();
    if let (Some(text), Some(None)) = (wanted, levels_wanted) {
        tracing::warn!("{LEVELS_VARIABLE} is ignored: {text:?}; expected a level, or CRATE=LEVEL,...");
    }
}

/// Number of lines dropped so far.
pub(crate) fn dropped() -> usize {
    DROPPED.get().map_or(0, ErrorCounter::dropped_lines)
}

/// Waits until all lines logged so far are written. Returns false if that takes longer than one second:
/// standard error is stuck, and a write to it would hang.
pub(crate) fn finish() -> bool {
    let begun = Instant::now();
    let logged = LOGGED.load(Ordering::Acquire);
    while WRITTEN.load(Ordering::Acquire) + dropped() < logged {
        if begun.elapsed() > FINISHED_WITHIN {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Writer that counts lines before they are passed to the thread.
struct Counting(NonBlocking);

impl<'a> MakeWriter<'a> for Counting {
    type Writer = CountingWriter;

    fn make_writer(&'a self) -> CountingWriter {
        CountingWriter(self.0.clone())
    }
}

struct CountingWriter(NonBlocking);

impl Write for CountingWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        LOGGED.fetch_add(1, Ordering::AcqRel);
        self.0.write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writer to standard error that makes each write one line, even if it contains file names with line breaks.
struct OneLine {
    format: Format,
    /// Number of dropped lines that was already reported in the log.
    reported: usize,
}

/// Returns the line that reports dropped lines.
fn dropped_line(format: Format, lines: usize) -> String {
    let mut now = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    let message = "log lines were dropped: they came faster than they could be written";
    match format {
        Format::Text => format!("{now}  WARN {message} lines={lines}\n"),
        Format::Json => {
            let line = serde_json::json!({
                "timestamp": now, "level": "WARN", "message": message, "lines": lines
            });
            format!("{line}\n")
        }
    }
}

/// Replaces line breaks within a line by spaces.
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
        let written = std::io::stderr().write_all(&one_line(line));
        WRITTEN.fetch_add(1, Ordering::AcqRel);
        written.map(|()| line.len())
    }

    /// Called when no line is waiting.
    fn flush(&mut self) -> std::io::Result<()> {
        let dropped = dropped();
        if dropped > self.reported {
            let line = dropped_line(self.format, dropped - self.reported);
            self.reported = dropped;
            std::io::stderr().write_all(line.as_bytes())?;
        }
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

    #[test]
    fn levels_apply_to_a_crate_or_to_all() {
        use tracing::Level;
        let is_logged = |text: &str, target: &str, level: Level| {
            levels(text).map(|levels| levels.would_enable(target, &level))
        };
        assert_eq!(is_logged("debug", "drive::open", Level::DEBUG), Some(true));
        assert_eq!(is_logged("warn", "drive", Level::INFO), Some(false));
        assert_eq!(is_logged("nbd=debug", "nbd::session", Level::DEBUG), Some(true));
        assert_eq!(is_logged("nbd=debug", "drive", Level::DEBUG), Some(false));
        assert_eq!(is_logged("nbd=debug", "drive", Level::INFO), Some(true));
        assert_eq!(is_logged("off,nbd=trace", "drive", Level::ERROR), Some(false));
        for wrong in ["loud", "nbd=", "nbd=loud", ",", ""] {
            assert!(levels(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn dropped_lines_are_reported_as_other_lines_are() {
        let text = dropped_line(Format::Text, 3);
        assert!(text.ends_with(" lines=3\n") && text.contains("Z  WARN log lines were dropped"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&dropped_line(Format::Json, 3)).expect("JSON");
        assert_eq!((&json["level"], &json["lines"]), (&"WARN".into(), &3.into()));
    }
}
