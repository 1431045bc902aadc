//! The file: TOML, every key known, every error with its line and field.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use nbd::Address;
use serde::de::{Deserializer, Unexpected, Visitor};
use serde::{Deserialize, de};
use service::WarnAt;

use super::values::{parse_background_cpu, parse_direct, parse_io, parse_percent, parse_unix_socket};
use super::{CONNECTIONS_MAX, DriveConfig, Server, Settings, THREADS_MAX, TlsFiles};
use crate::logging;
use crate::size::Size;

/// Largest file read: a mistaken path shall not fill the memory.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) server: Server,
    pub(super) drives: Vec<DriveConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    server: ServerTable,
    #[serde(default)]
    drive: Vec<DriveTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct ServerTable {
    nbd: Vec<AddressValue>,
    admin: Option<UnixSocket>,
    http: Option<HttpValue>,
    log_format: Option<LogFormat>,
    warn_at: Option<Levels>,
    on_event: Option<CommandText>,
    threads: Option<Threads>,
    io: Option<Io>,
    offload: Option<OffloadValue>,
    insecure: bool,
    max_connections: Option<Connections>,
    max_connections_per_peer: Option<Connections>,
    tls: Option<TlsTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TlsTable {
    cert: AbsolutePath,
    key: AbsolutePath,
    ca: Option<AbsolutePath>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DriveTable {
    path: AbsolutePath,
    name: Option<Name>,
    #[serde(default)]
    nbd: Vec<AddressValue>,
    map_cache: Option<MapCache>,
    write_cache: Option<bool>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    accept_damage: bool,
    direct: Option<DirectValue>,
    warn_at: Option<Levels>,
    on_event: Option<CommandText>,
    throttle_at: Option<Percent>,
    throttle_floor: Option<ThrottleFloor>,
    background_cpu: Option<BackgroundCpu>,
}

/// A value that is a string of a certain form.
macro_rules! text_value {
    ($name:ident, $inner:ty, $expected:literal, $parse:expr) => {
        #[doc = $expected]
        #[derive(Clone)]
        struct $name($inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        let parse: fn(&str) -> Result<$inner, String> = $parse;
                        parse(text).map($name).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

fn told<T, E: Display>(parsed: Result<T, E>) -> Result<T, String> {
    parsed.map_err(|error| error.to_string())
}

text_value!(AddressValue, Address, "an address, \"unix:SOCKET\" or \"tcp:HOST:PORT\"", |text| {
    match told(text.parse())? {
        Address::Unix(path) if !path.is_absolute() => Err(format!("{text:?}: the path must begin with /")),
        address => Ok(address),
    }
});
text_value!(UnixSocket, PathBuf, "a socket, \"unix:SOCKET\"", |text| {
    let path = parse_unix_socket(text)?;
    if path.is_absolute() { Ok(path) } else { Err(format!("{text:?}: the path must begin with /")) }
});
text_value!(Io, service::IoChoice, "\"auto\", \"uring\" or \"plain\"", parse_io);
text_value!(OffloadValue, offload::Choice, "\"none\", \"qat\" or \"qat:PATH\"", |text| told(text.parse()));
text_value!(DirectValue, media::Direct, "\"auto\", \"on\" or \"off\"", parse_direct);
text_value!(HttpValue, admin::HttpAddress, "an address, \"HOST:PORT\"", |text| told(text.parse()));
text_value!(LogFormat, logging::Format, "\"text\" or \"json\"", |text| {
    clap::ValueEnum::from_str(text, false).map_err(|_| format!("{text:?} is none of text, json"))
});
text_value!(CommandText, String, "a command for sh", |text| match text.trim() {
    "" => Err("expected a command for sh".to_string()),
    _ => Ok(text.to_string()),
});
text_value!(AbsolutePath, PathBuf, "a path that begins with /", |text| {
    let path = PathBuf::from(text);
    let usable = path.is_absolute() && !text.contains('\0');
    if usable { Ok(path) } else { Err(format!("{text:?} is not a path that begins with /")) }
});
text_value!(Name, String, "a name of 1 to 4096 bytes", |text| {
    let usable = !text.is_empty() && text.len() <= 4096 && !text.chars().any(char::is_control);
    if usable { Ok(text.to_string()) } else { Err("expected a name of 1 to 4096 bytes on one line".into()) }
});

/// A size: a string as on the command line, or a number of bytes.
struct SizeValue(Size);

impl<'de> Deserialize<'de> for SizeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SizeValue, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = SizeValue;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size such as \"128M\", or a number of bytes")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<SizeValue, E> {
                text.parse().map(SizeValue).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<SizeValue, E> {
                let size = u64::try_from(bytes);
                size.map(|size| SizeValue(Size(size)))
                    .map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

/// A size that must be large enough.
macro_rules! checked_size {
    ($name:ident, $check:path) => {
        struct $name(Size);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let SizeValue(size) = SizeValue::deserialize(deserializer)?;
                $check(size).map($name).map_err(de::Error::custom)
            }
        }
    };
}

checked_size!(MapCache, super::values::map_cache);
checked_size!(ThrottleFloor, super::values::throttle_floor);

/// Levels of space in use: a list of percentages, or as on the command line.
#[derive(Clone)]
struct Levels(WarnAt);

impl<'de> Deserialize<'de> for Levels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Levels, D::Error> {
        struct LevelsVisitor;
        impl<'de> Visitor<'de> for LevelsVisitor {
            type Value = Levels;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("percentages such as [80, 90, 95], or \"off\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Levels, E> {
                text.parse().map(Levels).map_err(E::custom)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Levels, A::Error> {
                let mut levels: Vec<String> = Vec::new();
                while let Some(level) = list.next_element::<i64>()? {
                    levels.push(level.to_string());
                }
                levels.join(",").parse().map(Levels).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(LevelsVisitor)
    }
}

/// A share: a number.
macro_rules! percentage {
    ($name:ident, $expected:literal, $parse:path) => {
        #[doc = $expected]
        struct $name(f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct PercentVisitor;
                impl Visitor<'_> for PercentVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                        $parse(&number.to_string()).map($name).map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        $parse(&number.to_string()).map($name).map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(PercentVisitor)
            }
        }
    };
}

percentage!(Percent, "a percentage from 1 to 99", parse_percent);
percentage!(BackgroundCpu, "a percentage from 0 to 100", parse_background_cpu);

/// A number from 1 on.
macro_rules! count {
    ($name:ident, $inner:ty, $max:ident) => {
        struct $name($inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct CountVisitor;
                impl Visitor<'_> for CountVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "a number from 1 to {}", $max)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        match <$inner>::try_from(number) {
                            Ok(count @ 1..=$max) => Ok($name(count)),
                            _ => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                        }
                    }
                }
                deserializer.deserialize_any(CountVisitor)
            }
        }
    };
}

count!(Threads, u16, THREADS_MAX);
count!(Connections, u32, CONNECTIONS_MAX);

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Read> {
    let shown = path.display();
    let metadata =
        std::fs::metadata(path).with_context(|| format!("{shown}: cannot read the configuration"))?;
    if !metadata.is_file() || metadata.len() > FILE_MAX_BYTES {
        return Err(anyhow!("{shown}: not a configuration file of up to 1 MiB; check --config"));
    }
    let bytes = std::fs::read(path).with_context(|| format!("{shown}: cannot read the configuration"))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = line_of(&bytes, error.valid_up_to());
        anyhow!("{shown}:{line}: not UTF-8 text, which TOML is")
    })?;
    parse(text).map_err(|(at, field, what)| {
        let line = at.map_or(String::new(), |at| format!(":{}", line_of(text.as_bytes(), at)));
        let field = field.map_or(String::new(), |field| format!("{field}: "));
        anyhow!("{shown}{line}: {field}{}", what.replace('\n', " "))
    })
}

