//! Files that decide what the server does, and for whom: nobody else may be able to change them.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::io::Errno;
use status::shown;

const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const READABLE_BY_OTHERS: u32 = 0o004;
/// In a directory with this bit, users cannot replace files of others.
const STICKY: u32 = 0o1000;

/// Tags of entries of an access control list, and the permission to write (`acl(5)`).
const ACL_USER: u16 = 0x02;
const ACL_GROUP_OBJ: u16 = 0x04;
const ACL_GROUP: u16 = 0x08;
const ACL_WRITE: u16 = 0x02;
/// Longest access control list that is read, in bytes: the longest value of an attribute.
const ACL_BYTES_MAX: usize = 64 << 10;

/// User that owns files whose owner does not exist in this user namespace.
const OVERFLOW_USER: u32 = 65534;

/// Most symbolic links on the way to a file, as in the kernel (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// Checks that only root, the user of this process and `other` can change a file or pipe, or create or
/// replace it, a link to it or a directory on the way to it. What nobody else can create passes if it does
/// not exist: whoever reads it reports that. Contents of something other than a file or a pipe are not
/// checked: whoever reads it must refuse it.
///
/// # Errors
/// The error names the file or the directory, and who could change it.
pub(super) fn check_writers(path: &Path, other: Option<u32>) -> Result<()> {
    check_way(path, other)?;
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    if (metadata.is_file() || metadata.file_type().is_fifo())
        && let Some(who) = other_writer(path, &metadata, other)
    {
        bail!("{}: {who}; chown it to root, or chmod go-w", shown(path));
    }
    Ok(())
}

/// Checks all directories and links on the way to a file, from the root directory on.
fn check_way(path: &Path, other: Option<u32>) -> Result<()> {
    let names = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|component| component.as_os_str().to_owned()).collect()
    };
    // Names that are still to be walked, the last one first.
    let mut left = names(&std::path::absolute(path)?);
    let (mut at, mut links) = (PathBuf::new(), 0);
    // Number of names after the last link in `/proc`.
    let mut left_after_proc = None;
    while let Some(name) = left.pop() {
        match name.to_str() {
            Some(".") => continue,
            Some("..") => {
                at.pop();
                continue;
            }
            _ => {}
        }
        let next = at.join(name);
        let metadata = match std::fs::symlink_metadata(&next) {
            Ok(metadata) => metadata,
            // The target of a link of `/proc` to a pipe or a deleted file only describes it, and the kernel
            // does not walk it.
            Err(_) if left_after_proc.is_some_and(|after| left.len() >= after) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return check_creators(path, &next, &at, other);
            }
            Err(_) => return Ok(()),
        };
        if metadata.is_symlink() {
            if !is_known(metadata.uid(), other) {
                bail!("{}: the link {}: {}", shown(path), shown(&next), stranger(metadata.uid()));
            }
            links += 1;
            if links > LINKS_MAX {
                return Ok(());
            }
            if is_proc(&at) {
                left_after_proc = Some(left.len());
            }
            // An absolute target begins at the root directory: joining it replaces the path.
            left.extend(names(&std::fs::read_link(&next)?));
            continue;
        }
        if metadata.is_dir()
            && metadata.mode() & STICKY == 0
            && let Some(who) = other_writer(&next, &metadata, other)
        {
            bail!("{}: the directory {}: {who}", shown(path), shown(&next));
        }
        // In a directory with that bit, its owner can replace files of others.
        if metadata.is_dir() && !is_known(metadata.uid(), other) {
            bail!("{}: the directory {}: {}", shown(path), shown(&next), stranger(metadata.uid()));
        }
        at = next;
    }
    Ok(())
}

/// Checks that nobody else can create what is missing in a directory on the way to a file.
fn check_creators(path: &Path, missing: &Path, directory: &Path, other: Option<u32>) -> Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(directory) else { return Ok(()) };
    match other_writer(directory, &metadata, other) {
        // The sticky bit does not keep anybody from creating files.
        Some(who) => bail!(
            "{}: {} does not exist, and others can create it: the directory {}: {who}; create it, or name another one",
            shown(path),
            shown(missing),
            shown(directory)
        ),
        None => Ok(()),
    }
}

