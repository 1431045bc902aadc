//! Configuration of a server and its drives, from the configuration file and the command line. The command
//! line takes precedence.

mod file;
mod in_file;
mod options;
mod trust;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nbd::{Access, Address};

use crate::attach_method::AttachMethod;
use crate::usage::WrongUsage;
pub(crate) use options::{DriveOptions, ServerOptions};
pub(crate) use values::{Offload, one_of, parse_unix_socket};

/// Default path of the configuration file.
pub(crate) const DEFAULT_PATH: &str = "/etc/pumice/pumice.toml";
/// Environment variable that replaces [`DEFAULT_PATH`].
const DEFAULT_PATH_VARIABLE: &str = "PUMICE_CONFIG";

/// Complete configuration of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) server: Server,
    /// Drives, in the order of export. Clients that request no name get the first one that is being served.
    pub(crate) drives: Vec<DriveConfig>,
    /// Those of the addresses that the service manager has bound.
    pub(crate) activated: Vec<Address>,
}

/// Settings of the server as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Server {
    /// Addresses at which all drives are exported. If empty, each drive has its own default socket.
    pub(crate) nbd: Vec<Address>,
    pub(crate) admin: Option<PathBuf>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) options: ServerOptions,
}

/// Paths of the PEM files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: Option<PathBuf>,
    /// Certificate revocation lists.
    pub(crate) crl: Option<PathBuf>,
}

/// Settings of one drive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DriveConfig {
    /// Absolute path of the backing.
    pub(crate) path: PathBuf,
    /// Export name.
    pub(crate) name: String,
    /// Addresses at which only this drive is exported, in addition to the server's addresses.
    pub(crate) nbd: Vec<Address>,
    /// Clients that may use it.
    pub(crate) access: Access,
    /// How `pumice attach --configured` is to attach it, if it is.
    pub(crate) attach: Option<AttachMethod>,
    pub(crate) options: DriveOptions,
}

/// Settings given on the command line; `None` and empty where not given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// If not empty, only these drives are served.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) nbd: Vec<Address>,
    pub(crate) admin: Option<PathBuf>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) server: ServerOptions,
    pub(crate) drive: DriveOptions,
    pub(crate) at_start: AtStart,
    /// Sockets that the service manager has bound.
    pub(crate) activated: Vec<ActivatedSocket>,
}

/// What an administrator wants of the drives that are opened at the start. It is not meant for later ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtStart {
    /// See [`service::OpenSettings::take_over`].
    pub(crate) take_over: bool,
    /// See [`service::OpenSettings::forget_memory`].
    pub(crate) forget_memory: bool,
}

/// A socket that the service manager has bound.
#[derive(Clone, Debug)]
pub(crate) struct ActivatedSocket {
    pub(crate) address: Address,
    /// Name of the drive that it offers; `None`: all drives.
    pub(crate) drive: Option<String>,
}

impl Server {
    /// Settings of the file, overridden by the command line.
    fn of(file: ServerOptions, overrides: &Overrides) -> Server {
        let in_file = options::addresses(file.nbd.as_ref());
        let tls = file.tls.as_ref().map(|tls| TlsFiles {
            cert: tls.cert.0.clone(),
            key: tls.key.0.clone(),
            ca: tls.ca.as_ref().map(|path| path.0.clone()),
            crl: tls.crl.as_ref().map(|path| path.0.clone()),
        });
        Server {
            nbd: if overrides.nbd.is_empty() { in_file } else { overrides.nbd.clone() },
            admin: overrides.admin.clone().or(file.admin.as_ref().map(|socket| socket.0.clone())),
            tls: overrides.tls.clone().or(tls),
            options: overrides.server.clone().or(&file),
        }
    }
}

/// Origin of a configuration. It is read again at every reload.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Configuration file; `None` if only the command line applies.
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Overrides,
}

impl Source {
    /// Selects the configuration file: the named one, or, if no drive is named, the one in the environment or
    /// the default one. Returns `None` if none of these is named and the default file does not exist.
    pub(crate) fn find(named: Option<&Path>, overrides: Overrides) -> Result<Option<Source>> {
        let file = match named {
            Some(file) => Some(absolute(file)?),
            None if !overrides.paths.is_empty() => None,
            None => match std::env::var_os(DEFAULT_PATH_VARIABLE).filter(|name| !name.is_empty()) {
                Some(named) => Some(absolute(Path::new(&named))?),
                None if Path::new(DEFAULT_PATH).exists() => Some(PathBuf::from(DEFAULT_PATH)),
                None => return Ok(None),
            },
        };
        Ok(Some(Source { file, overrides }))
    }

