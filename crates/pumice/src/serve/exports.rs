//! What is offered where.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use nbd::{Address, Export, Listener, ServerConfig, Shared, TlsConfig, TlsPolicy};
use service::{Device, ServedDrive};

use super::Args;
use crate::human;

/// A socket and what clients find there.
pub(super) struct Listening {
    pub(super) listener: Listener,
    pub(super) shared: Arc<Shared<ServedDrive>>,
}

/// Parses `unix:SOCKET`.
pub(super) fn unix_socket(text: &str) -> Result<PathBuf, String> {
    match text.parse() {
        Ok(Address::Unix(path)) => Ok(path),
        _ => Err(format!("{text:?} is not unix:SOCKET")),
    }
}

/// Limits and TLS, as the command line says.
pub(super) fn nbd_config(args: &Args) -> Result<ServerConfig> {
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => {
            TlsPolicy::Required(TlsConfig::from_pem_files(cert, key, args.tls_ca.as_deref())?)
        }
        _ => TlsPolicy::Off,
    };
    Ok(ServerConfig { tls, insecure: args.insecure, ..ServerConfig::default() })
}

/// Listens everywhere and tells where, a line for each export at each address.
pub(super) fn listen(
    args: &Args,
    config: ServerConfig,
    drives: &[Arc<ServedDrive>],
) -> Result<Vec<Listening>> {
    let mut listening = Vec::new();
    if args.nbd.is_empty() {
        // A socket for each drive, with that drive as the only export.
        for drive in drives {
            let shared = Shared::new(exports(std::slice::from_ref(drive)), config.clone())?;
            let listener = Listener::bind(&default_address(drive.path())?, &config)?;
            listening.push(Listening { listener, shared });
        }
    } else {
        let shared = Shared::new(exports(drives), config.clone())?;
        for address in &args.nbd {
            let listener = Listener::bind(&absolute(address)?, &config)?;
            listening.push(Listening { listener, shared: shared.clone() });
        }
    }
    let encrypted = matches!(config.tls, TlsPolicy::Required(_));
    let mut out = std::io::stdout().lock();
    for Listening { listener, shared } in &listening {
        for (index, export) in shared.exports().iter().enumerate() {
            // The first is also what a client gets who asks for no name.
            let name = if index == 0 { "" } else { &export.name };
            let mut uri = listener.address().uri(name);
            if encrypted {
                // `nbds:`, `nbds+unix:`
                uri.insert("nbd".len(), 's');
            }
            // A server whose output nobody reads serves all the same.
            let _ = writeln!(out, "serving {} at {uri}", export.device.path().display());
        }
    }
    let _ = out.flush();
    Ok(listening)
}

/// `unix:PATH.nbd`; for a block device, in the directory of the admin sockets: /dev is no place for sockets.
fn default_address(path: &Path) -> Result<Address> {
    let mut name = path.as_os_str().to_owned();
    name.push(".nbd");
    if path.starts_with("/dev") {
        let dir = service::make_runtime_dir().context("no place for the NBD socket; say --nbd")?;
        return Ok(Address::Unix(dir.join(Path::new(&name).file_name().unwrap_or(&name))));
    }
    Ok(Address::Unix(name.into()))
}

/// Clients stand in other directories.
fn absolute(address: &Address) -> Result<Address> {
    Ok(match address {
        Address::Unix(path) => Address::Unix(std::path::absolute(path)?),
        tcp @ Address::Tcp(..) => tcp.clone(),
    })
}

/// Exports named like the files; where two files have one name, like their paths.
fn exports(drives: &[Arc<ServedDrive>]) -> Vec<Export<ServedDrive>> {
    let short = |drive: &Arc<ServedDrive>| {
        drive.path().file_name().unwrap_or(drive.path().as_os_str()).to_string_lossy().into_owned()
    };
    let mut seen = HashSet::new();
    let unique = drives.iter().all(|drive| seen.insert(short(drive)));
    drives
        .iter()
        .map(|drive| Export {
            name: if unique { short(drive) } else { drive.path().display().to_string() },
            description: format!("Pumice drive, {}", human::bytes(drive.geometry().capacity_bytes)),
            device: drive.clone(),
        })
        .collect()
}
