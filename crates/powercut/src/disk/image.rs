//! Content of a disk, page by page.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Unit of transfers, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Smallest unit, in bytes, that is entirely old or entirely new after a power cut.
pub const SECTOR_BYTES: usize = 512;

/// The bytes of a page, shared between images.
#[derive(Clone, Debug)]
pub(super) struct Page(Arc<[u8; PAGE_BYTES]>);

impl Page {
    /// Copies the bytes of a page.
    pub(super) fn of(bytes: &[u8]) -> Page {
        let mut page = [0; PAGE_BYTES];
        page.copy_from_slice(bytes);
        Page(Arc::new(page))
    }

    pub(super) fn bytes(&self) -> &[u8; PAGE_BYTES] {
        &self.0
    }

    /// Returns whether both are the same bytes in memory.
    pub(super) fn is(&self, other: &Page) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A write or a discard. `None` means zeros.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) pages: Vec<(u64, Option<Page>)>,
    pub(super) is_discard: bool,
}

/// Content of a whole disk. A clone shares the pages.
#[derive(Clone, Debug)]
pub struct Image(Vec<Option<Page>>);

impl Image {
    pub(super) fn empty(pages: usize) -> Image {
        Image(vec![None; pages])
    }

    pub(super) fn len_pages(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn page(&self, at: u64) -> Option<&Page> {
        self.0.get(at as usize)?.as_ref()
    }

    pub(super) fn set(&mut self, at: u64, page: Option<Page>) {
        if let Some(place) = self.0.get_mut(at as usize) {
            *place = page;
        }
    }

    pub(super) fn apply(&mut self, change: &Change) {
        for (at, page) in &change.pages {
            self.set(*at, page.clone());
        }
    }

    /// Reads `len` bytes at an offset, fewer at the end of the disk.
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let size = self.0.len() * PAGE_BYTES;
        let start = usize::try_from(offset).unwrap_or(size).min(size);
        let end = start.saturating_add(len).min(size);
        let mut bytes = vec![0; end - start];
        let mut at = start;
        while at < end {
            let (page, from) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let count = (PAGE_BYTES - from).min(end - at);
            if let Some(page) = &self.0[page] {
                bytes[at - start..at - start + count].copy_from_slice(&page.bytes()[from..from + count]);
            }
            at += count;
        }
        bytes
    }

    /// Writes the image to a sparse file.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len((self.0.len() * PAGE_BYTES) as u64)?;
        for (at, page) in self.0.iter().enumerate() {
            if let Some(page) = page {
                file.write_all_at(page.bytes(), (at * PAGE_BYTES) as u64)?;
            }
        }
        Ok(())
    }
}
