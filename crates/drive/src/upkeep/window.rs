//! Reading a segment that is being cleaned, window by window. What cannot be read as a whole is read in
//! smaller pieces, so that one page that is lost costs no more than itself.

use media::{IoBuf, Media};

use crate::medium::repair::Then;
use crate::shared::Shared;
use crate::state::cleaning::{Cleaning, Pass, Window};
use crate::state::found_record::{Filling, FoundRecord, RECORD_BYTES_MAX, find_all};

/// Bytes of a segment read at once.
const WINDOW_BYTES: usize = 2 << 20;
/// Bytes read at once of a window that cannot be read as a whole; then single pages of those that fail. A
/// page that is lost costs three reads that fail; bisecting would cost ten.
const PIECE_BYTES: usize = 64 << 10;
/// Reads of one segment that may fail, after which whole windows are skipped: a disk may take seconds for
/// each.
const FAILED_READS_MAX: u32 = 32;

impl<M: Media> Shared<M> {
    /// Reads the next window of a segment, and finds the records in it. Skips what cannot be read.
    pub(crate) async fn next_window(&self, work: &mut Cleaning, end: u64) {
        let (start, tag, uuid) = {
            let core = self.core();
            (core.geometry().segment_offset(work.segment), core.log.tag(), core.superblock.log_id())
        };
        let len = (WINDOW_BYTES as u64).min(end - work.at) as usize;
        let Some(bytes) = self.read_window(work.at, len, &mut work.pass).await else {
            work.at += len as u64;
            return;
        };
        let filling = Filling { tag, uuid: &uuid, segment: work.segment, generation: work.generation };
        let mut found = Vec::new();
        let offset = (work.at - start) as u32;
        // Where the header of a pack is lost, its records are looked for one by one.
        let scans = work.pass.scans || work.pass.unreadable;
        let mut used = find_all(&bytes, filling, work.at, offset, scans, &mut found);
        let is_old = |record: &FoundRecord| {
            record.entry.position_bytes() + record.entry.len_bytes() as u64 <= work.found_to
        };
        found.retain(|record| !is_old(record));
        if scans && used == WINDOW_BYTES && work.at + used as u64 != end {
            // The last record may go on behind the window.
            work.found_to = work.at + used as u64;
            used -= RECORD_BYTES_MAX;
        }
        work.window = Some(Window { bytes, found, done: 0, end: work.at + used as u64 });
    }

    /// Reads a part of a segment; zeros stand for pages that cannot be read, and the pass notes that there
    /// are some. Returns nothing if none can be read.
    async fn read_window(&self, at: u64, len: usize, pass: &mut Pass) -> Option<IoBuf> {
        if let Ok((bytes, _)) = self.read_range_then(at, len, Then::Moving).await {
            if pass.verifies
                && let Some((made, _)) =
                    self.repaired_in_part(at, at + len as u64, Some(&bytes), Then::Moving).await
            {
                return Some(made);
            }
            return Some(bytes);
        }
        pass.failed_reads += 1;
        let mut bytes = IoBuf::zeroed(len);
        let (mut is_empty, mut has_holes) = (true, false);
        for piece in (0..len).step_by(PIECE_BYTES) {
            let piece_len = PIECE_BYTES.min(len - piece);
            for step in [PIECE_BYTES, layout::PAGE_BYTES] {
                let mut failed = false;
                for from in (piece..piece + piece_len).step_by(step) {
                    let read = match pass.failed_reads < FAILED_READS_MAX {
                        true => {
                            let len = step.min(piece + piece_len - from);
                            self.read_range_then(at + from as u64, len, Then::Moving).await.ok()
                        }
                        false => None,
                    };
                    if let Some((read, _)) = read {
                        bytes[from..from + read.len()].copy_from_slice(&read);
                        is_empty = false;
                    } else {
                        pass.failed_reads += 1;
                        failed = true;
                    }
                }
                if !failed {
                    break;
                }
                has_holes |= step < PIECE_BYTES;
            }
        }
        pass.unreadable |= has_holes;
        (!is_empty).then_some(bytes)
    }
}
