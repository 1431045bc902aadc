//! Where the admin sockets of served drives lie.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Environment variable that names the one directory to use instead of those tried by default.
const OVERRIDE: &str = "PUMICE_RUNTIME_DIR";

/// Directories that may hold admin sockets, the preferred first: `$PUMICE_RUNTIME_DIR` if set; else `/run/pumice`,
/// `$XDG_RUNTIME_DIR/pumice`, and one of the user's in the directory for temporary files.
pub fn runtime_dirs() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(only) = named(OVERRIDE) {
        return vec![only];
    }
    let user = rustix::process::geteuid().as_raw();
    let mut dirs = vec![PathBuf::from("/run/pumice")];
    dirs.extend(named("XDG_RUNTIME_DIR").map(|dir| dir.join("pumice")));
    dirs.push(std::env::temp_dir().join(format!("pumice-{user}")));
    dirs
}

/// The first directory that can be made and written by this user, made if need be.
///
/// # Errors
/// Why the last of them cannot.
pub fn make_runtime_dir() -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for dir in runtime_dirs() {
        match make_private(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes a directory for this user only. One that is there must be the user's: in a directory for everybody's temporary
/// files somebody else may have been first.
fn make_private(dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !trusted(dir) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the directory belongs to somebody else",
        ));
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}

/// Whether a directory is one, this user's or root's, and not writable by others.
pub(crate) fn trusted(dir: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir).is_ok_and(|metadata| {
        metadata.is_dir() && (metadata.uid() == user || metadata.uid() == 0) && metadata.mode() & 0o022 == 0
    })
}
