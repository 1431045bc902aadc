//! What a server serves and how: out of the configuration file and the command line, which beats it.

mod file;
mod options;
mod values;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use nbd::Address;

use crate::usage::WrongUsage;
pub(crate) use options::{DriveOptions, ServerOptions};
pub(crate) use values::parse_unix_socket;

/// Where the file lies unless said otherwise.
pub(crate) const DEFAULT_PATH: &str = "/etc/pumice/pumice.toml";
/// Names another file instead of [`DEFAULT_PATH`].
const DEFAULT_PATH_VARIABLE: &str = "PUMICE_CONFIG";

/// Everything a server needs to know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) server: Server,
    /// In the order they are offered: the first is the one clients get who ask for no name, while it is served.
    pub(crate) drives: Vec<DriveConfig>,
}

/// What concerns all drives.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Server {
    /// Where all drives are offered; if empty, each has a socket of its own.
    pub(crate) nbd: Vec<Address>,
    pub(crate) admin: Option<PathBuf>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) options: ServerOptions,
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
    pub(crate) options: DriveOptions,
}

/// What the command line says; nothing and empty where it says nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// If any, these drives are served and no others.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) nbd: Vec<Address>,
    pub(crate) admin: Option<PathBuf>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) server: ServerOptions,
    pub(crate) drive: DriveOptions,
}

impl Server {
    /// What a file says, and the command line over it.
    fn of(file: ServerOptions, overrides: &Overrides) -> Server {
        let in_file = options::addresses(file.nbd.as_ref());
        let tls = file.tls.as_ref().map(|tls| TlsFiles {
            cert: tls.cert.0.clone(),
            key: tls.key.0.clone(),
            ca: tls.ca.as_ref().map(|path| path.0.clone()),
        });
        Server {
            nbd: if overrides.nbd.is_empty() { in_file } else { overrides.nbd.clone() },
            admin: overrides.admin.clone().or(file.admin.as_ref().map(|socket| socket.0.clone())),
            tls: overrides.tls.clone().or(tls),
            options: overrides.server.clone().or(&file),
        }
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
        let file = match &self.file {
            Some(file) => file::read(file)?,
            None => file::File::default(),
        };
        // What the file says of all drives.
        let common = DriveOptions {
            warn_at: file.server.warn_at.clone(),
            on_event: file.server.on_event.clone(),
            ..DriveOptions::default()
        };
        let server = Server::of(file.server, &self.overrides);
        let in_file = (0..).zip(file.drive).map(|(at, drive)| {
            DriveConfig::in_file(drive).with_context(|| {
                let file = self.file.as_deref().unwrap_or(Path::new(""));
                format!("{}: drive[{at}]", file.display())
            })
        });
        let in_file = in_file.collect::<Result<Vec<DriveConfig>>>()?;
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
        for drive in &mut drives {
            let in_file = std::mem::take(&mut drive.options);
            drive.options = self.overrides.drive.clone().or(&in_file).or(&common);
        }
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
        DriveConfig { path, name, nbd: Vec::new(), options: DriveOptions::default() }
    }

    /// As the file says.
    fn in_file(mut options: DriveOptions) -> Result<DriveConfig> {
        let Some(path) = options.path.take() else { bail!("missing field `path`") };
        let mut drive = DriveConfig::of(path.0);
        if let Some(name) = options.name.take() {
            drive.name = name.0;
        }
        drive.nbd = options::addresses(options.nbd.take().as_ref());
        Ok(DriveConfig { options, ..drive })
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
    /// Names of all drives, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.drives.iter().map(|drive| drive.name.clone()).collect()
    }

    /// What no single value can show.
    fn check(&self) -> Result<()> {
        if self.drives.is_empty() {
            bail!("no drive to serve; add a [[drive]] with its path");
        }
        let mut addresses = std::collections::HashMap::new();
        for address in &self.server.nbd {
            if addresses.insert(address.to_string(), "the server".to_string()).is_some() {
                bail!("server.nbd: {address} is listed twice");
            }
        }
        for (at, drive) in self.drives.iter().enumerate() {
            let path = service::shown(&drive.path);
            let earlier = &self.drives[..at];
            if earlier.iter().any(|other| target(&other.path) == target(&drive.path)) {
                bail!("{path} is listed twice");
            }
            if let Some(other) = earlier.iter().find(|other| other.name == drive.name) {
                bail!(
                    "{path} and {} are both named {:?}; give one of them another name",
                    service::shown(&other.path),
                    drive.name
                );
            }
            let opened = drive.options.open();
            if opened.accept_damage && !opened.read_only {
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
        let ServerOptions { max_connections, max_connections_per_peer, insecure, .. } = self.options.clone();
        let limit = |given: Option<values::Connections>| given.unwrap_or_default().0.map(|max| max as usize);
        let connections_max = limit(max_connections).unwrap_or(defaults.connections_max);
        // One peer leaves room for another.
        let half = connections_max.div_ceil(2);
        let connections_per_peer_max = limit(max_connections_per_peer).unwrap_or(half);
        Ok(nbd::ServerConfig {
            tls,
            insecure: insecure.unwrap_or_default(),
            connections_max,
            connections_per_peer_max,
            ..defaults
        })
    }
}

#[cfg(test)]
mod tests;
