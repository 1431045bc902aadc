//! Directories of the admin sockets of served drives.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use host::patience::patiently;

/// Environment variable that names a directory to use instead of the default ones.
const OVERRIDE: &str = "PUMICE_RUNTIME_DIR";

/// Environment variable that names a directory in memory, for a server whose run-time directory is none.
pub const MEMORY_DIR: &str = "PUMICE_MEMORY_DIR";

/// Suffix of the directory of attachments, after the name of that of admin sockets. A separate directory: a
/// server hands that one to its user.
const ATTACHMENTS: &str = "-attach";

/// Name of the directory in the folder of an attachment that may be in memory.
pub const MEMORY: &str = "memory";

/// The directory of the machine's servers.
const SHARED: &str = "/run/pumice";
/// The directory that this process created.
static CREATED: OnceLock<PathBuf> = OnceLock::new();

/// Returns the directories that may hold admin sockets, the preferred one first: `$PUMICE_RUNTIME_DIR` if
/// set; else `/run/pumice`, `$XDG_RUNTIME_DIR/pumice`, and one of the user in the directory for temporary
/// files.
pub fn runtime_dirs() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(only) = named(OVERRIDE) {
        // One name for it: others, such as that of the attachments, are made of it. Programs that are started
        // look for it, too.
        let only = std::path::absolute(&only).unwrap_or(only);
        return vec![only.components().collect()];
    }
    let user = rustix::process::geteuid().as_raw();
    let mut dirs = vec![PathBuf::from(SHARED)];
    dirs.extend(named("XDG_RUNTIME_DIR").map(|dir| dir.join("pumice")));
    dirs.push(std::env::temp_dir().join(format!("pumice-{user}")));
    dirs
}

/// Returns the directory of attachments that goes with a run-time directory.
pub fn attachments_dir(runtime_dir: &Path) -> PathBuf {
    let mut dir = runtime_dir.as_os_str().to_os_string();
    dir.push(ATTACHMENTS);
    PathBuf::from(dir)
}

/// Directories in which servers that were killed may have left their memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MemoryDirs {
    /// Those that this user may trust.
    pub own: Vec<PathBuf>,
    /// Those of other users in places where only root creates directories.
    pub of_others: Vec<PathBuf>,
    /// Those whose contents this user cannot see.
    pub hidden: Vec<PathBuf>,
}

