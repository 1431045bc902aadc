//! All data to scan, as a single sequence of blocks from which samples are drawn.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use layout::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

use super::file::{OpenFile, ReadOrder, Stamp, Symlink};
use super::{Bucket, Export, ReadAt};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most data that is believed of a source, in bytes: 1 EiB.
const BYTES_MAX: u64 = 1 << 60;

/// Location of an item's bytes.
#[derive(Clone, Debug)]
pub enum Location {
    /// A file found in a directory: number of the directory, file name.
    Found(u32, Box<OsStr>),
    /// A file or device named by the user. A symbolic link is followed.
    Named(PathBuf),
    /// The NBD export with this number.
    Nbd(u32),
    /// An object: number of the bucket, key, entity tag.
    Object(u32, Box<str>, Box<str>),
}

/// A file, device, export or object.
#[derive(Clone, Debug)]
pub struct Item {
    /// Location of the item.
    pub location: Location,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of the group (such as a directory) that it belongs to.
    pub group: u32,
    /// Standalone: a device or image whose blocks, including holes, keep their positions on a drive.
    pub alone: bool,
    pub(crate) stamp: Stamp,
}

/// A range of blocks of an item that hold data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of the item.
    pub item: u32,
    /// First block, relative to the item.
    pub first: u64,
    /// Number of blocks, at least one.
    pub blocks: u64,
    /// Number of blocks of all extents before this one.
    pub before: u64,
}

/// A range of blocks of whose items only a sample is known: those that random blocks of the range have hit.
pub(crate) struct Thinned {
    pub(crate) blocks: Range<u64>,
    /// Blocks of the items that were hit. Each is to be used for one draw of a block within it.
    pub(crate) draws: Vec<Range<u64>>,
}

/// Items skipped on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Symbolic links. They are not followed within directories.
    pub symlinks_count: u64,
    /// Devices, sockets and FIFOs within directories.
    pub special_files_count: u64,
    /// Directories on other file systems.
    pub other_filesystems_count: u64,
    /// Additional names of files that are already counted.
    pub hard_links_count: u64,
    /// Files and objects of length 0.
    pub empty_files_count: u64,
}

/// A problem with an item: it could not be read, or it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Path, URI or key.
    pub name: String,
    /// Description of the problem.
    pub why: String,
}

/// The data to scan.
#[derive(Default)]
pub struct Population {
    pub(crate) items: Vec<Item>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) groups: Vec<String>,
    pub(crate) exports: Vec<Box<dyn Export>>,
    pub(crate) buckets: Vec<Arc<dyn Bucket>>,
    /// Ranges of blocks with items that are not in `items`.
    pub(crate) thinned: Vec<Thinned>,
    /// Number of items that are not in `items`.
    pub(crate) not_kept_count: u64,
    pub(crate) blocks: u64,
    pub(crate) hole_blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) directories_count: u64,
    pub(crate) skipped: Skipped,
    pub(crate) notes: Vec<String>,
    /// Directories that could not be listed.
    pub(crate) unlisted: Vec<Trouble>,
    pub(crate) seen: HashSet<(u64, u64)>,
    troubles: Mutex<Troubles>,
}

/// Problems by item number.
#[derive(Clone, Default)]
pub(crate) struct Troubles {
    pub(crate) unreadable: BTreeMap<u32, String>,
    pub(crate) changed: BTreeMap<u32, String>,
}

/// Checks the size that a server claims for another item, beside the bytes that there are.
///
/// # Errors
/// If no source can be that large.
pub(crate) fn check_size(before: u64, bytes: u64) -> Result<(), &'static str> {
    match before.checked_add(bytes) {
        Some(bytes) if bytes <= BYTES_MAX => Ok(()),
        _ => Err("claims to hold more than 1 EiB, which is not believed"),
    }
}

impl Population {
    /// Creates an empty population.
    pub fn new() -> Population {
        Population::default()
    }

