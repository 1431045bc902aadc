//! What a server serves and how: out of the configuration file and the command line, which beats it.

mod file;
mod values;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use media::Direct;
use nbd::Address;
use service::{IoChoice, MonitorSettings, OpenSettings, ThrottleSettings, WarnAt};

use crate::logging;
use crate::size::Size;
use crate::usage::WrongUsage;
pub(crate) use values::{
    parse_background_cpu, parse_direct, parse_io, parse_map_cache, parse_percent, parse_throttle_floor,
    parse_unix_socket,
};

/// Where the file lies unless said otherwise.
pub(crate) const DEFAULT_PATH: &str = "/etc/pumice/pumice.toml";
/// Names another file instead of [`DEFAULT_PATH`].
const DEFAULT_PATH_VARIABLE: &str = "PUMICE_CONFIG";
/// Default of `map-cache`.
pub(crate) const DEFAULT_MAP_CACHE: Size = Size(drive::DEFAULT_MAP_BUDGET_BYTES);
/// Default of `throttle-floor`.
pub(crate) const DEFAULT_THROTTLE_FLOOR: Size = Size(service::DEFAULT_FLOOR_BYTES_PER_SECOND);
/// Default of `background-cpu`.
pub(crate) const DEFAULT_BACKGROUND_CPU: f64 = service::DEFAULT_BACKGROUND_CPU_PERCENT;
/// Most connections that can be allowed.
pub(crate) const CONNECTIONS_MAX: u32 = nbd::CONNECTIONS_LIMIT as u32;
/// Most worker threads.
pub(crate) const THREADS_MAX: u16 = 1024;

/// Everything a server needs to know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) server: Server,
    /// In the order they are offered: the first is the one clients get who ask for no name.
    pub(crate) drives: Vec<DriveConfig>,
}

/// What concerns all drives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Server {
    /// Where all drives are offered; if empty, each has a socket of its own.
    pub(crate) nbd: Vec<Address>,
    pub(crate) admin: Option<PathBuf>,
    pub(crate) http: Option<admin::HttpAddress>,
    pub(crate) log_format: logging::Format,
    /// `None`: one a core.
    pub(crate) threads: Option<u16>,
    pub(crate) io: IoChoice,
    pub(crate) offload: offload::Choice,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) insecure: bool,
    /// `None`: the default of the NBD server.
    pub(crate) max_connections: Option<u32>,
    /// `None`: half of them all.
    pub(crate) max_connections_per_peer: Option<u32>,
}

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: Option<PathBuf>,
}

/// One drive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DriveConfig {
    /// Of the backing, absolute.
    pub(crate) path: PathBuf,
    /// What clients ask for.
    pub(crate) name: String,
    /// Where this drive alone is offered, besides the server's addresses.
    pub(crate) nbd: Vec<Address>,
    pub(crate) settings: Settings,
}

/// How a drive is opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) map_cache: Size,
    pub(crate) write_cache: bool,
    pub(crate) read_only: bool,
    pub(crate) accept_damage: bool,
    pub(crate) direct: Direct,
    pub(crate) warn_at: WarnAt,
    pub(crate) on_event: Option<String>,
    /// Percent of the space; `None`: never slowed down.
    pub(crate) throttle_at: Option<f64>,
    /// Bytes a second.
    pub(crate) throttle_floor: Size,
    /// Percent of a processor; 0: nothing is done in the background.
    pub(crate) background_cpu: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            map_cache: DEFAULT_MAP_CACHE,
            write_cache: true,
            read_only: false,
            accept_damage: false,
            direct: Direct::Auto,
            warn_at: WarnAt::default(),
            on_event: None,
            throttle_at: None,
            throttle_floor: DEFAULT_THROTTLE_FLOOR,
            background_cpu: DEFAULT_BACKGROUND_CPU,
        }
    }
}

