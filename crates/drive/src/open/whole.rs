//! Writing a whole checkpoint, with all rows of its table.
//!
//! It is written in pieces: a table may have millions of rows, nearly all of them blank.

use std::sync::Arc;

use layout::table::{encode_page, table_crc, table_pages};
use layout::{Checkpoint, Geometry, PAGE_BYTES};
use media::{IoBuf, Media};

use crate::error::Error;
use crate::open::copies::{Answers, Taken, sync, write};

/// Most pages in one write.
const RUN_PAGES: usize = 64;

/// Writes all copies of a checkpoint durably, one after the other, in this order. Returns the same as
/// [`write_copies`](super::copies::write_copies).
pub(crate) async fn write_checkpoint<M: Media>(
    media: &M,
    geometry: Geometry,
    checkpoint: &Checkpoint,
    order: Vec<usize>,
) -> Result<Answers, Error> {
    let header = header_of(checkpoint);
    let offsets = geometry.checkpoint_places(checkpoint.number);
    let mut taken = Taken::in_order(order);
    for at in taken.order() {
        let written = async {
            write_copy(media, offsets[at], checkpoint, &header).await?;
            sync(media).await
        };
        taken.note(at, written.await)?;
    }
    taken.finish()
}

/// Writes a checkpoint at `offset`. It is not durable yet.
pub(crate) async fn write_one<M: Media>(
    media: &M,
    offset: u64,
    checkpoint: &Checkpoint,
) -> Result<(), Error> {
    write_copy(media, offset, checkpoint, &header_of(checkpoint)).await
}

fn header_of(checkpoint: &Checkpoint) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    let rows = &checkpoint.rows;
    let crcs = (0..table_pages(rows.len())).map(|page| encode_page(page, rows.page(page), &mut bytes));
    let crc = table_crc(&crcs.collect::<Vec<u32>>());
    checkpoint.encode_header(rows.len() as u32, crc, &mut bytes);
    bytes
}

async fn write_copy<M: Media>(
    media: &M,
    offset: u64,
    checkpoint: &Checkpoint,
    header: &[u8; PAGE_BYTES],
) -> Result<(), Error> {
    let rows = &checkpoint.rows;
    // Page 0 is the header.
    let pages = 1 + table_pages(rows.len());
    for from in (0..pages).step_by(RUN_PAGES) {
        let run = from..pages.min(from + RUN_PAGES);
        let mut bytes = IoBuf::zeroed(run.len() * PAGE_BYTES);
        for (page, out) in run.zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            match page.checked_sub(1) {
                None => out.copy_from_slice(header),
                Some(page) => _ = encode_page(page, rows.page(page), out),
            }
        }
        write(media, offset + (from * PAGE_BYTES) as u64, Arc::new(bytes)).await?;
    }
    Ok(())
}
