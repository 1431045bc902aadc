//! Packs of the log that are made again from the parity of their filling.
//!
//! Parity never lengthens a log: a pack that a crash may have taken stays missing, even if parity could make
//! it. One is made again only if its pages cannot be read, or if something proves that it was durable.

use std::sync::Arc;

use layout::PAGE_BYTES;
use layout::pack::{HEADS, NextSegment, drive_tag};
use media::{IoBuf, Media};
use space::PACK_HARD_BYTES;

use super::{Parsed, Peeked, Reader};
use crate::medium::cover::{Cover, Of};
use crate::state::accumulator::FillingId;
use crate::sync::{AtomicU64, Ordering};

const PAGE: u32 = PAGE_BYTES as u32;

impl<M: Media> Reader<'_, M> {
    /// Returns the missing pack, if it is in one of the places where the log may go on and can be made again.
    /// It must be known to have been durable.
    pub(super) async fn remade(&mut self, missing: u64) -> Option<Parsed> {
        for i in 0..HEADS {
            for (segment, offset) in self.cursors[i].places() {
                if segment.segment >= self.geometry.segments() || self.geometry.is_far(segment.segment) {
                    continue;
                }
                let len = (self.geometry.segment_bytes - offset).min(PACK_HARD_BYTES as u32);
                let Some((bytes, remade)) = self.pages_again(segment, offset, len).await else { continue };
                let parsed = self.parse(i, segment, offset, &bytes);
                let its = |pack: &Parsed| pack.header.sequence == missing && pack.is_whole();
                if let Some(pack) = parsed.filter(its) {
                    self.cursors[i].next = Peeked::NotYet;
                    return Some(pack.made_again(&bytes, &remade));
                }
            }
        }
        None
    }

    /// Returns pages of a filling as they were written, if some can be made again and the others read; fewer
    /// than asked for if the filling ends before. Also returns which were made again, counted from the
    /// offset.
    pub(super) async fn pages_again(
        &mut self,
        segment: NextSegment,
        offset: u32,
        len: u32,
    ) -> Option<(IoBuf, Vec<u32>)> {
        if !self.bounds.uses_parity || segment.generation == 0 {
            return None;
        }
        let (uuid, failed_reads) = (self.uuid, AtomicU64::new(0));
        let of = Of {
            media: self.media,
            geometry: self.geometry,
            log_id: &uuid,
            tag: drive_tag(&uuid),
            read_bytes: &AtomicU64::new(0),
            failed_reads: Some(&failed_reads),
            planted: self.planted,
        };
        let id = FillingId { segment: segment.segment, generation: segment.generation };
        let cover = of.on_medium(id, None, None).await?;
        failed_reads.store(0, Ordering::Relaxed);
        let again = Self::pages_of(cover, offset, len).await;
        self.lacks_reads |= again.is_none() && failed_reads.load(Ordering::Relaxed) > 0;
        again
    }

    async fn pages_of(cover: Cover<'_, M>, offset: u32, len: u32) -> Option<(IoBuf, Vec<u32>)> {
        let first = offset / PAGE;
        let members = (first..first + len / PAGE).take_while(|page| cover.sum(*page).is_some()).count();
        let mut buf = IoBuf::zeroed(members * PAGE_BYTES);
        let mut bad = Vec::new();
        for (page, bytes) in (first..).zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            let read = cover.read_page(page, bytes).await;
            if !read || cover.sum(page) != Some(crc32c::crc32c(bytes)) {
                bad.push(page);
            }
        }
        let made = cover.make_again(&bad).await;
        if bad.is_empty() || made.len() < bad.len() {
            return None;
        }
        let mut remade = Vec::new();
        for (page, bytes) in made {
            let at = (page - first) as usize * PAGE_BYTES;
            buf[at..at + PAGE_BYTES].copy_from_slice(&bytes);
            remade.push(page - first);
        }
        Some((buf, remade))
    }
}

impl Parsed {
    /// It is not on the medium as `bytes` begin: these pages of them were made again.
    pub(super) fn made_again(mut self, bytes: &[u8], pages: &[u32]) -> Parsed {
        let mut buf = IoBuf::zeroed(self.header.len as usize);
        buf.copy_from_slice(&bytes[..self.header.len as usize]);
        self.mended = Some(Arc::new(buf));
        let its = |page: &&u32| **page * PAGE < self.header.len;
        // One that is whole by itself is in a window that could not be read.
        self.remade_pages = pages.iter().filter(its).count().max(1) as u64;
        self
    }
}
