//! Paths: files, block devices, and directories to walk.

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use layout::BLOCK_BYTES;
use walkdir::WalkDir;

use super::SourceError;
use super::file::{Stamp, Symlink, data_extents, device_bytes};
use super::population::{Item, Location, Population, Trouble};

/// Options for walking directories.
#[derive(Clone, Copy, Debug)]
pub struct WalkOptions {
    /// True to enter other file systems.
    pub cross_filesystems: bool,
    /// Number of directory levels shown separately in the breakdown, at least 1.
    pub depth: usize,
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions { cross_filesystems: false, depth: 1 }
    }
}

impl Population {
    /// Adds a path: a file, a block device, or a directory with everything below it. A symbolic link is
    /// followed if it is `path` itself, but not below it. Calls `progress` with the number of items found so
    /// far.
    ///
    /// # Errors
    /// Fails if the path does not exist or is of another type. Entries below a directory that cannot be read
    /// are recorded and skipped.
    pub fn add_path(
        &mut self,
        path: &Path,
        options: WalkOptions,
        progress: &dyn Fn(u64),
    ) -> Result<(), SourceError> {
        let shown = path.display().to_string();
        let metadata = std::fs::metadata(path).map_err(|error| SourceError::new(&shown, error))?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.walk(path, options, progress);
            return Ok(());
        }
        let group = self.group(shown.clone());
        let location = Location::Named(path.to_path_buf());
        if kind.is_file() {
            self.add_file(location, path, &metadata, group, true);
        } else if kind.is_block_device() {
            let bytes = device_bytes(path).map_err(|error| SourceError::new(&shown, error))?;
            let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
            let item = Item { location, bytes, group, alone: true, stamp: Stamp::default() };
            self.push(item, &[(0, blocks)]);
        } else {
            let why = "not a file, directory or block device; to scan a stream, pipe it in and use -";
            return Err(SourceError::new(shown, why));
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        location: Location,
        path: &Path,
        metadata: &std::fs::Metadata,
        group: u32,
        alone: bool,
    ) {
        let bytes = metadata.len();
        if bytes == 0 {
            self.skipped.empty_files_count += 1;
            return;
        }
        if metadata.nlink() > 1 && !self.seen.insert((metadata.dev(), metadata.ino())) {
            self.skipped.hard_links_count += 1;
            return;
        }
        if alone {
            self.note_container(path);
        }
        // Fewer blocks than bytes: the file has holes, or the file system compresses.
        let sparse = metadata.blocks().saturating_mul(512) < bytes;
        let data =
            if sparse { data_extents(path, bytes) } else { vec![(0, bytes.div_ceil(BLOCK_BYTES as u64))] };
        self.push(Item { location, bytes, group, alone, stamp: Stamp::of(metadata) }, &data);
    }

    /// Adds a note for an image in a container format. It is measured as a plain file, which is rarely
    /// intended.
    fn note_container(&mut self, path: &Path) {
        let mut head = [0; 8];
        let read = super::file::open_quietly(path, Symlink::Follow)
            .and_then(|file| std::os::unix::fs::FileExt::read_at(&file, &mut head, 0));
        let what = match (read, &head) {
            (Ok(_), [b'Q', b'F', b'I', 0xfb, ..]) => "qcow2",
            (Ok(_), [b'K', b'D', b'M', b'V', ..]) => "VMDK",
            (Ok(_), b"vhdxfile") => "VHDX",
            _ => return,
        };
        self.notes.push(format!(
            "{}: a {what} image; its file was measured, not the disk in it (serve it over NBD, as with qemu-nbd, to \
             scan that)",
            path.display()
        ));
    }

    fn walk(&mut self, root: &Path, options: WalkOptions, progress: &dyn Fn(u64)) {
        let root_device = std::fs::metadata(root).map(|metadata| metadata.dev()).ok();
        let mut numbers: HashMap<std::path::PathBuf, u32> = HashMap::new();
        let mut groups: HashMap<std::path::PathBuf, u32> = HashMap::new();
        // The root itself may be a symbolic link. walkdir always follows that one.
        let mut entries = WalkDir::new(root).follow_links(false).into_iter();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let name = error.path().unwrap_or(root).display().to_string();
                    let why = error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                    self.unlisted.push(Trouble { name, why });
                    continue;
                }
            };
            let kind = entry.file_type();
            if kind.is_symlink() {
                self.skipped.symlinks_count += u64::from(entry.depth() > 0);
                continue;
            }
            if !kind.is_dir() && !kind.is_file() {
                self.skipped.special_files_count += 1;
                continue;
            }
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) => {
                    let name = entry.path().display().to_string();
                    self.unlisted.push(Trouble { name, why: error.to_string() });
                    continue;
                }
            };
            if kind.is_dir() {
                if entry.depth() > 0 && !options.cross_filesystems && Some(metadata.dev()) != root_device {
                    self.skipped.other_filesystems_count += 1;
                    entries.skip_current_dir();
                } else {
                    self.directories_count += 1;
                }
                continue;
            }
            let Some(parent) = entry.path().parent() else { continue };
            let directory = match numbers.get(parent) {
                Some(number) => *number,
                None => {
                    let number = self.directories.len() as u32;
                    self.directories.push(parent.to_path_buf());
                    numbers.insert(parent.to_path_buf(), number);
                    number
                }
            };
            let below = entry.depth().saturating_sub(1).min(options.depth.max(1));
            let up = entry.depth() - 1 - below;
            let top = parent.ancestors().nth(up).unwrap_or(root);
            let group = match groups.get(top) {
                Some(group) => *group,
                None => {
                    let group = self.group(top.display().to_string());
                    groups.insert(top.to_path_buf(), group);
                    group
                }
            };
            let location = Location::Found(directory, entry.file_name().into());
            self.add_file(location, entry.path(), &metadata, group, false);
            progress(self.items.len() as u64);
        }
    }
}
