//! Removes traces of previous contents, so that no other program recognizes them on what is a drive now.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use layout::Geometry;
use layout::owner::{OWNER_BYTES, OWNER_COPIES};
use media::{FileMedia, PAGE_BYTES};
use service::MayChange;
use status::shown;

use crate::signatures::{self, Contents, HEAD_BYTES, TAIL_BYTES};
use crate::usage;

/// Passes over signatures outside of the ends. A pass may bring to light what an earlier signature concealed.
const PASSES: u32 = 8;

/// Overwrites both ends of the backing, to its last byte, with zeros, and every signature elsewhere, but not
/// the owner pages, which hold the claim. Durable on return. Then the kernel forgets the partitions of a
/// disk.
///
/// # Errors
/// Everything must be writable, and nothing may be recognized afterwards. The backing must stay claimed.
pub(super) fn clear(media: &FileMedia, may_change: &MayChange) -> Result<()> {
    let path = shown(media.path());
    let file = media.reopen().with_context(|| format!("{path}: cannot be opened again"))?;
    let overwritten = |range: Range<u64>| {
        overwrite(&file, range.clone(), may_change)
            .with_context(|| format!("{path}: cannot overwrite what it holds at byte {}", range.start))
    };
    let size = (&file).seek(SeekFrom::End(0)).with_context(|| format!("{path}: cannot get its size"))?;
    overwritten(0..HEAD_BYTES.min(size))?;
    overwritten(size - TAIL_BYTES.min(size)..size)?;
    for pass in 0.. {
        file.sync_all().with_context(|| format!("{path}: cannot sync it"))?;
        let found =
            signatures::find(&file, media.path()).with_context(|| format!("{path}: cannot read it"))?;
        if found.is_empty() {
            break;
        }
        if pass == PASSES {
            let contents = Contents::new(found).map(|contents| contents.to_string()).unwrap_or_default();
            bail!(
                "{path}: still holds {contents} after that was overwritten; check the disk (`pumice doctor`)"
            );
        }
        for found in found {
            let page = found.offset / PAGE_BYTES as u64 * PAGE_BYTES as u64;
            overwritten(page..(page + 2 * PAGE_BYTES as u64).min(size))?;
        }
    }
    if let Err(error) = media.forget_partitions() {
        usage::complain(&format!(
            "warning: {path}: the kernel still knows partitions of it ({error}): run `blockdev --rereadpt` when they \
             are not in use"
        ));
    }
    Ok(())
}

/// Most bytes between two looks at the claim.
const PIECE_BYTES: u64 = 256 << 10;

fn overwrite(file: &File, range: Range<u64>, may_change: &MayChange) -> io::Result<()> {
    for mut left in around_owner_pages(range) {
        while !left.is_empty() {
            let end = left.end.min(left.start + PIECE_BYTES);
            may_change.confirm().map_err(io::Error::other)?;
            file.write_all_at(&vec![0; (end - left.start) as usize], left.start)?;
            left.start = end;
        }
    }
    Ok(())
}

/// Returns a range without the owner pages, in order.
fn around_owner_pages(range: Range<u64>) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut start = range.start;
    for copy in 0..OWNER_COPIES {
        let pages = Geometry::owner_offset(copy);
        parts.push(start..range.end.min(pages));
        start = start.max(pages + OWNER_BYTES as u64);
    }
    parts.push(start..range.end);
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_pages_are_left_out() {
        const KIB: u64 = 1 << 10;
        let parts = |start, end| around_owner_pages(start * KIB..end * KIB);
        let kib = |parts: &[(u64, u64)]| -> Vec<Range<u64>> {
            parts.iter().map(|(start, end)| start * KIB..end * KIB).collect()
        };
        assert_eq!(parts(0, 1024), kib(&[(0, 16), (28, 80), (92, 1024)]));
        assert_eq!(parts(20, 84), kib(&[(28, 80)]));
        assert_eq!(parts(16, 28), kib(&[]));
        assert_eq!(parts(4, 8), kib(&[(4, 8)]));
        assert_eq!(parts(2000, 2008), kib(&[(2000, 2008)]));
    }
}