impl Settings {
    /// Keys that differ.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<&'static str> {
        let differ = [
            ("map-cache", self.map_cache != other.map_cache),
            ("write-cache", self.write_cache != other.write_cache),
            ("read-only", self.read_only != other.read_only),
            ("accept-damage", self.accept_damage != other.accept_damage),
            ("direct", self.direct != other.direct),
            ("warn-at", self.warn_at != other.warn_at),
            ("on-event", self.on_event != other.on_event),
            ("throttle-at", self.throttle_at != other.throttle_at),
            ("throttle-floor", self.throttle_floor != other.throttle_floor),
            ("background-cpu", self.background_cpu != other.background_cpu),
        ];
        differ.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    pub(crate) fn open(&self) -> OpenSettings {
        OpenSettings {
            map_budget_bytes: self.map_cache.0,
            write_cache: self.write_cache,
            read_only: self.read_only,
            accept_damage: self.accept_damage,
            direct: self.direct,
            monitor: MonitorSettings { warn_at: self.warn_at.clone(), on_event: self.on_event.clone() },
            throttle: self.throttle_at.map(|at_percent| ThrottleSettings {
                at_percent,
                floor_bytes_per_second: self.throttle_floor.0.max(1),
            }),
            background_cpu_percent: self.background_cpu,
        }
    }
}

/// What the command line says; `None` and empty where it says nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// If any, these drives are served and no others.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) nbd: Vec<Address>,
    pub(crate) admin: Option<PathBuf>,
    pub(crate) http: Option<admin::HttpAddress>,
    pub(crate) log_format: Option<logging::Format>,
    pub(crate) threads: Option<u16>,
    pub(crate) io: Option<IoChoice>,
    pub(crate) offload: Option<offload::Choice>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) insecure: bool,
    pub(crate) max_connections: Option<u32>,
    pub(crate) max_connections_per_peer: Option<u32>,
    pub(crate) map_cache: Option<Size>,
    pub(crate) write_cache: Option<bool>,
    pub(crate) read_only: bool,
    pub(crate) accept_damage: bool,
    pub(crate) direct: Option<Direct>,
    pub(crate) warn_at: Option<WarnAt>,
    pub(crate) on_event: Option<String>,
    pub(crate) throttle_at: Option<f64>,
    pub(crate) throttle_floor: Option<Size>,
    pub(crate) background_cpu: Option<f64>,
}

impl Overrides {
    /// Puts the command line over what a file says of a drive.
    fn settle(&self, settings: &mut Settings) {
        settings.map_cache = self.map_cache.unwrap_or(settings.map_cache);
        settings.write_cache = self.write_cache.unwrap_or(settings.write_cache);
        settings.read_only |= self.read_only;
        settings.accept_damage |= self.accept_damage;
        settings.direct = self.direct.unwrap_or(settings.direct);
        if let Some(warn_at) = &self.warn_at {
            settings.warn_at.clone_from(warn_at);
        }
        settings.throttle_at = self.throttle_at.or(settings.throttle_at);
        settings.throttle_floor = self.throttle_floor.unwrap_or(settings.throttle_floor);
        settings.background_cpu = self.background_cpu.unwrap_or(settings.background_cpu);
        settings.on_event = self.on_event.clone().or(settings.on_event.take());
    }

    fn settle_server(&self, server: &mut Server) {
        if !self.nbd.is_empty() {
            server.nbd.clone_from(&self.nbd);
        }
        server.admin = self.admin.clone().or(server.admin.take());
        server.http = self.http.clone().or(server.http.take());
        server.log_format = self.log_format.unwrap_or(server.log_format);
        server.threads = self.threads.or(server.threads);
        server.io = self.io.unwrap_or(server.io);
        if let Some(offload) = &self.offload {
            server.offload.clone_from(offload);
        }
        server.tls = self.tls.clone().or(server.tls.take());
        server.insecure |= self.insecure;
        server.max_connections = self.max_connections.or(server.max_connections);
        server.max_connections_per_peer = self.max_connections_per_peer.or(server.max_connections_per_peer);
    }
}

/// Where a configuration comes from: read again for every reload.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// `None`: the command line says it all.
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Overrides,
}

