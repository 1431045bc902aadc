//! Bytes and bits that a later release may use: everything that docs/reference/format.md calls *zero*, and
//! flags that it does not define.
#![allow(dead_code, unreachable_pub)]

use std::ops::Range;

use layout::owner::Role;
use layout::pack::{PACK_HEADER_BYTES, walk_records};
use layout::row::ROW_BYTES;
use layout::table::{ROWS_A_PAGE, page_rows, table_pages};
use layout::{Checkpoint, Features, Geometry, PackHeader, Superblock};
use media::Media;

use crate::image::Image;

const PAGE: usize = 4096;
const LATER: u8 = 0xa5;
/// A compatible feature of a later release.
pub const LATER_FEATURE: u64 = 1 << 40;
/// Flags of checkpoints that this release does not know.
const LATER_FLAGS: u32 = 0xffff_fff0;

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Completes a page: its checksum, at `at`, covers it with itself as zero.
fn seal(page: &mut [u8], at: usize) {
    put(page, at, 0);
    let crc = crc32c::crc32c(page);
    put(page, at, crc);
}

fn fill(page: &mut [u8], ranges: impl IntoIterator<Item = Range<usize>>) {
    ranges.into_iter().for_each(|range| page[range].fill(LATER));
}

impl<M: Media> Image<M> {
    /// Sets everything that a later release may use, in all structures. What is in compressed records is left
    /// out.
    pub fn use_later_bytes(&self) {
        self.use_later_bytes_of_superblock();
        self.use_later_bytes_of_owner_pages();
        for (position, header) in self.packs() {
            self.use_later_bytes_of_pack(position, &header);
        }
        let pages = 0..table_pages(self.geometry().segments() as usize);
        for number in 0..2 {
            for offset in self.copies_of(number) {
                self.use_later_bytes_of_checkpoint(offset, pages.clone());
            }
        }
    }

    fn use_later_bytes_of_superblock(&self) {
        let features = Features { compatible: LATER_FEATURE, ..self.superblock.features };
        let mut page = Superblock { features, ..self.superblock.clone() }.encode();
        // The place of far copies means something if there are any.
        let far = if self.superblock.geometry.far.is_some() { 136..144 } else { 132..132 };
        fill(&mut page, [70..72, 132..far.start, far.end..PAGE]);
        seal(&mut page, 12);
        self.superblock.geometry.superblock_places().into_iter().for_each(|place| self.write(place, &page));
    }

    fn use_later_bytes_of_owner_pages(&self) {
        for (copy, role) in (0..2).flat_map(|copy| Role::ALL.map(|role| (copy, role))) {
            let offset = Geometry::owner_page_offset(copy, role);
            let mut page = self.read(offset, PAGE);
            if layout::OwnerPage::decode(&page).is_ok() {
                fill(&mut page, [10..12, 216..PAGE]);
                seal(&mut page, 12);
                self.write(offset, &page);
            }
        }
    }

    fn use_later_bytes_of_pack(&self, position: u64, header: &PackHeader) {
        let mut bytes = self.read(position, header.used as usize);
        fill(&mut bytes, [6..8, 100..108]);
        let mut crc = 0;
        walk_records(&bytes, header.records, |_, raw| {
            crc = crc32c::crc32c_append(crc, &raw[..16]);
            Ok(())
        })
        .expect("a whole pack");
        let crc = crc32c::crc32c_append(crc, &bytes[..108]);
        put(&mut bytes, 108, crc);
        self.write(position, &bytes[..PACK_HEADER_BYTES]);
    }

    /// Sets what a later release may use in a copy of a checkpoint, if there is one at `offset`: in its
    /// header page and in these pages of its table. Returns whether there is one.
    pub fn use_later_bytes_of_checkpoint(&self, offset: u64, pages: impl IntoIterator<Item = usize>) -> bool {
        let mut header = self.read(offset, PAGE);
        let Ok(summary) = Checkpoint::decode_summary(&header) else { return false };
        let rows = summary.segments as usize;
        let mut table = self.read(offset + PAGE as u64, table_pages(rows) * PAGE);
        for number in pages {
            let page = &mut table[number * PAGE..][..PAGE];
            fill(page, Some(8..16));
            let here = page_rows(number, rows).len();
            for row in page[16..].chunks_exact_mut(ROW_BYTES).take(here) {
                fill(row, Some(21..ROW_BYTES));
            }
            fill(page, Some(16 + here * ROW_BYTES..16 + ROWS_A_PAGE * ROW_BYTES));
            seal(page, 0);
        }
        let crcs: Vec<u8> = table.chunks_exact(PAGE).flat_map(|page| page[..4].to_vec()).collect();
        put(&mut header, 12, crc32c::crc32c(&crcs));
        fill(&mut header, [112..128, 188..256, 568..1024, 1072..1088, 1600..PAGE]);
        let flags = u32::from_le_bytes(header[60..64].try_into().expect("four bytes")) | LATER_FLAGS;
        put(&mut header, 60, flags);
        seal(&mut header, 8);
        self.write(offset, &header);
        self.write(offset + PAGE as u64, &table);
        true
    }
}
