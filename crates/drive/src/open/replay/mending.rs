//! Mending of packs of which a bit flipped in a header, after they were durable.

use std::sync::Arc;

use layout::PAGE_BYTES;
use layout::mend::mend_pack;
use layout::pack::{HEADS, NextSegment, PackAddress};
use media::{IoBuf, Media};
use space::PACK_HARD_BYTES;

use super::{Parsed, Peeked, Reader};

/// Bytes that are read of what may be a pack: as many as the largest has, or fewer if not all can be read.
const READS: [usize; 3] = [PACK_HARD_BYTES, 64 << 10, PAGE_BYTES];

/// A pack as it was before it was damaged.
#[derive(Clone, Debug)]
pub(crate) struct MendedPack {
    /// Its number among the packs that were found.
    pub(crate) at: usize,
    pub(crate) sequence: u64,
    pub(crate) position: u64,
    pub(crate) buf: Arc<IoBuf>,
    /// Pages of it that were made again from parity, perhaps because they cannot be read.
    pub(crate) remade_pages: u64,
}

impl MendedPack {
    pub(crate) fn is_remade(&self) -> bool {
        self.remade_pages > 0
    }
}

impl<M: Media> Reader<'_, M> {
    /// Returns the missing pack, if it is in one of the places where the log may go on and can be mended. It
    /// must be known to have been durable.
    pub(super) async fn mended(&mut self, missing: u64) -> Option<Parsed> {
        for i in 0..HEADS {
            for (segment, offset) in self.cursors[i].places() {
                if segment.segment >= self.geometry.segments() || self.geometry.is_far(segment.segment) {
                    continue;
                }
                if let Some(pack) = self.mended_at(i, segment, offset, missing).await {
                    self.cursors[i].next = Peeked::NotYet;
                    return Some(pack);
                }
            }
        }
        None
    }

    async fn mended_at(
        &mut self,
        i: usize,
        segment: NextSegment,
        offset: u32,
        missing: u64,
    ) -> Option<Parsed> {
        let room = (self.geometry.segment_bytes - offset) as usize;
        for len in READS {
            if self.cover(i, segment, offset, len.min(room) as u32).await.is_ok() {
                break;
            }
        }
        let (_, from, window) = self.cursors[i].window.as_ref().filter(|(of, from, window)| {
            *of == segment.segment && *from <= offset && ((offset - from) as usize) < window.len()
        })?;
        let bytes = &window[(offset - from) as usize..];
        let bytes = &bytes[..bytes.len().min(PACK_HARD_BYTES)];
        let NextSegment { segment: number, generation } = segment;
        let place = PackAddress { uuid: &self.uuid, segment: number, generation, offset };
        let mended = mend_pack(bytes, place, missing)?;
        let mut pack = self.parse(i, segment, offset, &mended).filter(|pack| self.may_be_next(pack))?;
        // What the medium holds, until it is written again.
        pack.crc = crc32c::crc32c(&bytes[..mended.len()]);
        let mut buf = IoBuf::zeroed(mended.len());
        buf.copy_from_slice(&mended);
        pack.mended = Some(Arc::new(buf));
        Some(pack)
    }
}
