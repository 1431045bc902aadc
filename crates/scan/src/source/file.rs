//! Files and block devices.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use layout::BLOCK_BYTES;
use rustix::fs::{Advice, Mode, OFlags, SeekFrom, fadvise, open, seek};

use super::ReadAt;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Identity of a file when it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Stamp {
    pub(crate) bytes: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) inode: u64,
}

impl Stamp {
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Stamp {
        Stamp {
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            inode: metadata.ino(),
        }
    }
}

pub(crate) struct OpenFile {
    file: File,
    changed: bool,
}

/// Treatment of a symbolic link as the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symlink {
    Follow,
    Refuse,
}

/// Order in which a source is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOrder {
    Sequential,
    /// Without read-ahead by the kernel.
    Random,
}

/// Opens a file for reading without side effects. The access time is not updated where the kernel allows
/// that, and a FIFO that replaced the file does not block.
pub(crate) fn open_quietly(path: &Path, symlink: Symlink) -> io::Result<File> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOATIME;
    if symlink == Symlink::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let fd = match open(path, flags, Mode::empty()) {
        // Only the owner may set `O_NOATIME`.
        Err(rustix::io::Errno::PERM) => open(path, flags - OFlags::NOATIME, Mode::empty()),
        other => other,
    }?;
    Ok(File::from(fd))
}

impl OpenFile {
    /// Opens a listed file.
    pub(crate) fn open(
        path: &Path,
        stamp: &Stamp,
        symlink: Symlink,
        order: ReadOrder,
    ) -> io::Result<OpenFile> {
        let file = open_quietly(path, symlink)?;
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        let changed = if kind.is_file() {
            Stamp::of(&metadata) != *stamp
        } else if kind.is_block_device() {
            false
        } else {
            return Err(io::Error::other("is no longer a file"));
        };
        let advice = match order {
            ReadOrder::Sequential => Advice::Sequential,
            ReadOrder::Random => Advice::Random,
        };
        // The advice is optional; ignore a failure.
        let _ = fadvise(&file, 0, None, advice);
        Ok(OpenFile { file, changed })
    }
}

impl ReadAt for OpenFile {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn has_changed(&self) -> bool {
        self.changed
    }
}

/// Size of a block device in bytes.
pub(crate) fn device_bytes(path: &Path) -> io::Result<u64> {
    Ok(seek(open_quietly(path, Symlink::Follow)?.as_fd(), SeekFrom::End(0))?)
}

/// Returns the data of a sparse file as (first block, blocks): the ranges reported by `SEEK_DATA` and
/// `SEEK_HOLE`, widened to whole blocks. Returns the whole file if these are not supported.
pub(crate) fn data_extents(path: &Path, bytes: u64) -> Vec<(u64, u64)> {
    let all = vec![(0, bytes.div_ceil(BLOCK))];
    let Ok(file) = open_quietly(path, Symlink::Follow) else { return all };
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < bytes {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole follows.
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => return all,
        };
        let Ok(hole) = seek(&file, SeekFrom::Hole(data)) else { return all };
        if hole <= at || hole < data {
            return all;
        }
        let (first, end) = (data / BLOCK, hole.min(bytes).div_ceil(BLOCK));
        match extents.last_mut() {
            Some((start, blocks)) if *start + *blocks >= first => *blocks = end - *start,
            _ if end > first => extents.push((first, end - first)),
            _ => {}
        }
        at = hole;
    }
    extents
}
