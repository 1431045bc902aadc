//! Links from `/dev/sfdvNn1` to the block device of an attached drive, and from `/dev/sfdvNn1pM` to its
//! partitions.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::numbers;
use crate::error::AttachError;
use host::block::partitions;

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Path of the link.
    pub path: PathBuf,
    /// Number of the drive.
    pub number: u32,
}

/// Creates the link of an attached drive to its block device. Replaces a dangling link.
///
/// # Errors
///
/// If the drive can get no number, `/dev` cannot be written, or something else has the name.
pub fn link(drive: &Path, device: &Path) -> Result<Link, AttachError> {
    let number = numbers::claim(drive)
        .map_err(|source| AttachError::system("the drive gets no number (--sfx)", source))?;
    let path = numbers::node(number);
    place(&path, device).map_err(|source| AttachError::system(path.display(), source))?;
    link_partitions(number, device);
    Ok(Link { path, number })
}

fn place(path: &Path, device: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|target| target == device || !path.exists()) {
        fs::remove_file(path)?;
    }
    symlink(device, path)
}

/// Returns whether the drive with a number has a link to a device.
pub fn linked(number: u32, device: &Path) -> bool {
    fs::read_link(numbers::node(number)).is_ok_and(|target| target == device)
}

/// Creates the links of a drive to the partitions of its device, and removes those to partitions that are
/// gone. Leaves a name that something else has.
pub(super) fn link_partitions(number: u32, device: &Path) {
    let wanted = partitions(device).into_iter().map(|partition| (partition.number, partition.path));
    update(&numbers::node(number), device, &wanted.collect::<Vec<_>>());
}

/// `node`: name of the device; `wanted`: numbers and paths of its partitions.
fn update(node: &Path, device: &Path, wanted: &[(i32, PathBuf)]) {
    let mut links: Vec<(PathBuf, &Path)> = Vec::new();
    for (number, path) in wanted {
        let mut link = node.as_os_str().to_os_string();
        link.push(format!("p{number}"));
        links.push((PathBuf::from(link), path));
    }
    for (link, target) in partition_links(node, device) {
        if !links.iter().any(|(wanted, path)| *wanted == link && **path == *target) {
            // It is tried again.
            let _ = fs::remove_file(link);
        }
    }
    for (link, path) in links {
        if fs::read_link(&link).ok().as_deref() != Some(path) {
            let _ = place(&link, path);
        }
    }
}

/// Returns the links that there are to partitions of a device, with what they lead to.
fn partition_links(node: &Path, device: &Path) -> Vec<(PathBuf, PathBuf)> {
    let (Some(folder), Some(name)) = (node.parent(), node.file_name()) else { return Vec::new() };
    let (name, device) = (name.to_string_lossy().into_owned(), device.to_string_lossy().into_owned());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_partition_of = |text: &str, of: &str| {
        text.strip_prefix(of).and_then(|rest| rest.strip_prefix('p')).is_some_and(is_number)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| is_partition_of(&entry.file_name().to_string_lossy(), &name));
    let links = named.filter_map(|entry| Some((entry.path(), fs::read_link(entry.path()).ok()?)));
    links.filter(|(_, target)| is_partition_of(&target.to_string_lossy(), &device)).collect()
}

/// Removes the links of a drive to a device and its partitions, if there are any.
pub(super) fn unlink(number: u32, device: &Path) {
    // A link that cannot be removed dangles.
    if linked(number, device) {
        let _ = fs::remove_file(numbers::node(number));
    }
    update(&numbers::node(number), device, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_partitions_come_and_go() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        for device in ["loop0", "loop0p1", "loop0p2", "loop1p1"] {
            fs::write(at(device), "")?;
        }
        let (node, device) = (at("sfdv0n1"), at("loop0"));
        // That of another drive, and something that is no link.
        symlink(at("loop1p1"), at("sfdv0n1p3"))?;
        fs::write(at("sfdv0n1p4"), "")?;
        let wanted = |numbers: &[i32]| -> Vec<(i32, PathBuf)> {
            numbers.iter().map(|number| (*number, at(&format!("loop0p{number}")))).collect()
        };
        let links = || {
            let mut found = partition_links(&node, &device);
            found.sort();
            found.into_iter().map(|(link, _)| link).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            update(&node, &device, &wanted(&[1, 2]));
            assert_eq!(links(), [at("sfdv0n1p1"), at("sfdv0n1p2")]);
        }
        assert_eq!(fs::read_link(at("sfdv0n1p2"))?, at("loop0p2"));
        update(&node, &device, &wanted(&[2, 4]));
        assert_eq!(links(), [at("sfdv0n1p2")], "a name that something has is not taken");
        update(&node, &device, &[]);
        assert!(links().is_empty() && at("sfdv0n1p4").is_file());
        assert_eq!(fs::read_link(at("sfdv0n1p3"))?, at("loop1p1"));
        Ok(())
    }

    #[test]
    fn only_what_leads_nowhere_is_replaced() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("device"), "")?;
        fs::write(at("other"), "")?;
        for _ in 0..2 {
            place(&at("link"), &at("device"))?;
            assert_eq!(fs::read_link(at("link"))?, at("device"));
        }
        let refused = |link: &str| place(&at(link), &at("other")).expect_err("refused").kind();
        assert_eq!(refused("link"), io::ErrorKind::AlreadyExists);
        assert_eq!(refused("device"), io::ErrorKind::AlreadyExists);
        fs::remove_file(at("device"))?;
        place(&at("link"), &at("other"))?;
        assert_eq!(fs::read_link(at("link"))?, at("other"));
        Ok(())
    }
}