impl Source {
    /// The file that is named, or the default one if no drive is. `None` where neither is there: nothing to serve.
    pub(crate) fn find(named: Option<&Path>, overrides: Overrides) -> Result<Option<Source>> {
        let file = match named {
            Some(file) => Some(absolute(file)?),
            None if !overrides.paths.is_empty() => None,
            None => {
                let named = std::env::var_os(DEFAULT_PATH_VARIABLE).filter(|name| !name.is_empty());
                let default = named.map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from);
                if !default.exists() {
                    return Ok(None);
                }
                Some(default)
            }
        };
        Ok(Some(Source { file, overrides }))
    }

    /// Reads and checks everything; nothing is opened but the file.
    ///
    /// # Errors
    /// One line: file, line, field, what is wrong and what was expected.
    pub(crate) fn load(&self) -> Result<Config> {
        let read = match &self.file {
            Some(file) => file::read(file)?,
            None => file::Read::default(),
        };
        let file::Read { mut server, drives: in_file } = read;
        self.overrides.settle_server(&mut server);
        let mut drives: Vec<DriveConfig> = match &self.overrides.paths[..] {
            [] => in_file,
            paths => {
                let named = |path: &PathBuf| {
                    let path = absolute(path)?;
                    let known = in_file.iter().find(|drive| drive.path == path).cloned();
                    Ok(known.unwrap_or_else(|| DriveConfig::of(path)))
                };
                let mut drives = paths.iter().map(named).collect::<Result<Vec<DriveConfig>>>()?;
                tell_apart(&mut drives);
                drives
            }
        };
        drives.iter_mut().for_each(|drive| self.overrides.settle(&mut drive.settings));
        let config = Config { server, drives };
        config.check().map_err(|error| match &self.file {
            Some(file) => error.context(file.display().to_string()),
            None => WrongUsage(error.to_string()).into(),
        })?;
        Ok(config)
    }
}

impl DriveConfig {
    /// With defaults for everything, and the name of the file.
    fn of(path: PathBuf) -> DriveConfig {
        let name = short_name(&path);
        DriveConfig { path, name, nbd: Vec::new(), settings: Settings::default() }
    }
}

fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    // Different files have different names, whatever their bytes are.
    name.to_str().map_or_else(|| service::shown(Path::new(name)).to_string(), str::to_string)
}

/// Drives that are only paths are named by them where their files have one name.
fn tell_apart(drives: &mut [DriveConfig]) {
    let mut seen = std::collections::HashSet::new();
    if !drives.iter().all(|drive| seen.insert(drive.name.clone())) {
        drives.iter_mut().for_each(|drive| drive.name = service::path_text(&drive.path));
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: not a path", path.display()))
}

/// What a path leads to, as far as it can be told.
fn target(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

impl Config {
    /// What no single value can show.
    fn check(&self) -> Result<()> {
        if self.drives.is_empty() {
            bail!("no drive to serve; add a [[drive]] with its path");
        }
        let mut addresses = std::collections::HashMap::new();
        for address in &self.server.nbd {
            if addresses.insert(address.to_string(), "the server".to_string()).is_some() {
                bail!("server.nbd: {address} is there twice; leave one out");
            }
        }
        for (at, drive) in self.drives.iter().enumerate() {
            let path = service::shown(&drive.path);
            let earlier = &self.drives[..at];
            if earlier.iter().any(|other| target(&other.path) == target(&drive.path)) {
                bail!("{path} is there twice; leave one out");
            }
            if let Some(other) = earlier.iter().find(|other| other.name == drive.name) {
                bail!(
                    "{path} and {} are both named {:?}; give one of them another name",
                    service::shown(&other.path),
                    drive.name
                );
            }
            if drive.settings.accept_damage && !drive.settings.read_only {
                bail!("{path}: accept-damage needs read-only = true beside it");
            }
            for address in &drive.nbd {
                if let Some(other) = addresses.insert(address.to_string(), format!("drive {path}")) {
                    bail!("{path}: {address} is an address of {other} already; choose another");
                }
            }
        }
        Ok(())
    }
}

impl Server {
    /// Limits and TLS for the NBD server; reads the PEM files.
    pub(crate) fn nbd_config(&self) -> Result<nbd::ServerConfig> {
        let tls = match &self.tls {
            Some(files) => nbd::TlsPolicy::Required(
                nbd::TlsConfig::from_pem_files(&files.cert, &files.key, files.ca.as_deref())
                    .map_err(|error| anyhow!(error))?,
            ),
            None => nbd::TlsPolicy::Off,
        };
        let defaults = nbd::ServerConfig::default();
        let connections_max = self.max_connections.map_or(defaults.connections_max, |max| max as usize);
        // One peer leaves room for another.
        let half = connections_max.div_ceil(2);
        let connections_per_peer_max = self.max_connections_per_peer.map_or(half, |max| max as usize);
        Ok(nbd::ServerConfig {
            tls,
            insecure: self.insecure,
            connections_max,
            connections_per_peer_max,
            ..defaults
        })
    }
}

#[cfg(test)]
mod tests;
