//! Types of option values: their forms on the command line and in the file, which differ
//! (`--write-cache off`, `write-cache = false`), and their defaults.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Error, Result, anyhow};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use media::Direct;
use nbd::Address;
use serde::Deserialize;
use service::{IoChoice, WarnAt};

use super::in_file::{FromToml, Refused, Toml, deserialize_from_toml};
use crate::attach_method::AttachMethod;
use crate::logging;
use crate::size::Size;

pub(crate) use super::in_file::InFile;

/// Lower limit of `map-cache`: four map nodes and the changes above them.
const MAP_CACHE_MIN: Size = Size(64 << 10);
/// Upper limit of `read-cache`: more than any machine's memory, and its blocks can be counted.
const READ_CACHE_MAX: Size = Size(1 << 40);
/// Lower limit of `throttle-floor`: one block per second.
const THROTTLE_FLOOR_MIN: Size = Size(4 << 10);
/// Limits of `request-memory`.
const REQUEST_MEMORY_MIN: Size = Size(*nbd::TOTAL_BUFFER_BYTES.start() as u64);
const REQUEST_MEMORY_MAX: Size = Size(*nbd::TOTAL_BUFFER_BYTES.end() as u64);
/// Upper limit of the time for which writes are held: a day.
const HELD_SECONDS_MAX: u64 = 24 * 3600;
/// Upper limit of times in seconds: a week.
const SECONDS_MAX: u32 = 7 * 24 * 3600;
/// Upper limit of the connection options.
const CONNECTIONS_MAX: u32 = nbd::CONNECTIONS_LIMIT as u32;
/// Upper limit of `threads`.
const THREADS_MAX: u16 = 1024;

/// Parser for an option with a fixed set of words, which shells can complete.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

/// Defines a value written as text of a certain form, in the file as a TOML string.
macro_rules! text_value {
    ($name:ident, $inner:ty, $expected:literal, $parse:expr) => {
        #[doc = $expected]
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name(pub(crate) $inner);

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<$name> {
                let parse: fn(&str) -> Result<$inner> = $parse;
                parse(text).map($name)
            }
        }

        impl InFile for $name {
            const FORM: &'static str = $expected;
        }

        impl FromToml for $name {
            fn from_toml(value: Toml<'_>) -> Result<$name, Refused> {
                match value {
                    Toml::Text(text) => Ok(text.parse()?),
                    _ => Err(Refused::Type),
                }
            }
        }
        deserialize_from_toml!($name);
    };
}

/// Defines the default of a value.
macro_rules! default_value {
    ($name:ident, $default:expr) => {
        impl Default for $name {
            fn default() -> $name {
                $name($default)
            }
        }
    };
}

text_value!(Io, IoChoice, "\"auto\", \"uring\" or \"plain\"", |text| match text {
    "auto" => Ok(IoChoice::Auto),
    "uring" => Ok(IoChoice::Uring),
    "plain" => Ok(IoChoice::Plain),
    _ => Err(anyhow!("expected auto, uring or plain")),
});
default_value!(Io, IoChoice::Auto);

text_value!(Offload, offload::Choice, "\"none\", \"qat\" or \"qat:PATH\"", |text| Ok(text.parse()?));
default_value!(Offload, offload::Choice::default());

text_value!(DirectIo, Direct, "\"auto\", \"on\" or \"off\"", |text| match text {
    "auto" => Ok(Direct::Auto),
    "on" => Ok(Direct::On),
    "off" => Ok(Direct::Off),
    _ => Err(anyhow!("expected auto, on or off")),
});
default_value!(DirectIo, Direct::Auto);

text_value!(LogFormat, logging::Format, "\"text\" or \"json\"", |text| {
    clap::ValueEnum::from_str(text, false).map_err(|_| anyhow!("expected text or json"))
});
default_value!(LogFormat, logging::Format::default());

text_value!(Http, Option<admin::HttpAddress>, "an address, \"HOST:PORT\" or \"unix:SOCKET\"", |text| {
    match text.parse()? {
        admin::HttpAddress::Unix(path) if !path.is_absolute() => {
            Err(anyhow!("{text:?}: the path must begin with /"))
        }
        address => Ok(Some(address)),
    }
});
default_value!(Http, None);

text_value!(CommandText, Option<String>, "a command for sh", |text| match text.trim() {
    "" => Err(anyhow!("expected a command for sh")),
    _ => Ok(Some(text.to_string())),
});
default_value!(CommandText, None);

text_value!(UserName, Option<String>, "a user, by name or number", |text| {
    // Neither is part of a name, and a number has no sign.
    let wrong = text.is_empty()
        || text.starts_with(['+', '-'])
        || text.contains(|c: char| c == ':' || c.is_control());
    if wrong { Err(anyhow!("expected a user, by name or number")) } else { Ok(Some(text.to_string())) }
});
default_value!(UserName, None);

