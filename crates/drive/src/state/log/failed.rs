//! Packs that the medium did not take. The log has a gap until their contents are written elsewhere and a
//! checkpoint's cut is behind that.

use std::sync::Arc;

use media::IoBuf;

use super::{Log, SealedPack};
use crate::planted::PlantedBug;
use crate::state::segments::{SegmentState, Segments};

/// A pack that the medium did not take.
pub(super) struct FailedPack {
    pub(super) sequence: u64,
    segment: u32,
    position: u64,
    buf: Arc<IoBuf>,
}

impl Log {
    /// The medium did not take a pack. Its segment is not written any more. The contents stay readable in
    /// memory until they are written elsewhere.
    pub(crate) fn pack_failed(&mut self, pack: SealedPack, segments: &mut Segments) {
        self.pack_done(&pack);
        for state in &mut self.heads {
            state.leaves |= state.current.is_some() && state.current.segment == pack.segment;
        }
        if !segments.forgets_bad() {
            segments.set_aside(pack.segment, SegmentState::Bad);
        }
        self.gap = Some(self.gap.map_or(pack.sequence, |gap| gap.min(pack.sequence)));
        let SealedPack { sequence, segment, position, buf, .. } = pack;
        self.failed.push(FailedPack { sequence, segment, position, buf });
    }

    /// A pack of an earlier run that the medium does not take; it may be visible only in a cache. Returns its
    /// segment.
    pub(crate) fn pack_not_taken(
        &mut self,
        sequence: u64,
        (position, buf): (u64, Arc<IoBuf>),
        segments: &mut Segments,
    ) -> Option<u32> {
        let (segment, _) = self.geometry.locate(position)?;
        self.in_memory.insert(position, buf.clone());
        segments.get_mut(segment).unwritten += 1;
        if !segments.forgets_bad() {
            segments.set_aside(segment, SegmentState::Bad);
        }
        self.gap = Some(self.gap.map_or(sequence, |gap| gap.min(sequence)));
        debug_assert!(sequence <= self.sequence, "a pack of an earlier run comes before this one's");
        self.durable = self.durable.min(sequence - 1);
        self.durable_max = Some(self.durable);
        self.failed.push(FailedPack { sequence, segment, position, buf });
        Some(segment)
    }

    /// Packs of an earlier run that are in memory only, of a drive that is read and never written.
    pub(crate) fn hold(&mut self, packs: impl Iterator<Item = (u64, Arc<IoBuf>)>, segments: &mut Segments) {
        for (position, buf) in packs {
            if let Some((segment, _)) = self.geometry.locate(position) {
                self.in_memory.insert(position, buf);
                segments.get_mut(segment).unwritten += 1;
            }
        }
    }

    /// Returns a pack that the medium did not take. It stays in place until [`Log::rehomed`].
    pub(crate) fn first_failed(&self) -> Option<(u64, u32, Arc<IoBuf>)> {
        let pack = self.failed.iter().min_by_key(|pack| pack.sequence)?;
        Some((pack.position, pack.segment, pack.buf.clone()))
    }

    /// The live contents of a pack that the medium did not take were written elsewhere, behind it. Its place
    /// stays a gap until a checkpoint's cut lies behind that.
    pub(crate) fn rehomed(&mut self, position: u64, segments: &mut Segments) {
        self.failed.retain(|pack| {
            let done = pack.position == position;
            if done {
                self.in_memory.remove(&position);
                segments.get_mut(pack.segment).unwritten -= 1;
                self.gaps.push(pack.sequence);
                if !self.planted.has(PlantedBug::FailedPackFreed) {
                    self.kept.push((pack.sequence, pack.buf.clone()));
                }
            }
            !done
        });
    }

    /// Returns whether there are packs that the medium did not take and that were not yet written elsewhere.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Returns whether the log has a gap that only a checkpoint closes.
    pub(crate) fn has_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// A checkpoint is durable whose cut lies behind all packs written elsewhere.
    pub(crate) fn gap_closed(&mut self, cut: u64) {
        self.gaps.retain(|gap| *gap > cut);
        self.kept.retain(|(sequence, _)| *sequence > cut);
        self.gap = self.failed.iter().map(|pack| pack.sequence).chain(self.gaps.iter().copied()).min();
        self.synced(self.synced);
    }
}
