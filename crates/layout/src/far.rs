//! Far copies: a third copy of superblock and checkpoints, away from the start of the backing, so that losing
//! the start loses no drive.
//!
//! They lie in segments that are set aside for them, from a power of two on:
//!
//! ```text
//!   2^k + 64 KiB    superblock, copy 2
//!   2^k + 128 KiB   checkpoint area: slot 0, copy 2; then slot 1, copy 2
//! ```
//!
//! The place is found without the superblock: there are at most 40 powers of two to look at, whatever the
//! sizes of the drive and of the backing were and are. It never moves: not if the drive grows, nor if the
//! backing does, nor on a larger disk.

use std::ops::Range;

use crate::geometry::{CHECKPOINT_AREA_OFFSET, MIN_SEGMENTS};
use crate::{DecodeError, Geometry, PAGE_BYTES};

/// Most copies of superblock and checkpoints.
pub const COPIES_MAX: usize = 3;
/// Smallest place: what destroys a start rarely goes as far.
const FAR_MIN: u64 = 8 << 20;
/// Offset of the superblock from the beginning of the place. Not zero: file systems prefer powers of two for
/// copies of their superblocks, too.
const SUPERBLOCK_OFFSET: u64 = 64 * 1024;

/// One of so many segments, at most, holds the far copies of a new drive, unless they are asked for.
const FAR_SHARE_MIN: u64 = 128;

impl Geometry {
    /// The geometry for a new drive of `physical_size_bytes`, with room to grow fourfold. It has far copies
    /// if they take less than one percent of the segments.
    pub fn new(physical_size_bytes: u64, segment_bytes: Option<u32>) -> Result<Geometry, DecodeError> {
        let near = Geometry::without_far(physical_size_bytes, segment_bytes)?;
        let far = near.with_far()?;
        let is_cheap = far.far_segments().len() as u64 * FAR_SHARE_MIN <= u64::from(far.segments());
        Ok(if is_cheap { far } else { near })
    }

    /// The same, with far copies wherever there is room for them.
    pub fn with_far(self) -> Result<Geometry, DecodeError> {
        let far = Geometry { far: far_for(&self), ..self };
        // They may take the segments that a small drive needs.
        Ok(if far.validate().is_ok() { far } else { self })
    }

    /// Number of copies of superblock and checkpoints.
    pub fn copies(&self) -> usize {
        if self.far.is_some() { COPIES_MAX } else { COPIES_MAX - 1 }
    }

    /// Returns the offsets of all copies of the superblock.
    pub fn superblock_places(&self) -> Vec<u64> {
        let near = (0..COPIES_MAX - 1).map(Geometry::superblock_offset);
        near.chain(self.far.map(Geometry::far_superblock_offset)).collect()
    }

    /// Returns the offset of the far copy of the superblock, if the far copies begin at `far`.
    pub fn far_superblock_offset(far: u64) -> u64 {
        far.saturating_add(SUPERBLOCK_OFFSET)
    }

    /// Returns where far copies may begin on a backing of this size, in bytes: the highest place first.
    pub fn far_candidates(backing_bytes: u64) -> impl Iterator<Item = u64> {
        let holds =
            move |far: &u64| Geometry::far_superblock_offset(*far) + PAGE_BYTES as u64 <= backing_bytes;
        (FAR_MIN.trailing_zeros()..u64::BITS - 1).rev().map(|power| 1 << power).filter(holds)
    }

    /// Bytes from the beginning of the far copies to their end.
    pub fn far_bytes(&self) -> u64 {
        CHECKPOINT_AREA_OFFSET + 2 * self.checkpoint_area_bytes()
    }

    /// Segments that are set aside for the far copies; none if there are none.
    pub fn far_segments(&self) -> Range<u32> {
        let Some(far) = self.far else { return 0..0 };
        let end = far.saturating_add(self.far_bytes());
        let segment =
            |at: u64| Some(at.checked_sub(self.segments_offset())? >> self.segment_bytes.trailing_zeros());
        match (segment(far), segment(end - 1)) {
            (Some(first), Some(last)) if last < u64::from(self.segments()) => first as u32..last as u32 + 1,
            _ => 0..0,
        }
    }

    /// Returns whether a segment is set aside for the far copies.
    pub fn is_far(&self, segment: u32) -> bool {
        self.far.is_some() && self.far_segments().contains(&segment)
    }

    /// Bytes of the segments that are set aside for the far copies.
    pub fn far_segments_bytes(&self) -> u64 {
        self.far_segments().len() as u64 * u64::from(self.segment_bytes)
    }

    /// Refuses a place of far copies that cannot be.
    pub(crate) fn validate_far(&self) -> Result<(), DecodeError> {
        let bad = |why| Err(DecodeError::Field("geometry", why));
        let Some(far) = self.far else { return Ok(()) };
        if !far.is_power_of_two() || far < FAR_MIN {
            return bad("the far copies are not at a power of two from 8 MiB on");
        }
        let taken = self.far_segments().len() as u32;
        if taken == 0 {
            return bad("the far copies are not within the segments");
        }
        if self.segments() - taken < MIN_SEGMENTS {
            return bad("the far copies leave too few segments (24 at the least)");
        }
        Ok(())
    }
}

/// Returns the place for far copies on a drive of these sizes: as far from the start as powers of two and the
/// segments allow.
fn far_for(geometry: &Geometry) -> Option<u64> {
    let end = geometry.segment_offset(geometry.segments());
    let start = geometry.segments_offset();
    let fits = |far: &u64| *far >= start && far.saturating_add(geometry.far_bytes()) <= end;
    Geometry::far_candidates(end).find(fits)
}
