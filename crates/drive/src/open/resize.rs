//! Growing a drive while it is in use: its logical capacity, or its physical size.
//!
//! Nothing moves. The superblock is the commit: its copies are written one after the other, each made durable
//! before the next, so that one of them is always whole. What was added is used only when all were written. A
//! power cut leaves the old size or the new one.

use std::sync::atomic::Ordering;

use layout::geometry::validate_capacity;
use layout::{Geometry, PAGE_BYTES};
use media::{Media, exact_size};

use crate::error::Error;
use crate::shared::Drive;

impl<M: Media> Drive<M> {
    /// Increases the capacity that hosts see to `bytes`. Existing data stays where it is.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a smaller or impossible capacity; nothing was changed then.
    pub async fn set_logical_capacity(&self, bytes: u64) -> Result<(), Error> {
        let shared = &self.0;
        let _right = shared.maintenance().await;
        self.check_logical_capacity(bytes)?;
        let mut superblock = shared.writable_superblock()?;
        if bytes == superblock.logical_capacity_bytes {
            return Ok(());
        }
        superblock.logical_capacity_bytes = bytes;
        shared.write_superblock(&mut superblock).await?;
        shared.announce_superblock(superblock.update).await?;
        let mut core = shared.core();
        core.map.set_blocks(bytes / layout::BLOCK_BYTES as u64);
        core.superblock = superblock;
        shared.capacity_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Checks whether hosts could see `bytes`, also on a drive that is only inspected.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] as for [`Drive::set_logical_capacity`].
    pub fn check_logical_capacity(&self, bytes: u64) -> Result<(), Error> {
        let now = self.0.core().superblock.logical_capacity_bytes;
        if bytes < now {
            return Err(Error::Invalid(format!(
                "a capacity of {} is less than the {} that hosts see: only a wipe makes it smaller",
                exact_size(bytes),
                exact_size(now)
            )));
        }
        validate_capacity(bytes).map_err(|_| {
            let capacity = exact_size(bytes);
            Error::Invalid(format!(
                "a capacity of {capacity} is not possible: expected a multiple of 4 KiB, at most 256 TiB less 2 MiB"
            ))
        })
    }

    /// Increases the number of bytes of the backing that the drive uses, rounded down to whole pages. The
    /// backing must have grown before.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a smaller size, one that the backing does not have, or more than four times the
    /// size with which the drive was created; nothing was changed then.
    pub async fn set_physical_size(&self, bytes: u64) -> Result<(), Error> {
        let shared = &self.0;
        let _right = shared.maintenance().await;
        let geometry = self.check_physical_size(bytes)?;
        let bytes = geometry.physical_size_bytes;
        let mut superblock = shared.writable_superblock()?;
        let backing = shared.media.size_bytes();
        if bytes > backing {
            let (size, backing) = (exact_size(bytes), exact_size(backing));
            return Err(Error::Invalid(format!("a size of {size}, but the backing has {backing}")));
        }
        if geometry == superblock.geometry {
            return Ok(());
        }
        // A checkpoint's table has the size at its cut.
        if shared.core().checkpoints.in_progress.is_some() {
            shared.write_checkpoint().await?;
        }
        superblock.geometry = geometry;
        shared.write_superblock(&mut superblock).await?;
        shared.announce_superblock(superblock.update).await?;
        {
            let mut core = shared.core();
            core.segments.grow(geometry);
            core.log.set_geometry(geometry);
            core.superblock = superblock;
        }
        // Writers may have been waiting for space.
        shared.progress.notify(usize::MAX);
        Ok(())
    }

    /// Returns the sizes of the drive if it could use `bytes` of a large enough backing, also of a drive that
    /// is only inspected.
    ///
    /// # Errors
    ///
    /// As for [`Drive::set_physical_size`], except the size of the backing.
    pub fn check_physical_size(&self, bytes: u64) -> Result<Geometry, Error> {
        let before = self.0.core().superblock.geometry;
        let now = before.physical_size_bytes;
        if bytes < now {
            return Err(Error::Invalid(format!(
                "a size of {} is less than the {} in use: drives only grow",
                exact_size(bytes),
                exact_size(now)
            )));
        }
        let bytes = bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let geometry = Geometry { physical_size_bytes: bytes, ..before };
        if geometry.segments() > geometry.max_segments {
            let most = geometry.segment_offset(geometry.max_segments);
            return Err(Error::Invalid(format!(
                "a size of {} is more than the {} that the drive has room for: four times its first size plus \
                 metadata",
                exact_size(bytes),
                exact_size(most)
            )));
        }
        geometry.validate().map_err(|e| Error::Invalid(e.to_string()))?;
        Ok(geometry)
    }
}
