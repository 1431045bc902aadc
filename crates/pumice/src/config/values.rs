//! Values with names of their own, on the command line and in the file.

use std::path::PathBuf;

use media::Direct;
use nbd::Address;
use service::IoChoice;

/// Parses `unix:SOCKET`.
pub(crate) fn parse_unix_socket(text: &str) -> Result<PathBuf, String> {
    match text.parse() {
        Ok(Address::Unix(path)) => Ok(path),
        _ => Err(format!("{text:?} is not unix:SOCKET")),
    }
}

/// Parses how the backing is reached.
pub(crate) fn parse_io(text: &str) -> Result<IoChoice, String> {
    match text {
        "auto" => Ok(IoChoice::Auto),
        "uring" => Ok(IoChoice::Uring),
        "plain" => Ok(IoChoice::Plain),
        _ => Err(format!("{text:?} is none of auto, uring, plain")),
    }
}

/// Parses whether I/O goes around the page cache.
pub(crate) fn parse_direct(text: &str) -> Result<Direct, String> {
    match text {
        "auto" => Ok(Direct::Auto),
        "on" => Ok(Direct::On),
        "off" => Ok(Direct::Off),
        _ => Err(format!("{text:?} is none of auto, on, off")),
    }
}

/// Parses a share of the space at which throttling makes sense.
pub(crate) fn parse_percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse().ok().filter(|value| (1.0..=99.0).contains(value));
    value.ok_or_else(|| format!("{text:?} is no share from 1 to 99 percent"))
}