/// Returns the directories of memories: those of sockets, and those that bridges have made.
///
/// # Errors
///
/// If one cannot be looked at: what a killed server left may be there.
pub fn memory_dirs() -> Result<MemoryDirs, (PathBuf, io::Error)> {
    let mut dirs = MemoryDirs::default();
    for dir in runtime_dirs() {
        dirs.add(dir)?;
    }
    for attachments in runtime_dirs().iter().map(|dir| attachments_dir(dir)).filter(|dir| trusted(dir)) {
        match entries(&attachments) {
            Ok(folders) => {
                folders.into_iter().try_for_each(|folder| dirs.add(folder.join(MEMORY)))?;
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => dirs.hidden.push(attachments),
            Err(error) => return Err((attachments, error)),
        }
    }
    Ok(dirs)
}

/// Returns the paths in a directory; none if there is no directory. Waits while memory is short.
///
/// # Errors
///
/// If they are unknown.
pub fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let listed =
        patiently(|| std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>());
    match listed {
        Err(error) if is_absence(&error) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Returns whether an error says that nothing is at a path. All others leave that open.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl MemoryDirs {
    fn add(&mut self, dir: PathBuf) -> Result<(), (PathBuf, io::Error)> {
        match patiently(|| std::fs::read_dir(&dir)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.hidden.push(dir),
            // There is none.
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err((dir, error)),
            Ok(_) if trusted(&dir) => self.own.push(dir),
            Ok(_) if is_in_place_of_root(&dir) => self.of_others.push(dir),
            // Anybody may have made it.
            Ok(_) => {}
        }
        Ok(())
    }
}

/// Returns the first directory that this user can create and write, created if necessary.
///
/// # Errors
///
/// The error of the last directory tried.
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

/// Returns true if the directory holds only sockets, so that its owner may be changed to the user that this
/// process is about to become: this process created it, or it is the machine's.
pub fn may_be_given(dir: &Path) -> bool {
    dir == Path::new(SHARED) || CREATED.get().is_some_and(|created| created == dir)
}

/// Creates a directory for this user only. An existing one must be [`trusted`]: in a shared directory for
/// temporary files, another user may have created it first.
fn make_private(dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => _ = CREATED.set(dir.to_path_buf()),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    if !trusted(dir) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory belongs to another user"));
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}

/// Returns whether this is a directory of this user or of root, and not writable by others.
fn is_own(dir: &Path) -> bool {
    is_of(dir, |owner| owner == rustix::process::geteuid().as_raw() || owner == 0)
}

/// User id of `nobody`, shared by programs that have no user of their own and must not trust each other.
const NOBODY: u32 = 65534;

/// Returns true if the sockets in a directory are those of servers that this user may trust: the directory is
/// the user's own. For root also the directory of a service's user in a place where only root creates
/// directories, such as `/run`: a server that root starts becomes that user.
pub fn trusted(dir: &Path) -> bool {
    let root = rustix::process::geteuid().as_raw() == 0;
    is_own(dir) || (root && is_of(dir, |owner| owner != NOBODY) && is_in_place_of_root(dir))
}

/// Returns whether only root could create this directory.
fn is_in_place_of_root(dir: &Path) -> bool {
    dir.parent().is_some_and(|above| is_of(above, |owner| owner == 0))
}

/// Returns whether this is a directory of the right owner, and not writable by others.
fn is_of(dir: &Path, right: impl FnOnce(u32) -> bool) -> bool {
    patiently(|| std::fs::symlink_metadata(dir))
        .is_ok_and(|metadata| metadata.is_dir() && right(metadata.uid()) && metadata.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    const SOMEBODY: u32 = 12_345;

    #[test]
    fn what_cannot_be_looked_at_is_not_absent() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("a file");
        std::fs::write(&file, "")?;
        let mut dirs = MemoryDirs::default();
        for absent in [dir.path().join("absent"), file.clone(), file.join("below")] {
            assert_eq!(entries(&absent)?, Vec::<PathBuf>::new());
            dirs.add(absent).map_err(|(_, error)| error)?;
        }
        assert_eq!(dirs, MemoryDirs::default());
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle)?;
        assert!(entries(&circle).is_err());
        assert_eq!(dirs.add(circle.clone()).map_err(|(path, _)| path), Err(circle));
        Ok(())
    }

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
        // A service's own directory.
        chown(&dir, Some(SOMEBODY), None)?;
        assert!(trusted(&dir) && make_private(&dir).is_ok());
        // What no program of root becomes, where only root creates directories.
        let memories = || {
            let mut found = MemoryDirs::default();
            found.add(dir.clone()).expect("it can be read");
            found
        };
        assert_eq!(memories(), MemoryDirs { own: vec![dir.clone()], ..MemoryDirs::default() });
        chown(&dir, Some(NOBODY), None)?;
        assert_eq!(memories(), MemoryDirs { of_others: vec![dir.clone()], ..MemoryDirs::default() });
        set(above.path(), 0o1777)?;
        assert_eq!(memories(), MemoryDirs::default(), "anybody may have made it");
        chown(&dir, Some(SOMEBODY), None)?;
        // Where anybody may create directories, as in /tmp, it may be anybody's.
        set(above.path(), 0o1777)?;
        assert!(!trusted(&dir) && make_private(&dir).is_err());
        set(above.path(), 0o700)?;
        chown(above.path(), Some(SOMEBODY), None)?;
        assert!(!trusted(&dir) && make_private(&dir).is_err());
        Ok(())
    }
}
