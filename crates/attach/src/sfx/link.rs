//! Links from `/dev/sfdvNn1` to the block device of an attached drive.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::numbers;
use crate::error::AttachError;

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Path of the link.
    pub path: PathBuf,
    /// Number of the drive.
    pub number: u32,
}

/// Makes the link of an attached drive to its block device. One that leads nowhere is replaced.
///
/// # Errors
///
/// If the drive can get no number, `/dev` cannot be written, or something else has the name.
pub fn link(drive: &Path, device: &Path) -> Result<Link, AttachError> {
    let number = numbers::claim(drive)
        .map_err(|source| AttachError::system("the drive gets no number (--sfx)", source))?;
    let path = numbers::node(number);
    place(&path, device).map_err(|source| AttachError::system(path.display(), source))?;
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

/// Removes the link of a drive to a device, if there is one.
pub(super) fn unlink(number: u32, device: &Path) {
    if linked(number, device) {
        // A link that stays leads nowhere.
        let _ = fs::remove_file(numbers::node(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