    /// Reads and checks the whole configuration. Opens no file except the configuration file.
    ///
    /// # Errors
    /// The error is one line with file, line, field, problem and expected value. A file that other users can
    /// change is an error: the configuration, those of TLS, and the programs of `on-event`.
    pub(crate) fn load(&self) -> Result<Config> {
        let file = match &self.file {
            Some(file) => {
                trust::check_writers(file, None)?;
                file::read(file)?
            }
            None => file::File::default(),
        };
        // Settings in the server section that apply to all drives.
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
                make_names_distinct(&mut drives);
                drives
            }
        };
        for drive in &mut drives {
            let in_file = std::mem::take(&mut drive.options);
            drive.options = self.overrides.drive.clone().or(&in_file).or(&common);
        }
        let activated = self.overrides.activated.iter().map(|socket| socket.address.clone()).collect();
        let mut config = Config { server, drives, activated };
        config.add_activated(&self.overrides.activated)?;
        config.check_trust()?;
        config.check().map_err(|error| match &self.file {
            Some(file) => error.context(file.display().to_string()),
            None => WrongUsage(error.to_string()).into(),
        })?;
        Ok(config)
    }
}

impl DriveConfig {
    /// Settings with all defaults, named after the file.
    fn of(path: PathBuf) -> DriveConfig {
        let name = short_name(&path);
        let options = DriveOptions::default();
        DriveConfig { path, name, nbd: Vec::new(), access: Access::Everyone, attach: None, options }
    }

    /// Settings from the file.
    fn in_file(mut options: DriveOptions) -> Result<DriveConfig> {
        let Some(path) = options.path.take() else { bail!("missing field `path`") };
        let mut drive = DriveConfig::of(path.0);
        if let Some(name) = options.name.take() {
            drive.name = name.0;
        }
        drive.nbd = options::addresses(options.nbd.take().as_ref());
        drive.access = options.take_access();
        drive.attach = options.take_attach().map_err(|what| anyhow!(what))?;
        Ok(DriveConfig { options, ..drive })
    }
}

fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    // Different file names give different export names, even if they are not UTF-8.
    name.to_str().map_or_else(|| status::shown(Path::new(name)).to_string(), str::to_string)
}