    /// Number of blocks that hold data.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Items found. Of a bucket with very many objects, a sample.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Names of the groups, in the order of their numbers.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Adds an item with its data as (first block, blocks).
    pub(crate) fn push(&mut self, item: Item, data: &[(u64, u64)]) {
        let number = self.items.len() as u32;
        let mut held = 0;
        for &(first, blocks) in data.iter().filter(|(_, blocks)| *blocks > 0) {
            self.extents.push(Extent { item: number, first, blocks, before: self.blocks });
            self.blocks += blocks;
            held += blocks;
        }
        self.hole_blocks += item.bytes.div_ceil(BLOCK).saturating_sub(held);
        self.bytes += item.bytes;
        self.items.push(item);
    }

    /// Adds a group and returns its number.
    pub(crate) fn group(&mut self, name: String) -> u32 {
        self.groups.push(name);
        self.groups.len() as u32 - 1
    }

    /// Returns the extent that holds the block with this number among all data blocks, and the block's number
    /// within the item.
    pub(crate) fn locate(&self, block: u64) -> Option<(&Extent, u64)> {
        let at = self.extents.partition_point(|extent| extent.before <= block).checked_sub(1)?;
        let extent = &self.extents[at];
        let within = block - extent.before;
        (within < extent.blocks).then_some((extent, extent.first + within))
    }

    /// Position of an extent on a drive, in blocks, relative to the start of some leaf. Extents of standalone
    /// items keep their positions; all others follow each other.
    pub(crate) fn position(&self, extent: &Extent) -> u64 {
        if self.items[extent.item as usize].alone { extent.first } else { extent.before }
    }

    /// Returns true if the second extent directly follows the first on a drive.
    fn adjoin(&self, one: &Extent, next: &Extent) -> bool {
        let alone = |extent: &Extent| self.items[extent.item as usize].alone;
        let is_thinned =
            |extent: &Extent| self.thinned.iter().any(|thinned| thinned.blocks.contains(&extent.before));
        // Whether the next object of a sample follows is chance: a group would be longer, the more objects
        // were kept.
        let apart = |extent: &Extent| alone(extent) || is_thinned(extent);
        let together = one.item == next.item || !apart(one) && !apart(next);
        together && self.position(one) + one.blocks == self.position(next)
    }

    /// Returns the blocks that are contiguous with the given block within its aligned group of `size` blocks
    /// on a drive, including the block itself. The pieces are in order and adjoin.
    pub(crate) fn group_of(&self, block: u64, size: u64) -> Vec<Extent> {
        let Some(at) = self.extents.partition_point(|extent| extent.before <= block).checked_sub(1) else {
            return Vec::new();
        };
        let position = self.position(&self.extents[at]) + (block - self.extents[at].before);
        let base = position / size * size;
        let (mut low, mut high) = (at, at);
        while low > 0
            && self.position(&self.extents[low]) > base
            && self.adjoin(&self.extents[low - 1], &self.extents[low])
        {
            low -= 1;
        }
        let end = |extent: &Extent| self.position(extent) + extent.blocks;
        while high + 1 < self.extents.len()
            && end(&self.extents[high]) < base + size
            && self.adjoin(&self.extents[high], &self.extents[high + 1])
        {
            high += 1;
        }
        let clip = |extent: &Extent| {
            let from = self.position(extent).max(base) - self.position(extent);
            let to = end(extent).min(base + size) - self.position(extent);
            Extent { first: extent.first + from, blocks: to - from, before: extent.before + from, ..*extent }
        };
        self.extents[low..=high].iter().map(clip).collect()
    }

    /// Returns the name of an item.
    pub fn name(&self, item: u32) -> String {
        let Some(found) = self.items.get(item as usize) else { return String::new() };
        match &found.location {
            Location::Found(..) | Location::Named(_) => self.path(found).display().to_string(),
            Location::Nbd(export) => self.exports[*export as usize].uri().to_string(),
            Location::Object(bucket, key, _) => {
                format!("s3://{}/{key}", self.buckets[*bucket as usize].name())
            }
        }
    }

