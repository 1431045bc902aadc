//! Loop devices: block devices whose bytes are those of a file or another device.
//!
//! The kernel names the backing file twice: by its path, as a process of the same mount namespace sees it,
//! and by device and inode. The path is used to open the file. Device and inode show whether it is still the
//! right one.

#[allow(unsafe_code)]
mod status;

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::file::{is_nfs_deleted, name_of_deleted};
use crate::patience;
use crate::root::Root;
use status::loop_status;

/// Major number of loop devices. That of their partitions is dynamic.
const LOOP_MAJOR: u32 = 7;

const SECTOR_BYTES: u64 = 512;

/// Returns the path of the backing file of a loop device, by its directory in sysfs. `None` if it is no loop
/// device, or has no file. The path is the one that a process of the mount namespace sees in which the device
/// was set up, with ` (deleted)` behind it if the file has no name any more.
///
/// # Errors
///
/// If sysfs cannot be read.
pub fn backing_file(device: &Path) -> io::Result<Option<PathBuf>> {
    let mut name = match patience::read(device.join("loop/backing_file")) {
        Ok(name) => name,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    name.truncate(name.strip_suffix(b"\n").unwrap_or(&name).len());
    Ok((!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&name))))
}

/// Returns the directory in sysfs of the whole device, for a number of it or of one of its partitions.
fn whole(root: &Root, number: u64) -> PathBuf {
    let device = root.block_device(number);
    // `..` of the directory that the link leads to: a partition is a folder in that of its device.
    if device.join("partition").exists() { device.join("..") } else { device }
}

/// Returns whether a device is a loop device, or a partition of one, whose file was deleted. It has the file
/// open, and nothing else leads to that.
pub fn is_on_deleted(root: &Root, number: u64) -> bool {
    let Ok(Some(shown)) = backing_file(&whole(root, number)) else { return false };
    let Some(name) = name_of_deleted(&shown) else { return is_nfs_deleted(&shown) };
    // A node that was removed is no file that was deleted, and a name may end like that.
    let is_node = name.starts_with("/dev/") && !name.starts_with("/dev/shm/");
    !is_node && !root.path(&shown).exists()
}

/// Returns whether a device is a loop device, or a partition of one, that keeps its file when nothing has it
/// open any more.
pub fn keeps_file(root: &Root, number: u64) -> bool {
    patience::read(whole(root, number).join("loop/autoclear")).is_ok_and(|it| it.trim_ascii() == b"0")
}

/// Range of bytes of a file or device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// Length in bytes. `None`: up to the end, wherever that is or will be.
    pub len: Option<u64>,
}

impl Span {
    /// All of it.
    pub const WHOLE: Span = Span { start: 0, len: None };

    /// Converts this span, relative to something that occupies the span `outer` of a larger object, to a span
    /// of the larger object.
    pub fn within(self, outer: Span) -> Span {
        let left = outer.len.map(|len| len.saturating_sub(self.start));
        let len = match (self.len, left) {
            (Some(len), Some(left)) => Some(len.min(left)),
            (len, left) => len.or(left),
        };
        Span { start: outer.start.saturating_add(self.start), len }
    }
}

/// Location of the bytes of a loop device, or of a partition of one.
#[derive(Clone, Debug)]
pub struct Source {
    /// Device and inode of the backing file. For a backing device, those of the file name that it was set up
    /// with.
    pub identity: (u64, u64),
    /// Names that may lead to it, the best first. The first is shown to users.
    pub names: Vec<PathBuf>,
    /// True if the kernel reports that its name is gone.
    pub is_deleted: bool,
    /// The part of the backing file.
    pub span: Span,
}