/// If two drives would have the same name, names those by their full paths that were not given a name.
fn make_names_distinct(drives: &mut [DriveConfig]) {
    let mut seen = std::collections::HashSet::new();
    if !drives.iter().all(|drive| seen.insert(drive.name.clone())) {
        let unnamed = drives.iter_mut().filter(|drive| drive.name == short_name(&drive.path));
        unnamed.for_each(|drive| drive.name = status::path_text(&drive.path));
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: not a path", path.display()))
}

/// Resolves symbolic links. Returns the path unchanged if that fails.
fn target(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

impl Config {
    /// Names of all drives, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.drives.iter().map(|drive| drive.name.clone()).collect()
    }

    /// Adds the sockets that the service manager has bound, except those whose address is configured: it is
    /// known what those offer.
    fn add_activated(&mut self, sockets: &[ActivatedSocket]) -> Result<()> {
        let all = |config: &Config| {
            let of_drives = config.drives.iter().flat_map(|drive| &drive.nbd);
            config.server.nbd.iter().chain(of_drives).cloned().collect::<Vec<Address>>()
        };
        let configured = all(self);
        for ActivatedSocket { address, drive } in
            sockets.iter().filter(|it| !configured.contains(&it.address))
        {
            let Some(name) = drive else {
                self.server.nbd.push(address.clone());
                continue;
            };
            let Some(drive) = self.drives.iter_mut().find(|drive| drive.name == *name) else {
                bail!(
                    "{address}: the socket is named {name:?}, and no drive is; expected the name of a drive in \
                     FileDescriptorName=, or \"nbd\" for all drives"
                );
            };
            drive.nbd.push(address.clone());
        }
        Ok(())
    }

    /// Returns true if a command is run for events of a drive.
    pub(crate) fn runs_commands(&self) -> bool {
        self.drives.iter().any(|drive| drive.options.open().monitor.on_event.is_some())
    }

    /// Checks that no other user can change the files named by the configuration.
    fn check_trust(&self) -> Result<()> {
        // That the user of the server can change them is no surprise: it also serves what they protect.
        let user = crate::account::choose(self.server.user()).ok().flatten().map(|account| account.user());
        if let Some(TlsFiles { cert, key, ca, crl }) = &self.server.tls {
            [Some(cert), Some(key), ca.as_ref(), crl.as_ref()]
                .into_iter()
                .flatten()
                .try_for_each(|path| trust::check_writers(path, user))?;
        }
        // It is loaded before the server becomes that user.
        if let Some(Offload(offload::Choice::Qat(Some(library)))) = &self.server.options.offload {
            trust::check_writers(library, None).context("offload")?;
        }
        let commands = self.drives.iter().filter_map(|drive| drive.options.open().monitor.on_event);
        commands
            .filter_map(|command| trust::program(&command))
            .try_for_each(|program| trust::check_writers(&program, user).context("on-event"))
    }

    /// Checks that the server authenticates its clients where drives list them.
    pub(crate) fn check_clients(&self) -> Result<()> {
        let tls = self.server.tls.as_ref();
        if tls.is_some_and(|tls| tls.crl.is_some() && tls.ca.is_none()) {
            bail!("tls.crl needs tls.ca beside it");
        }
        let authenticates = tls.is_some_and(|tls| tls.ca.is_some());
        match self.drives.iter().find(|drive| drive.access != Access::Everyone) {
            Some(drive) if !authenticates => bail!(
                "{}: clients and clients-read-only need server.tls with ca: without certificates clients cannot be \
                 identified",
                status::shown(&drive.path)
            ),
            _ => Ok(()),
        }
    }

    /// Checks conditions on several values: missing drives, duplicate paths, names and addresses, and options
    /// that need others.
    fn check(&self) -> Result<()> {
        if self.drives.is_empty() {
            bail!("no drive to serve; add a [[drive]] with its path");
        }
        self.check_clients()?;
        let mut addresses = std::collections::HashMap::new();
        for address in &self.server.nbd {
            if addresses.insert(address.to_string(), "the server".to_string()).is_some() {
                bail!("server.nbd: {address} is listed twice");
            }
        }
        for (at, drive) in self.drives.iter().enumerate() {
            let path = status::shown(&drive.path);
            let earlier = &self.drives[..at];
            if earlier.iter().any(|other| target(&other.path) == target(&drive.path)) {
                bail!("{path} is listed twice");
            }
            if let Some(other) = earlier.iter().find(|other| other.name == drive.name) {
                bail!(
                    "{path} and {} are both named {:?}; give one of them another name",
                    status::shown(&other.path),
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
    /// The user that the server is to become, if one is given.
    pub(crate) fn user(&self) -> Option<&str> {
        self.options.user.as_ref()?.0.as_deref()
    }

    /// Returns limits and TLS settings of the NBD server. Reads the PEM files. Logs a warning if others can
    /// read the key.
    pub(crate) fn nbd_config(&self) -> Result<nbd::ServerConfig> {
        let tls = match &self.tls {
            Some(files) => nbd::TlsPolicy::Required(
                nbd::TlsConfig::from_pem_files(
                    &files.cert,
                    &files.key,
                    files.ca.as_deref(),
                    files.crl.as_deref(),
                )
                .map_err(|error| anyhow!(error))?,
            ),
            None => nbd::TlsPolicy::Off,
        };
        if let Some(files) = self.tls.as_ref().filter(|files| trust::is_readable_by_others(&files.key)) {
            tracing::warn!(key = %status::shown(&files.key), "every user of this machine can read the key; chmod o-r");
        }
        let defaults = nbd::ServerConfig::default();
        let ServerOptions {
            max_connections,
            max_connections_per_peer,
            handshake_timeout,
            stall_timeout,
            idle_timeout,
            request_memory,
            insecure,
            tls_anonymous,
            ..
        } = self.options.clone();
        let limit = |given: Option<values::Connections>| given.unwrap_or_default().0.map(|max| max as usize);
        let time = |given: Option<values::Seconds>| {
            given.unwrap_or_default().0.map(|seconds| Duration::from_secs(u64::from(seconds)))
        };
        let connections_max = limit(max_connections).unwrap_or(defaults.connections_max);
        // By default one peer can use at most half of the connections.
        let half = connections_max.div_ceil(2);
        let connections_per_peer_max = limit(max_connections_per_peer).unwrap_or(half);
        Ok(nbd::ServerConfig {
            tls,
            insecure: insecure.unwrap_or_default(),
            tls_anonymous: tls_anonymous.unwrap_or_default(),
            connections_max,
            connections_per_peer_max,
            handshake_timeout: time(handshake_timeout).unwrap_or(defaults.handshake_timeout),
            stall_timeout: time(stall_timeout).unwrap_or(defaults.stall_timeout),
            idle_timeout: time(idle_timeout),
            // Checked against limits that fit.
            total_buffer_bytes_max: request_memory.unwrap_or_default().0.0 as usize,
            ..defaults
        })
    }
}

#[cfg(test)]
mod tests;