// Values that exist only in the file.
text_value!(
    Client,
    nbd::ClientName,
    "a DNS name in the certificate of a client, or \"sha256:FINGERPRINT\"",
    |text| Ok(text.parse()?)
);
text_value!(AttachBy, AttachMethod, "\"auto\", \"loop\" or \"nbd\"", |text| text.parse());
text_value!(AbsoluteAddress, Address, "an address, \"unix:SOCKET\" or \"tcp:HOST:PORT\"", |text| {
    match text.parse()? {
        Address::Unix(path) if !path.is_absolute() => Err(anyhow!("{text:?}: the path must begin with /")),
        address => Ok(address),
    }
});
text_value!(AbsoluteSocket, PathBuf, "a socket, \"unix:SOCKET\"", |text| {
    let path = parse_unix_socket(text)?;
    if path.is_absolute() { Ok(path) } else { Err(anyhow!("{text:?}: the path must begin with /")) }
});
text_value!(AbsolutePath, PathBuf, "a path that begins with /", |text| {
    let path = PathBuf::from(text);
    let usable = path.is_absolute() && !text.contains('\0');
    if usable { Ok(path) } else { Err(anyhow!("expected a path that begins with /")) }
});
text_value!(Name, String, "a name of 1 to 4096 bytes", |text| {
    let usable = !text.is_empty() && text.len() <= 4096 && !text.chars().any(char::is_control);
    if usable { Ok(text.to_string()) } else { Err(anyhow!("expected a name of 1 to 4096 bytes on one line")) }
});

/// Parses `unix:SOCKET`.
pub(crate) fn parse_unix_socket(text: &str) -> Result<PathBuf> {
    match text.parse() {
        Ok(Address::Unix(path)) => Ok(path),
        _ => Err(anyhow!("expected unix:SOCKET")),
    }
}

/// Defines a switch: on or off on the command line, true or false in the file.
macro_rules! switch {
    ($name:ident, $default:literal) => {
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(pub(crate) bool);
        default_value!($name, $default);

        impl InFile for $name {
            const FORM: &'static str = "true or false";
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<$name> {
                match text {
                    "on" => Ok($name(true)),
                    "off" => Ok($name(false)),
                    _ => Err(anyhow!("expected on or off")),
                }
            }
        }
    };
}

switch!(WriteCache, true);
switch!(Sandbox, true);

/// Defines a size with limits: a text, or in the file also a number of bytes.
macro_rules! size_value {
    ($name:ident, $least:expr, $most:expr, $default:expr) => {
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name(pub(crate) Size);
        default_value!($name, Size($default));

        impl InFile for $name {
            const FORM: &'static str = "a size such as \"128M\", or a number of bytes";
        }

        impl $name {
            fn check(size: Size) -> Result<$name> {
                let (least, most): (Size, Size) = ($least, $most);
                if size < least {
                    return Err(anyhow!("expected a size of {}K or more", least.0 >> 10));
                }
                if size > most {
                    return Err(anyhow!("expected a size of {}G or less", most.0 >> 30));
                }
                Ok($name(size))
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<$name> {
                $name::check(text.parse()?)
            }
        }

        impl FromToml for $name {
            fn from_toml(value: Toml<'_>) -> Result<$name, Refused> {
                match value {
                    Toml::Text(text) => Ok(text.parse()?),
                    Toml::Integer(bytes) => {
                        let bytes = u64::try_from(bytes).map_err(|_| Refused::Value)?;
                        Ok($name::check(Size(bytes))?)
                    }
                    _ => Err(Refused::Type),
                }
            }
        }
        deserialize_from_toml!($name);
    };
}

size_value!(MapCache, MAP_CACHE_MIN, Size(u64::MAX), drive::DEFAULT_MAP_BUDGET_BYTES);
size_value!(ReadCacheSize, Size(0), READ_CACHE_MAX, drive::ReadCache::DEFAULT_BYTES);
size_value!(ThrottleFloor, THROTTLE_FLOOR_MIN, Size(u64::MAX), service::DEFAULT_FLOOR_BYTES_PER_SECOND);
size_value!(
    RequestMemory,
    REQUEST_MEMORY_MIN,
    REQUEST_MEMORY_MAX,
    nbd::ServerConfig::default().total_buffer_bytes_max as u64
);

/// Warning levels of used space: in the file a list of percentages, or the text of the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Levels(pub(crate) WarnAt);

impl InFile for Levels {
    const FORM: &'static str = "percentages such as [80, 90, 95], or \"off\"";
}

impl FromStr for Levels {
    type Err = Error;
    fn from_str(text: &str) -> Result<Levels> {
        Ok(Levels(text.parse()?))
    }
}

impl FromToml for Levels {
    fn from_toml(value: Toml<'_>) -> Result<Levels, Refused> {
        match value {
            Toml::Text(text) => Ok(text.parse()?),
            Toml::Integers(levels) => {
                let levels: Vec<String> = levels.iter().map(i64::to_string).collect();
                Ok(levels.join(",").parse()?)
            }
            _ => Err(Refused::Type),
        }
    }
}
deserialize_from_toml!(Levels);

/// Defines a percentage: a number, on the command line with an optional percent sign.
macro_rules! percentage {
    ($name:ident, $from:literal, $to:literal, $default:expr) => {
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name(pub(crate) f64);
        default_value!($name, $default);

        impl InFile for $name {
            const FORM: &'static str =
                concat!("a percentage from ", stringify!($from), " to ", stringify!($to));
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<$name> {
                let number = text.strip_suffix('%').unwrap_or(text).parse();
                let value = number.ok().filter(|value| (f64::from($from)..=f64::from($to)).contains(value));
                value.map($name).ok_or_else(|| anyhow!("expected {}", $name::FORM))
            }
        }

        impl FromToml for $name {
            fn from_toml(value: Toml<'_>) -> Result<$name, Refused> {
                match value {
                    Toml::Integer(percent) => Ok(percent.to_string().parse()?),
                    Toml::Float(percent) => Ok(percent.to_string().parse()?),
                    _ => Err(Refused::Type),
                }
            }
        }
        deserialize_from_toml!($name);
    };
}

percentage!(ThrottlePercent, 1, 99, service::DEFAULT_THROTTLE_PERCENT);

/// Usage from which on writes are slowed down: a percentage, or a word.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum ThrottleAt {
    #[default]
    Auto,
    Off,
    Percent(ThrottlePercent),
}

