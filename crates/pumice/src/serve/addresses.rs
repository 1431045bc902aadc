//! Addresses that a configuration asks for.

use std::path::Path;

use anyhow::{Context, Result};
use nbd::Address;

use crate::config::{Config, DriveConfig, Server};

/// Returns all addresses of a configuration.
pub(super) fn addresses(config: &Config) -> Result<Vec<Address>> {
    let mut all = config.server.nbd.clone();
    for drive in &config.drives {
        all.extend(own_addresses(drive, &config.server)?);
    }
    all.iter().map(absolute).collect()
}

/// Returns the addresses where a drive is the only export.
pub(super) fn own_addresses(config: &DriveConfig, server: &Server) -> Result<Vec<Address>> {
    match (config.nbd.is_empty(), server.nbd.is_empty()) {
        (true, true) => Ok(vec![default_address(&config.path)?]),
        _ => Ok(config.nbd.clone()),
    }
}

/// Returns `unix:PATH.nbd`. For a block device, the socket is in the directory of the admin sockets, because
/// sockets do not belong in /dev.
fn default_address(path: &Path) -> Result<Address> {
    let mut name = path.as_os_str().to_owned();
    name.push(".nbd");
    if path.starts_with("/dev") {
        let dir = ask::make_runtime_dir().context("no directory for the NBD socket; use --nbd")?;
        return Ok(Address::Unix(dir.join(Path::new(&name).file_name().unwrap_or(&name))));
    }
    Ok(Address::Unix(name.into()))
}

/// Makes the path of an address absolute, because clients run in other directories.
pub(super) fn absolute(address: &Address) -> Result<Address> {
    Ok(match address {
        Address::Unix(path) => Address::Unix(std::path::absolute(path)?),
        tcp @ Address::Tcp(..) => tcp.clone(),
    })
}
