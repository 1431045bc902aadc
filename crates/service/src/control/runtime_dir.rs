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
    if !is_own(dir) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory belongs to another user"));
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}

/// Whether a directory is one, this user's or root's, and not writable by others.
fn is_own(dir: &Path) -> bool {
    is_of(dir, |owner| owner == rustix::process::geteuid().as_raw() || owner == 0)
}

/// Whether a directory may be asked for servers: one's own. For root also that of a service's user, if it lies where only
/// root makes directories, as in `/run`.
pub(crate) fn trusted(dir: &Path) -> bool {
    let root = rustix::process::geteuid().as_raw() == 0;
    is_own(dir)
        || (root
            && is_of(dir, |_| true)
            && dir.parent().is_some_and(|above| is_of(above, |owner| owner == 0)))
}

/// Whether it is a directory of the right owner, and not writable by others.
fn is_of(dir: &Path, right: impl FnOnce(u32) -> bool) -> bool {
    std::fs::symlink_metadata(dir)
        .is_ok_and(|metadata| metadata.is_dir() && right(metadata.uid()) && metadata.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    const SOMEBODY: u32 = 12_345;

    #[test]
    fn whose_directories_are_asked() -> io::Result<()> {
        let above = tempfile::tempdir()?;
        let dir = above.path().join("pumice");
        make_private(&dir)?;
        assert!(trusted(&dir));
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        set(&dir, 0o777)?;
        assert!(!trusted(&dir) && make_private(&dir).is_err(), "everybody may put sockets there");
        set(&dir, 0o700)?;
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root, so nobody else's directory can be made");
            return Ok(());
        }
        // A service's own: root asks it, and makes no sockets there.
        chown(&dir, Some(SOMEBODY), None)?;
        assert!(trusted(&dir) && make_private(&dir).is_err());
        // Where anybody may make directories, as in /tmp, it may be anybody's.
        set(above.path(), 0o1777)?;
        assert!(!trusted(&dir));
        set(above.path(), 0o700)?;
        chown(above.path(), Some(SOMEBODY), None)?;
        assert!(!trusted(&dir));
        Ok(())
    }
}
