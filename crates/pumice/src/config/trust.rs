//! Files that decide what the server does, and for whom: nobody else may be able to change them.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use status::shown;

const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const READABLE_BY_OTHERS: u32 = 0o004;
/// In a directory with this bit, users cannot replace files of others.
const STICKY: u32 = 0o1000;

/// User that owns files whose owner does not exist in this user namespace.
const OVERFLOW_USER: u32 = 65534;

/// Checks that only root, the user of this process and `other` can change a file or pipe, or replace it in its directory.
/// What does not exist or is something else passes: whoever reads it reports that.
///
/// # Errors
/// The error names the file or its directory, and who could change it.
pub(super) fn check_writers(path: &Path, other: Option<u32>) -> Result<()> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    if !(metadata.is_file() || metadata.file_type().is_fifo()) {
        return Ok(());
    }
    if let Some(who) = other_writer(&metadata, other) {
        bail!("{}: {who}; chown it to root, or chmod go-w", shown(path));
    }
    // The directory of the file, and that of the link to it.
    let directories = [std::fs::canonicalize(path).ok(), std::path::absolute(path).ok()];
    for directory in directories.iter().flatten().filter_map(|path| path.parent()) {
        // A pipe has no directory.
        let Ok(metadata) = std::fs::metadata(directory) else { continue };
        if metadata.mode() & STICKY == 0
            && let Some(who) = other_writer(&metadata, other)
        {
            bail!("{}: the directory {}: {who}", shown(path), shown(directory));
        }
    }
    Ok(())
}

/// Returns whether users other than the owner and the group can read a file.
pub(super) fn is_readable_by_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & READABLE_BY_OTHERS != 0)
}

/// Returns the program that a command for the shell begins with, if it is given by its full path.
pub(super) fn program(command: &str) -> Option<PathBuf> {
    let first = command.split_whitespace().next()?;
    first.starts_with('/').then(|| PathBuf::from(first))
}

fn other_writer(metadata: &Metadata, other: Option<u32>) -> Option<String> {
    let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
    let known = owner == 0
        || owner == rustix::process::geteuid().as_raw()
        || Some(owner) == other
        || owner == OVERFLOW_USER && root_is_unknown();
    // A group with the number of the owner is that user's own.
    let group_is_known = group == 0 || group == owner;
    if !known {
        Some(format!("belongs to user {owner}, neither root nor the user of this server"))
    } else if mode & WRITABLE_BY_OTHERS != 0 {
        Some(format!("writable by every user (mode {:03o})", mode & 0o777))
    } else if mode & WRITABLE_BY_GROUP != 0 && !group_is_known {
        Some(format!("writable by group {group} (mode {:03o})", mode & 0o777))
    } else {
        None
    }
}

/// Whether root of the machine has no number here, as in a container of an ordinary user.
fn root_is_unknown() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !maps_root(&map))
}

/// Whether one of the ranges of a `uid_map` (`user_namespaces(7)`) begins at root of the machine.
fn maps_root(map: &str) -> bool {
    map.lines().any(|range| range.split_whitespace().nth(1) == Some("0"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    }

    #[test]
    fn files_that_others_can_write_are_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("file");
        fs::write(&file, "text").expect("a file");
        for (mode, refused) in
            [(0o600, None), (0o644, None), (0o646, Some("every user")), (0o666, Some("every"))]
        {
            set_mode(&file, mode);
            let said = check_writers(&file, None).err().map(|error| error.to_string());
            assert_eq!(said.is_some(), refused.is_some(), "{mode:o}: {said:?}");
            assert!(said.unwrap_or_default().contains(refused.unwrap_or_default()), "{mode:o}");
        }
        assert!(check_writers(&folder.path().join("none"), None).is_ok());
    }

    #[test]
    fn files_that_others_can_replace_are_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let (file, link) = (folder.path().join("open/file"), folder.path().join("link"));
        fs::create_dir(folder.path().join("open")).expect("a directory");
        fs::write(&file, "text").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        for (mode, refused) in [(0o755, false), (0o777, true), (0o1777, false)] {
            set_mode(&folder.path().join("open"), mode);
            for path in [&file, &link] {
                assert_eq!(check_writers(path, None).is_err(), refused, "{mode:o} {}", path.display());
            }
        }
    }

    #[test]
    fn links_that_others_can_replace_are_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let (file, open) = (folder.path().join("file"), folder.path().join("open"));
        fs::create_dir(&open).expect("a directory");
        fs::write(&file, "text").expect("a file");
        std::os::unix::fs::symlink(&file, open.join("link")).expect("a link");
        for (mode, refused) in [(0o755, false), (0o777, true)] {
            set_mode(&open, mode);
            assert_eq!(check_writers(&open.join("link"), None).is_err(), refused, "{mode:o}");
        }
    }

    #[test]
    fn files_of_other_users_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("file");
        fs::write(&file, "text").expect("a file");
        std::os::unix::fs::chown(&file, Some(1234), Some(1234)).expect("chown");
        assert!(check_writers(&file, None).expect_err("refused").to_string().contains("user 1234"));
        assert!(check_writers(&file, Some(1234)).is_ok());
        std::os::unix::fs::chown(&file, Some(0), Some(1234)).expect("chown");
        set_mode(&file, 0o660);
        assert!(check_writers(&file, None).expect_err("refused").to_string().contains("group 1234"));
    }

    #[test]
    fn root_of_the_machine_is_known_unless_it_has_no_number() {
        assert!(maps_root("         0          0 4294967295\n"));
        // A unit with PrivateUsers=yes; a container of an ordinary user.
        assert!(maps_root("0 0 1\n997 997 1\n"));
        assert!(!maps_root("0 1000 1\n1 100000 65536\n"));
    }

    #[test]
    fn the_program_of_a_command_is_its_first_word() {
        assert_eq!(program(" /usr/local/bin/notify --now"), Some(PathBuf::from("/usr/local/bin/notify")));
        assert_eq!(program("logger full"), None);
    }
}
