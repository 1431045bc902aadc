//! Removes traces of previous contents, so that no other program recognizes them on what is a drive now.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use media::{FileMedia, PAGE_BYTES};
use status::shown;

use crate::signatures::{self, Contents, HEAD_BYTES, TAIL_BYTES};
use crate::usage;

/// Passes over signatures outside of the ends. A pass may bring to light what an earlier signature concealed.
const PASSES: u32 = 8;

/// Overwrites both ends of the backing, to its last byte, with zeros, and every signature elsewhere. Durable on return.
/// Then the kernel forgets the partitions of a disk.
///
/// # Errors
/// Everything must be writable, and nothing may be recognized afterwards.
pub(super) fn clear(media: &FileMedia) -> Result<()> {
    let path = shown(media.path());
    let file = media.reopen().with_context(|| format!("{path}: cannot be opened again"))?;
    let overwritten = |range: Range<u64>| {
        overwrite(&file, range.clone())
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
            "warning: {path}: the kernel still knows partitions of it ({error}): run `blockdev --rereadpt` when they are \
             not in use"
        ));
    }
    Ok(())
}

fn overwrite(file: &File, range: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; (range.end.saturating_sub(range.start)) as usize];
    file.write_all_at(&zeros, range.start)
}
