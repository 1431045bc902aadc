//! Reading a segment that is being cleaned, window by window. What cannot be read as a whole is read in
//! smaller pieces, so that one page that is lost costs no more than itself.

use media::{IoBuf, Media};

use crate::shared::Shared;
use crate::state::cleaning::{Cleaning, Pass, Pieces, Window};
use crate::state::found_record::{Filling, FoundRecord, RECORD_BYTES_MAX, find_all};
use crate::state::parity::Then;

/// Bytes of a segment read at once.
const WINDOW_BYTES: usize = 2 << 20;
/// Bytes read at once of a window that cannot be read as a whole; then single pages of those that fail. A
/// page that is lost costs three reads that fail; bisecting would cost ten.
const PIECE_BYTES: usize = 64 << 10;
/// Reads of one segment that may fail, after which whole windows are skipped: a disk may take seconds for
/// each.
const FAILED_READS_MAX: u32 = 32;
/// Reads that may fail in one step: whoever needs the right to maintenance waits for it.
const FAILED_READS_A_STEP: u32 = 4;

/// A window of a segment.
enum WindowRead {
    Done(IoBuf),
    /// None of it can be read.
    Nothing,
    /// Some of it is left to the next step.
    Part,
}

impl<M: Media> Shared<M> {
    /// Reads the next window of a segment, and finds the records in it. Skips what cannot be read. If too
    /// many reads fail, the rest of the window is left to the next call.
    pub(crate) async fn next_window(&self, work: &mut Cleaning, end: u64) {
        let (start, tag, uuid) = {
            let core = self.core();
            (core.geometry().segment_offset(work.segment), core.log.tag(), core.superblock.log_id())
        };
        let len = (WINDOW_BYTES as u64).min(end - work.at) as usize;
        let bytes = match self.read_window(work.at, len, &mut work.pass).await {
            WindowRead::Done(bytes) => bytes,
            WindowRead::Nothing => {
                work.at += len as u64;
                return;
            }
            WindowRead::Part => return,
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
    /// are some. What was read is in the pass if the step ends before all of it was tried.
    async fn read_window(&self, at: u64, len: usize, pass: &mut Pass) -> WindowRead {
        let mut failed = 0;
        let mut pieces = match pass.pieces.take() {
            Some(pieces) => pieces,
            None => {
                if let Ok((bytes, _)) = self.read_range_then(at, len, Then::Moving).await {
                    return WindowRead::Done(self.verified(at, bytes, pass).await);
                }
                (pass.failed_reads, failed) = (pass.failed_reads + 1, 1);
                let bytes = IoBuf::zeroed(len);
                Pieces { bytes, done: 0, pages_until: 0, is_empty: true, has_holes: false }
            }
        };
        while pieces.done < len {
            if failed == FAILED_READS_A_STEP {
                pass.pieces = Some(pieces);
                return WindowRead::Part;
            }
            let from = pieces.done;
            let is_page = from < pieces.pages_until;
            let step = if is_page { layout::PAGE_BYTES } else { PIECE_BYTES.min(len - from) };
            let may_read = pass.failed_reads < FAILED_READS_MAX;
            let read = match may_read {
                true => self.read_range_then(at + from as u64, step, Then::Moving).await.ok(),
                false => None,
            };
            match read {
                Some((read, _)) => {
                    pieces.bytes[from..from + step].copy_from_slice(&read);
                    pieces.is_empty = false;
                    pieces.done += step;
                }
                None => {
                    pass.failed_reads += 1;
                    failed += u32::from(may_read);
                    match is_page {
                        true => (pieces.has_holes, pieces.done) = (true, from + step),
                        false => pieces.pages_until = from + step,
                    }
                }
            }
        }
        pass.unreadable |= pieces.has_holes;
        match pieces.is_empty {
            true => WindowRead::Nothing,
            false => WindowRead::Done(self.verified(at, pieces.bytes, pass).await),
        }
    }

    /// What was read of a segment, as it was written, as far as parity tells and the pass asks for that.
    async fn verified(&self, at: u64, bytes: IoBuf, pass: &mut Pass) -> IoBuf {
        if !pass.verifies {
            return bytes;
        }
        let len = bytes.len();
        let made = self.repaired_in_part(at, at + len as u64, Some(&bytes), Then::Moving).await;
        pass.unreadable |= self.lacking_reads(at, len).is_some();
        made.map_or(bytes, |(made, _)| made)
    }
}