/// Returns whether a directory is one of the kernel's about processes.
fn is_proc(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
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

/// Returns who can write to a file or directory, if that is somebody else.
fn other_writer(path: &Path, metadata: &Metadata, other: Option<u32>) -> Option<String> {
    let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
    if !is_known(owner, other) {
        return Some(stranger(owner));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Some(format!("writable by every user (mode {:03o})", mode & 0o777));
    }
    // With an access control list, these bits are its mask: the most that any of its entries but those of the
    // owner and of others grants.
    if mode & WRITABLE_BY_GROUP == 0 {
        return None;
    }
    // A group with the number of the owner is that user's own.
    let group_is_known = |group: u32| group == 0 || group == owner;
    let Some(list) = access_list(path) else {
        return (!group_is_known(group))
            .then(|| format!("writable by group {group} (mode {:03o})", mode & 0o777));
    };
    let Ok(list) = list else {
        return Some("its access control list cannot be read (getfacl)".to_string());
    };
    let in_list = "of its access control list (getfacl)";
    list.into_iter().filter(|entry| entry.permissions & ACL_WRITE != 0).find_map(|entry| match entry.tag {
        ACL_USER if !is_known(entry.id, other) => Some(format!("writable by user {} {in_list}", entry.id)),
        ACL_GROUP if !group_is_known(entry.id) => Some(format!("writable by group {} {in_list}", entry.id)),
        ACL_GROUP_OBJ if !group_is_known(group) => Some(format!("writable by group {group} {in_list}")),
        _ => None,
    })
}

fn is_known(owner: u32, other: Option<u32>) -> bool {
    owner == 0
        || owner == rustix::process::geteuid().as_raw()
        || Some(owner) == other
        || owner == OVERFLOW_USER && root_is_unknown()
}

fn stranger(owner: u32) -> String {
    format!("belongs to user {owner}, neither root nor the user of this server")
}

/// Entry of an access control list.
struct Entry {
    tag: u16,
    permissions: u16,
    /// The named user or group.
    id: u32,
}

/// Returns the POSIX access control list of a file; `None` if it has none. Not the mask: the mode of the file
/// has it.
fn access_list(path: &Path) -> Option<Result<Vec<Entry>, Errno>> {
    // The value of the attribute: a version of four bytes, then entries of tag (2 bytes), permissions (2) and
    // number (4), in the order of the lowest byte first (`include/uapi/linux/posix_acl_xattr.h`).
    const HEADER_BYTES: usize = 4;
    const ENTRY_BYTES: usize = 8;
    let mut list = vec![0; ACL_BYTES_MAX];
    match rustix::fs::getxattr(path, "system.posix_acl_access", &mut list[..]) {
        Ok(bytes) => {
            let entries = list[..bytes].get(HEADER_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
            let number = |entry: &[u8], at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            Some(Ok(entries
                .map(|entry| Entry {
                    tag: number(entry, 0),
                    permissions: number(entry, 2),
                    id: u32::from(number(entry, 4)) | u32::from(number(entry, 6)) << 16,
                })
                .collect()))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => None,
        // It is too long, or cannot be read.
        Err(error) => Some(Err(error)),
    }
}

/// Returns whether root of the machine has no number here, as in a container of an ordinary user.
fn root_is_unknown() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !maps_root(&map))
}

/// Returns whether one of the ranges of a `uid_map` (`user_namespaces(7)`) begins at root of the machine.
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
    fn what_others_can_create_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("open/a")).expect("directories");
        std::os::unix::fs::symlink(at("open/absent"), at("link")).expect("a link to nothing");
        for (mode, refused) in [(0o755, false), (0o777, true), (0o1777, true)] {
            set_mode(&at("open"), mode);
            for path in ["open/absent", "open/absent/below", "link", "open/a/../absent"] {
                let said = check_writers(&at(path), None).err().map(|error| error.to_string());
                assert_eq!(said.is_some(), refused, "{mode:o} {path}: {said:?}");
                assert!(said.is_none_or(|said| said.contains("writable by every user")), "{mode:o} {path}");
            }
            // The next directory is not writable. Who can write to that above can replace it.
            assert_eq!(check_writers(&at("open/a/absent"), None).is_err(), mode == 0o777, "{mode:o}");
        }
    }

    #[test]
    fn the_way_to_other_kinds_of_files_counts() {
        let folder = tempfile::tempdir().expect("a directory");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(check_writers(&socket, None).is_ok());
        set_mode(folder.path(), 0o777);
        assert!(check_writers(&socket, None).is_err());
    }

    #[test]
    fn descriptors_of_this_process_have_no_directory() {
        use std::os::fd::AsRawFd as _;
        let folder = tempfile::tempdir().expect("a directory");
        set_mode(folder.path(), 0o1777);
        let path = folder.path().join("file");
        let deleted = fs::File::create(&path).expect("a file");
        fs::remove_file(&path).expect("deleted");
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        for number in [deleted.as_raw_fd(), reader.as_raw_fd()] {
            for path in [format!("/proc/self/fd/{number}"), format!("/dev/fd/{number}")] {
                let checked = check_writers(Path::new(&path), None);
                assert!(checked.is_ok(), "{path}: {checked:?}");
            }
        }
        // A link of `/proc` to a directory in which anyone may create the file.
        let directory = fs::File::open(folder.path()).expect("a directory");
        let below = format!("/proc/self/fd/{}/absent", directory.as_raw_fd());
        assert!(check_writers(Path::new(&below), None).is_err());
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
    fn every_directory_and_link_on_the_way_counts() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("open/a/b")).expect("directories");
        fs::create_dir(at("other")).expect("a directory");
        fs::write(at("open/a/b/file"), "text").expect("a file");
        std::os::unix::fs::symlink("../open/a", at("other/link")).expect("a link");
        std::os::unix::fs::symlink(at("other/link"), at("far")).expect("a link to a link");
        let paths = ["open/a/b/file", "other/link/b/file", "far/b/file", "other/../far/b/../b/file"];
        for open in ["open", "open/a", "open/a/b"] {
            for (mode, refused) in [(0o755, false), (0o777, true), (0o1777, false)] {
                set_mode(&at(open), mode);
                for path in paths {
                    let said = check_writers(&at(path), None).err().map(|error| error.to_string());
                    assert_eq!(said.is_some(), refused, "{open} {mode:o} {path}: {said:?}");
                    let directory = format!("the directory {}: writable by every user", at(open).display());
                    assert!(said.is_none_or(|said| said.contains(&directory)), "{open} {path}");
                }
            }
        }
        // Who can replace the link in the middle can replace the file.
        set_mode(&at("other"), 0o777);
        for (path, refused) in paths.into_iter().zip([false, true, true, true]) {
            assert_eq!(check_writers(&at(path), None).is_err(), refused, "{path}");
        }
    }

    #[test]
    fn directories_and_links_of_other_users_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a directory");
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("theirs/ours")).expect("directories");
        fs::write(at("theirs/ours/file"), "text").expect("a file");
        set_mode(&at("theirs"), 0o1755);
        let owned = |user| std::os::unix::fs::chown(at("theirs"), Some(user), Some(0)).expect("chown");
        owned(1234);
        let said = check_writers(&at("theirs/ours/file"), None).expect_err("refused").to_string();
        assert!(said.contains("user 1234"), "{said}");
        assert!(check_writers(&at("theirs/ours/file"), Some(1234)).is_ok());
        owned(0);
        assert!(check_writers(&at("theirs/ours/file"), None).is_ok());
        std::os::unix::fs::symlink(at("theirs/ours/file"), at("link")).expect("a link");
        std::os::unix::fs::lchown(at("link"), Some(1234), None).expect("chown");
        let said = check_writers(&at("link"), None).expect_err("refused").to_string();
        assert!(said.contains("the link") && said.contains("user 1234"), "{said}");
    }

    #[test]
    fn access_control_lists_count() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("file");
        fs::write(&file, "text").expect("a file");
        // Owner, a named user, group, a named group, mask, others: tag, permissions, number.
        let set = |user: (u16, u32), own_group: u16, group: (u16, u32), mask: u16| {
            let none = u32::MAX;
            let mut list = 2_u32.to_le_bytes().to_vec();
            for (tag, permissions, number) in [
                (0x01, 6, none),
                (0x02, user.0, user.1),
                (0x04, own_group, none),
                (0x08, group.0, group.1),
                (0x10, mask, none),
                (0x20_u16, 4_u16, none),
            ] {
                list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
                list.extend(number.to_le_bytes());
            }
            rustix::fs::setxattr(&file, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty())
        };
        let (stranger, ours) = (123_456, rustix::process::geteuid().as_raw());
        if let Err(error) = set((6, stranger), 4, (4, stranger), 6) {
            println!("skipped: no access control lists here: {error}");
            return;
        }
        let said = |server: Option<u32>| check_writers(&file, server).err().map(|error| error.to_string());
        assert!(said(None).is_some_and(|said| said.contains("user 123456 of its access control list")));
        assert_eq!(said(Some(stranger)), None, "the user of the server");
        // The mask takes the permission away, and shows as the bits of the group.
        set((6, stranger), 6, (6, stranger), 4).expect("set");
        assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o777, 0o644);
        assert_eq!(said(None), None);
        set((4, stranger), 4, (4, stranger), 6).expect("set");
        assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o777, 0o664);
        assert_eq!(said(None), None);
        set((6, ours), 4, (6, ours), 6).expect("set");
        assert_eq!(said(None), None, "the owner, and that user's own group");
        set((4, stranger), 4, (6, stranger), 6).expect("set");
        assert!(said(None).is_some_and(|said| said.contains("group 123456 of its access control list")));
        // The group of the file is not the mask.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(0), Some(1234)).expect("chown");
            set((6, 0), 4, (4, stranger), 6).expect("set");
            assert_eq!(said(None), None);
            set((4, 0), 6, (4, stranger), 6).expect("set");
            assert!(said(None).is_some_and(|said| said.contains("group 1234 of its access control list")));
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
