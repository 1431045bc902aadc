//! Values with names of their own, on the command line and in the file.

use std::path::PathBuf;

use media::Direct;
use nbd::Address;
use service::IoChoice;

use crate::size::{Size, SizeError};

/// Least of `map-cache`: four nodes of the map and what changes above them.
const MAP_CACHE_MIN: Size = Size(64 << 10);
/// Least of `throttle-floor`: one block a second.
const THROTTLE_FLOOR_MIN: Size = Size(4 << 10);

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

/// Parses a share of a processor.
pub(crate) fn parse_background_cpu(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let value = number.parse().ok().filter(|value| (0.0..=100.0).contains(value));
    value.ok_or_else(|| format!("{text:?} is no share from 0 to 100 percent"))
}

fn at_least(size: Size, least: Size) -> Result<Size, String> {
    match size < least {
        true => Err(format!("{} bytes are too few: write {}K or more", size.0, least.0 >> 10)),
        false => Ok(size),
    }
}

/// Takes sizes that a map can be cached in.
pub(crate) fn map_cache(size: Size) -> Result<Size, String> {
    at_least(size, MAP_CACHE_MIN)
}

/// Takes rates that writes get on with.
pub(crate) fn throttle_floor(size: Size) -> Result<Size, String> {
    at_least(size, THROTTLE_FLOOR_MIN)
}

/// Parses `map-cache`.
pub(crate) fn parse_map_cache(text: &str) -> Result<Size, String> {
    map_cache(text.parse().map_err(|error: SizeError| error.to_string())?)
}

/// Parses `throttle-floor`.
pub(crate) fn parse_throttle_floor(text: &str) -> Result<Size, String> {
    throttle_floor(text.parse().map_err(|error: SizeError| error.to_string())?)
}