    /// Returns the last component of an item's name.
    pub(crate) fn file_name(&self, item: u32) -> OsString {
        match &self.items[item as usize].location {
            Location::Found(_, name) => name.to_os_string(),
            Location::Named(path) => path.file_name().unwrap_or_default().to_os_string(),
            Location::Nbd(_) => OsString::new(),
            Location::Object(_, key, _) => OsString::from(key.rsplit('/').next().unwrap_or_default()),
        }
    }

    fn path(&self, item: &Item) -> PathBuf {
        match &item.location {
            Location::Found(directory, name) => self.directories[*directory as usize].join(Path::new(name)),
            Location::Named(path) => path.clone(),
            Location::Nbd(_) | Location::Object(..) => PathBuf::new(),
        }
    }

    /// Opens an item for reading.
    pub(crate) fn open(&self, item: u32, order: ReadOrder) -> io::Result<Box<dyn ReadAt>> {
        let found = &self.items[item as usize];
        let reader: Box<dyn ReadAt> = match &found.location {
            Location::Found(..) => {
                Box::new(OpenFile::open(&self.path(found), &found.stamp, Symlink::Refuse, order)?)
            }
            Location::Named(path) => Box::new(OpenFile::open(path, &found.stamp, Symlink::Follow, order)?),
            Location::Nbd(export) => self.exports[*export as usize].open()?,
            Location::Object(bucket, key, tag) => {
                self.buckets[*bucket as usize].clone().open(key, tag, found.bytes)
            }
        };
        if reader.has_changed() {
            self.changed(item, "changed since it was listed");
        }
        Ok(reader)
    }

    /// Records that an item could not be read. Data read from it earlier still counts.
    pub(crate) fn unreadable(&self, item: u32, why: impl ToString) {
        if let Ok(mut troubles) = self.troubles.lock() {
            troubles.unreadable.entry(item).or_insert_with(|| why.to_string());
        }
    }

    /// Records that an item changed during the scan.
    pub(crate) fn changed(&self, item: u32, why: impl ToString) {
        if let Ok(mut troubles) = self.troubles.lock() {
            troubles.changed.entry(item).or_insert_with(|| why.to_string());
        }
    }

    pub(crate) fn troubles(&self) -> Troubles {
        self.troubles.lock().map(|troubles| troubles.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(bytes: u64) -> Item {
        let location = Location::Named(PathBuf::from("x"));
        Item { location, bytes, group: 0, alone: true, stamp: Stamp::default() }
    }

    #[test]
    fn every_block_is_found_in_its_extent() {
        let mut all = Population::new();
        all.push(item(10 * BLOCK), &[(0, 2), (5, 3)]);
        all.push(item(0), &[]);
        all.push(item(100), &[(0, 1)]);
        assert_eq!(all.blocks(), 6);
        assert_eq!(all.hole_blocks, 5);
        let found: Vec<(u32, u64)> =
            (0..6).filter_map(|block| all.locate(block).map(|(extent, at)| (extent.item, at))).collect();
        assert_eq!(found, [(0, 0), (0, 1), (0, 5), (0, 6), (0, 7), (2, 0)]);
        assert_eq!(all.locate(6), None);
    }

    #[test]
    fn a_group_ends_at_holes_and_goes_on_in_the_next_file() {
        let groups = |alone| {
            let mut all = Population::new();
            for data in [&[(0, 2), (5, 7)][..], &[(0, 4)]] {
                all.push(Item { alone, ..item(20 * BLOCK) }, data);
            }
            let group = |block| {
                let pieces = all.group_of(block, 8);
                pieces.iter().map(|piece| (piece.item, piece.first, piece.blocks)).collect::<Vec<_>>()
            };
            [0, 2, 4, 5, 7, 8, 12].map(group)
        };
        let own = [vec![(0, 0, 2)], vec![(0, 5, 3)], vec![(0, 8, 4)], vec![(1, 0, 4)]];
        assert_eq!(groups(true), [0, 1, 1, 2, 2, 2, 3].map(|i: usize| own[i].clone()));
        let together = [vec![(0, 0, 2), (0, 5, 6)], vec![(0, 11, 1), (1, 0, 4)]];
        assert_eq!(groups(false), [0, 0, 0, 0, 0, 1, 1].map(|i: usize| together[i].clone()));
    }
}