impl Source {
    /// Returns the source of the device at `path`. `None` if it is neither a loop device nor a partition of
    /// one, or has no backing file.
    pub fn at(path: &Path) -> Option<Source> {
        // Checked before it is opened, because opening blocks on some kinds of files.
        let device = std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device());
        let flags = OFlags::NONBLOCK.bits() as i32;
        let device = device.and_then(|_| File::options().read(true).custom_flags(flags).open(path).ok())?;
        Source::of(&device).ok()?
    }

    /// Returns the source of an open device. `None` as for [`Source::at`].
    ///
    /// # Errors
    ///
    /// If the kernel does not report it.
    pub fn of(device: &File) -> io::Result<Option<Source>> {
        let number = rustix::fs::fstat(device)?.st_rdev;
        let root = Root::machine();
        let (sys, whole) = (root.block_device(number), whole(&root, number));
        // Without /sys a loop device is recognised by its number, and a partition of one is not recognised.
        if rustix::fs::major(number) != LOOP_MAJOR && !whole.join("loop").exists() {
            return Ok(None);
        }
        let status = match loop_status(device) {
            Ok(status) => status,
            // Detached: it has no bytes, and its size is zero.
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let sectors = |name| -> Option<u64> {
            let text = std::fs::read_to_string(sys.join(name)).ok()?;
            text.trim().parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
        };
        // A partition with unknown bounds may be anywhere on the device.
        let within = match (sys != whole, sectors("start"), sectors("size")) {
            (true, Some(start), Some(len)) => Span { start, len: Some(len) },
            _ => Span::WHOLE,
        };
        let shown = backing_file(&whole).unwrap_or_default();
        let is_deleted = shown.as_deref().and_then(name_of_deleted).is_some();
        let names = shown.into_iter().chain(status.file_name()).collect();
        let identity = (status.device, status.inode);
        Ok(Some(Source { identity, names, is_deleted, span: within.within(status.span()) }))
    }

    /// Returns whether the two have bytes in common.
    pub fn overlaps(&self, other: &Source) -> bool {
        let end = |it: &Span| it.len.map_or(u64::MAX, |len| it.start.saturating_add(len));
        let (one, two) = (self.span, other.span);
        self.identity == other.identity && one.start < end(&two) && two.start < end(&one)
    }

    /// Name for messages.
    pub fn name(&self) -> PathBuf {
        self.names.first().cloned().unwrap_or_else(|| "an unknown file".into())
    }

    /// Returns whether a file or block device is the backing file.
    pub fn is(&self, metadata: &Metadata) -> bool {
        let kind = metadata.file_type();
        (kind.is_file() || kind.is_block_device()) && (metadata.dev(), metadata.ino()) == self.identity
    }
}

/// A loop device with a backing file.
#[derive(Clone, Debug)]
pub struct LoopDevice {
    /// Name of the kernel: `loop3`.
    pub name: String,
    /// Number, `MAJOR:MINOR`; empty if sysfs does not show it.
    pub number: String,
    /// Path of the backing file, as [`backing_file`] has it.
    pub file: PathBuf,
}

/// Returns the loop devices that have a backing file, by their names.
pub fn loop_devices(root: &Root) -> Vec<LoopDevice> {
    let names = root.names("sys/block", |name| crate::numbered(name, "loop"));
    let device = |name: String| {
        let directory = Path::new("sys/block").join(&name);
        let file = backing_file(&root.path(&directory)).ok()??;
        Some(LoopDevice { number: root.text(directory.join("dev")).unwrap_or_default(), name, file })
    };
    names.into_iter().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_loop_device_is_deleted_with_its_file() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |path: &str| folder.path().join(path);
        let root = Root::new(folder.path());
        let number = rustix::fs::makedev(7, 3);
        let is_deleted = |shown: &str| {
            fs::write(at("loop3/loop/backing_file"), shown)?;
            Ok::<bool, io::Error>(is_on_deleted(&root, number))
        };
        fs::create_dir_all(at("sys/dev/block"))?;
        fs::create_dir_all(at("loop3/loop3p1"))?;
        fs::write(at("loop3/loop3p1/partition"), "1\n")?;
        fs::create_dir(at("home"))?;
        fs::write(at("home/drive"), "a drive")?;
        symlink(at("loop3"), at("sys/dev/block/7:3"))?;
        symlink(at("loop3/loop3p1"), at("sys/dev/block/259:0"))?;
        assert!(!is_on_deleted(&root, number), "it is no loop device");
        fs::create_dir(at("loop3/loop"))?;
        assert!(!is_deleted("/home/drive\n")?);
        assert!(is_deleted("/home/drive (deleted)\n")?, "whatever is at the path");
        let partition = rustix::fs::makedev(259, 0);
        assert!(is_on_deleted(&root, partition));
        assert!(!is_on_deleted(&root, rustix::fs::makedev(8, 0)));
        assert!(is_deleted("/srv/.nfs0000000a\n")? && is_deleted("/dev/shm/drive (deleted)\n")?);
        assert!(!is_deleted("/dev/sdb (deleted)\n")?, "only its node was removed");
        fs::rename(at("home/drive"), at("home/drive (deleted)"))?;
        assert!(!is_deleted("/home/drive (deleted)\n")?, "that is its name");
        for (autoclear, keeps) in [("0\n", true), ("1\n", false)] {
            fs::write(at("loop3/loop/autoclear"), autoclear)?;
            assert!(keeps_file(&root, number) == keeps && keeps_file(&root, partition) == keeps);
        }
        assert!(!keeps_file(&root, rustix::fs::makedev(8, 0)));
        Ok(())
    }
}
