//! Mounted file systems, from `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

use crate::Root;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `MAJOR:MINOR`.
    pub device: String,
    /// The directory of the file system that is mounted: `/` unless it is a part of it, as with bind mounts.
    pub root: PathBuf,
    /// Mount point.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// Device, or another source that depends on the type.
    pub source: String,
    /// Options of the mount and of the file system.
    pub options: Vec<String>,
}

impl Mount {
    /// Returns whether an option is set, as `discard` or `discard=...`.
    pub fn has(&self, option: &str) -> bool {
        let is =
            |set: &String| set == option || set.strip_prefix(option).is_some_and(|it| it.starts_with('='));
        self.options.iter().any(is)
    }
}

/// Returns all mounts, in the order in which they were made.
pub fn mounts(root: &Root) -> Vec<Mount> {
    let bytes = std::fs::read(root.path("proc/self/mountinfo")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().filter_map(parse).collect()
}

/// Returns the mount that a path is on: the last one with the longest matching mount point.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.as_os_str().len())
}

/// Parses a line of `proc_pid_mountinfo(5)`: id, parent, device, root, mount point, options, tags ..., `-`,
/// type, source, more options.
fn parse(line: &str) -> Option<Mount> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mount: Vec<&str> = mount.split(' ').collect();
    let filesystem: Vec<&str> = filesystem.split(' ').collect();
    let options = [*mount.get(5)?, filesystem.get(2).copied().unwrap_or_default()];
    Some(Mount {
        device: (*mount.get(2)?).to_string(),
        root: unescape(mount.get(3)?).into(),
        point: unescape(mount.get(4)?).into(),
        kind: (*filesystem.first()?).to_string(),
        source: unescape(filesystem.get(1)?),
        options: options.iter().flat_map(|list| list.split(',')).map(str::to_string).collect(),
    })
}

/// Decodes the octal escapes of spaces, tabs, line breaks and backslashes in files of `/proc`.
pub fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let octal = rest.get(1..4).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_understood() -> Result<(), &'static str> {
        let line =
            "36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 - ext4 /dev/root rw,discard,errors=continue";
        let mount = parse(line).ok_or("no mount")?;
        assert_eq!((&*mount.root, &*mount.point), (Path::new("/mnt1"), Path::new("/mnt two")));
        assert_eq!(
            (mount.device.as_str(), mount.kind.as_str(), mount.source.as_str()),
            ("98:0", "ext4", "/dev/root")
        );
        assert!(mount.has("discard") && mount.has("errors") && mount.has("noatime") && !mount.has("disc"));
        assert_eq!(parse("nonsense"), None);
        assert_eq!(unescape("a\\134b\\"), "a\\b\\");
        Ok(())
    }

    #[test]
    fn the_innermost_mount_counts() {
        let mount = |point: &str| Mount {
            device: "1:1".into(),
            root: "/".into(),
            point: point.into(),
            kind: "ext4".into(),
            source: "x".into(),
            options: Vec::new(),
        };
        let mounts = [mount("/"), mount("/srv"), mount("/srv/deep")];
        let point = |path: &str| mount_of(&mounts, Path::new(path)).map(|mount| mount.point.clone());
        assert_eq!(point("/srv/drive"), Some("/srv".into()));
        assert_eq!(point("/srvx"), Some("/".into()));
        assert_eq!(point("/srv/deep/er/drive"), Some("/srv/deep".into()));
    }
}