impl InFile for ThrottleAt {
    const FORM: &'static str = "a percentage from 1 to 99, \"auto\" or \"off\"";
}

impl FromStr for ThrottleAt {
    type Err = Error;
    fn from_str(text: &str) -> Result<ThrottleAt> {
        match text {
            "auto" => Ok(ThrottleAt::Auto),
            "off" => Ok(ThrottleAt::Off),
            _ => match text.parse() {
                Ok(percent) => Ok(ThrottleAt::Percent(percent)),
                Err(_) => Err(anyhow!("expected a percentage from 1 to 99, auto or off")),
            },
        }
    }
}

impl FromToml for ThrottleAt {
    fn from_toml(value: Toml<'_>) -> Result<ThrottleAt, Refused> {
        match value {
            Toml::Text(text @ ("auto" | "off")) => Ok(text.parse()?),
            Toml::Text(_) => Err(Refused::Value),
            value => ThrottlePercent::from_toml(value).map(ThrottleAt::Percent),
        }
    }
}
deserialize_from_toml!(ThrottleAt);

text_value!(
    ScrubEvery,
    Option<std::time::Duration>,
    "a time such as \"30d\" or \"12h\", or \"off\"",
    |text| {
        const HOUR: u64 = 3600;
        let expected = || anyhow!("expected a time from 1h to 3650d, such as 30d, or off");
        if text == "off" {
            return Ok(None);
        }
        let (number, unit) = match (text.strip_suffix('d'), text.strip_suffix('h')) {
            (Some(days), _) => (days, 24 * HOUR),
            (None, Some(hours)) => (hours, HOUR),
            (None, None) => return Err(expected()),
        };
        let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        let seconds = seconds.filter(|seconds| (HOUR..=3650 * 24 * HOUR).contains(seconds));
        seconds.map(|seconds| Some(std::time::Duration::from_secs(seconds))).ok_or_else(expected)
    }
);
default_value!(ScrubEvery, None);

text_value!(FullText, service::WhenFull, "\"error\" or \"wait:SECONDS\"", |text| {
    let seconds = text.strip_prefix("wait:").and_then(|seconds| seconds.parse().ok());
    let seconds = seconds.filter(|seconds| (1..=HELD_SECONDS_MAX).contains(seconds));
    match (text, seconds) {
        ("error", _) => Ok(service::WhenFull::Error),
        (_, Some(seconds)) => Ok(service::WhenFull::Wait(std::time::Duration::from_secs(seconds))),
        (_, None) => Err(anyhow!("expected error, or wait:SECONDS with 1 to {HELD_SECONDS_MAX} seconds")),
    }
});
default_value!(FullText, service::WhenFull::Error);

percentage!(BackgroundCpu, 0, 100, service::DEFAULT_BACKGROUND_CPU_PERCENT);

/// Defines a number of at least 1; `None` if not given.
macro_rules! count {
    ($name:ident, $inner:ty, $max:ident) => {
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct $name(pub(crate) Option<$inner>);

        impl InFile for $name {
            const FORM: &'static str = "a number, 1 or more";
        }

        impl $name {
            fn check(number: i64) -> Option<$name> {
                <$inner>::try_from(number)
                    .ok()
                    .filter(|count| (1..=$max).contains(count))
                    .map(|count| $name(Some(count)))
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<$name> {
                let number = text.parse().ok().and_then($name::check);
                number.ok_or_else(|| anyhow!("expected a number from 1 to {}", $max))
            }
        }

        impl FromToml for $name {
            fn from_toml(value: Toml<'_>) -> Result<$name, Refused> {
                match value {
                    Toml::Integer(number) => $name::check(number).ok_or(Refused::Value),
                    _ => Err(Refused::Type),
                }
            }

            fn expecting(f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a number from 1 to {}", $max)
            }
        }
        deserialize_from_toml!($name);
    };
}

count!(Threads, u16, THREADS_MAX);
count!(Connections, u32, CONNECTIONS_MAX);
count!(Seconds, u32, SECONDS_MAX);