fn line_of(text: &[u8], at: usize) -> usize {
    1 + text.iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Where an error begins, in which field it is, and what it says.
type ParseError = (Option<usize>, Option<String>, String);

fn parse(text: &str) -> Result<Read, ParseError> {
    let told = |error: &toml::de::Error, field: Option<String>| {
        (error.span().map(|span| span.start), field, error.message().to_string())
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| told(&error, None))?;
    let file: File = serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let field = (path != "." && path != "?").then_some(path);
        told(error.inner(), field)
    })?;
    let addresses = |list: Vec<AddressValue>| list.into_iter().map(|address| address.0).collect();
    let server = Server {
        nbd: addresses(file.server.nbd),
        admin: file.server.admin.map(|path| path.0),
        http: file.server.http.map(|address| address.0),
        log_format: file.server.log_format.map_or_else(Default::default, |format| format.0),
        threads: file.server.threads.map(|threads| threads.0),
        io: file.server.io.map_or_else(Default::default, |io| io.0),
        offload: file.server.offload.map_or_else(Default::default, |offload| offload.0),
        tls: file.server.tls.map(|tls| TlsFiles {
            cert: tls.cert.0,
            key: tls.key.0,
            ca: tls.ca.map(|path| path.0),
        }),
        insecure: file.server.insecure,
        max_connections: file.server.max_connections.map(|max| max.0),
        max_connections_per_peer: file.server.max_connections_per_peer.map(|max| max.0),
    };
    let (warn_at, on_event) = (file.server.warn_at, file.server.on_event);
    let drive = |table: DriveTable| {
        let defaults = Settings::default();
        let mut drive = DriveConfig::of(table.path.0);
        drive.name = table.name.map_or(drive.name, |name| name.0);
        drive.nbd = addresses(table.nbd);
        drive.settings = Settings {
            map_cache: table.map_cache.map_or(defaults.map_cache, |size| size.0),
            write_cache: table.write_cache.unwrap_or(defaults.write_cache),
            read_only: table.read_only,
            accept_damage: table.accept_damage,
            direct: table.direct.map_or(defaults.direct, |direct| direct.0),
            warn_at: table.warn_at.or(warn_at.clone()).map_or(defaults.warn_at, |levels| levels.0),
            throttle_at: table.throttle_at.map(|percent| percent.0),
            throttle_floor: table.throttle_floor.map_or(defaults.throttle_floor, |size| size.0),
            background_cpu: table.background_cpu.map_or(defaults.background_cpu, |percent| percent.0),
            on_event: table.on_event.or(on_event.clone()).map(|command| command.0),
        };
        drive
    };
    Ok(Read { server, drives: file.drive.into_iter().map(drive).collect() })
}
