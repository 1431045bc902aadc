//! Appends to the cleaning head: of what the drive itself writes anew or moves.

use layout::{Entry, Head, RecordHeader};

use crate::state::batch::{Batch, Item, Payload};
use crate::state::core::Core;
use crate::state::segments::Claim;

impl Core {
    /// Appends a batch to the cleaning head. Returns false if no segment is available.
    pub(crate) fn append_anew(&mut self, batch: &Batch, claim: Claim) -> bool {
        batch.items.iter().all(|item| match item {
            Item::Data { header, payload: Payload::Scratch(range) } => {
                self.append_to_cleaning(header, &batch.scratch[range.clone()], claim)
            }
            Item::Range { header, payload, count, entry } => {
                self.append_range_to_cleaning(header, payload, (*count, *entry), claim)
            }
            // It does not come from a host's buffer.
            Item::Data { .. } => true,
        })
    }

    /// Returns whether a data record needs only dictionaries in use.
    pub(crate) fn is_current(&self, header: &RecordHeader) -> bool {
        header.extra == 0 || self.dictionaries.active.contains(&header.extra)
    }

    /// A record was appended. If it needs a retired dictionary, the segments that need it are unknown until
    /// no head is in this one any more.
    pub(crate) fn note_retired(&mut self, header: &RecordHeader) {
        if !self.is_current(header) {
            self.dictionaries.open_at_retirement = self.log.open_segments();
        }
    }

    /// Appends a range to the cleaning head. Returns false if no segment is available.
    pub(crate) fn append_range_to_cleaning(
        &mut self,
        header: &RecordHeader,
        payload: &[u8],
        (count, entry): (u64, Entry),
        claim: Claim,
    ) -> bool {
        if self.log.room(Head::Cleaning, header.record_len(), claim, &mut self.segments).is_err() {
            return false;
        }
        self.log.append(Head::Cleaning, header, payload);
        // Its entry does not show that the host replaces it. This pack therefore comes first in any case.
        self.log.put_cleaning_first();
        self.publish_range(header.block, count, entry);
        true
    }

    /// Appends a data record to the cleaning head and points its blocks to it. Returns false if no segment is
    /// available.
    pub(crate) fn append_to_cleaning(&mut self, header: &RecordHeader, payload: &[u8], claim: Claim) -> bool {
        let len = header.record_len();
        if self.log.room(Head::Cleaning, len, claim, &mut self.segments).is_err() {
            return false;
        }
        let entry = self.log.append(Head::Cleaning, header, payload);
        self.publish_record(header.block, entry, header.left_out);
        self.note_retired(header);
        self.checkpoints.records_since += 1;
        self.log.seal_if_full(Head::Cleaning, &mut self.segments);
        true
    }
}
