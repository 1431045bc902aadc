//! Limits on writing (Landlock, Linux 5.13 or newer): only in the directories of drives and sockets, and to
//! devices. Everything else can only be read, whatever its permissions say. No connection by TCP can be made
//! (Linux 6.7), and no signal be sent to other processes (Linux 6.12).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use admin::HttpAddress;
use anyhow::Result;
use landlock::{
    ABI, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use nbd::Address;

use crate::config::{Config, Offload};
use crate::serve::addresses::addresses;

/// The newest interface of the kernel that is used. Older kernels do what they can.
const NEWEST: ABI = ABI::V6;

/// Returns the directories in which a server writes: those of its drives and sockets. Returns `None` if they
/// cannot be known: commands of `on-event` and libraries of devices that compress write where they like, a
/// loop device may be on any file, and a drive that is not there may come with a mount.
///
/// # Errors
///
/// If an address has no absolute form.
pub(super) fn directories(config: &Config) -> Result<Option<Vec<PathBuf>>> {
    let offload = config.server.options.offload.clone().unwrap_or_default();
    if config.runs_commands() || offload != Offload::default() {
        return Ok(None);
    }
    let mut sockets: Vec<PathBuf> = config.server.admin.iter().cloned().collect();
    // The server neither makes nor removes those that are bound.
    let bound_here = |address: &Address| !config.activated.contains(address);
    sockets.extend(addresses(config)?.into_iter().filter(bound_here).filter_map(|address| match address {
        Address::Unix(path) => Some(path),
        Address::Tcp(..) => None,
    }));
    if let Some(HttpAddress::Unix(path)) = config.server.options.http.as_ref().and_then(|http| http.0.clone())
    {
        sockets.push(path);
    }
    let mut directories: BTreeSet<PathBuf> = sockets.iter().filter_map(|path| directory(path)).collect();
    directories.extend(ask::make_runtime_dir());
    // Servers that were started in another way may have left memories there, those of bridges too. If they
    // are unknown, no drive is opened either.
    directories.extend(ask::runtime_dir::memory_dirs().into_iter().flat_map(|dirs| dirs.own));
    for drive in &config.drives {
        let Ok(path) = std::fs::canonicalize(&drive.path) else { return Ok(None) };
        // The file under it is locked for writing, wherever it is.
        if is_loop_device(&path) {
            return Ok(None);
        }
        directories.extend(directory(&path).filter(|directory| !directory.starts_with("/dev")));
    }
    Ok(Some(directories.into_iter().filter(|directory| directory.is_dir()).collect()))
}

pub(super) fn is_loop_device(path: &Path) -> bool {
    path.parent() == Some(Path::new("/dev"))
        && path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"loop"))
}

fn directory(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()?.parent().map(Path::to_path_buf)
}

/// Limits what this thread, and those that it starts from now on, can write to. Returns false if this kernel
/// has no Landlock, so that nothing is limited.
///
/// # Errors
///
/// If a directory cannot be opened, or the kernel refuses.
pub(super) fn limit(directories: &[PathBuf]) -> Result<bool> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_write(NEWEST))?
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::Signal)?
        .create()?
        // Their permissions decide which devices can be opened.
        .add_rule(PathBeneath::new(PathFd::new("/dev")?, AccessFs::WriteFile | AccessFs::IoctlDev))?;
    for directory in directories {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(directory)?, in_directory()))?;
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Accesses allowed in the directories of drives and sockets.
fn in_directory() -> BitFlags<AccessFs> {
    AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::MakeSock | AccessFs::RemoveFile
}
