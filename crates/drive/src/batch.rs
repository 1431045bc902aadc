//! A request made ready for the log: compressed and summed, outside the lock.

use std::cell::RefCell;
use std::ops::Range;

use codec::{CodecId, Policy};
use layout::record::{RECORD_HEADER_BYTES, encode_range};
use layout::{BLOCK_BYTES, Entry, RecordHeader, RecordKind, UNIT_BYTES};

/// Where an item's payload is.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// In the batch's scratch.
    Scratch(Range<usize>),
    /// In the host's buffer: stored raw, as it came.
    Source(Range<usize>),
}

/// A record to be.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Data { header: RecordHeader, payload: Payload },
    Range { header: RecordHeader, payload: [u8; 16], count: u64, entry: Entry },
}

/// Records to be appended together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Item>,
    pub(crate) scratch: Vec<u8>,
    /// Blocks that must still have these entries when the batch is appended.
    pub(crate) expected: Vec<(u64, Entry)>,
    /// Its space was reserved: it is not refused for want of space.
    pub(crate) reserved: bool,
    /// Bytes of log all items take.
    pub(crate) log_bytes: usize,
    data_bytes: usize,
}

thread_local! {
    static SPARE: RefCell<Vec<Batch>> = const { RefCell::new(Vec::new()) };
}

impl Batch {
    /// An empty batch with the buffers of an earlier one of this thread.
    pub(crate) fn take() -> Batch {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Gives the buffers back for the next batch.
    pub(crate) fn give_back(mut self) {
        const SPARE_MAX: usize = 64;
        self.clear();
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(self);
            }
        });
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.scratch.clear();
        self.expected.clear();
        self.log_bytes = 0;
        self.data_bytes = 0;
        self.reserved = false;
    }

    /// 16-byte units that its data records will occupy.
    pub(crate) fn data_units(&self) -> u64 {
        (self.data_bytes / UNIT_BYTES) as u64
    }

    /// Whether it only gives space up.
    pub(crate) fn frees(&self) -> bool {
        self.items.iter().all(|item| matches!(item, Item::Range { entry, .. } if entry.is_unmapped()))
    }

    /// Adds whole blocks of the host's buffer: `source[range]` from `block` on.
    pub(crate) fn add_source(&mut self, policy: Policy, block: u64, source: &[u8], range: Range<usize>) {
        codec::with_compressor(policy, |compressor, _| {
            for (i, at) in range.step_by(BLOCK_BYTES).enumerate() {
                let data = &source[at..at + BLOCK_BYTES];
                self.add_block(compressor, block + i as u64, data, Some(at));
            }
        });
    }

    /// Adds one block whose contents were put together in a buffer of our own; it must still have the entry
    /// `expected` when it is appended.
    pub(crate) fn add_merged(&mut self, policy: Policy, block: u64, data: &[u8], expected: Entry) {
        self.expected.push((block, expected));
        codec::with_compressor(policy, |compressor, _| self.add_block(compressor, block, data, None));
    }

    fn add_block(&mut self, compressor: &mut codec::Compressor, block: u64, data: &[u8], at: Option<usize>) {
        if let Some(word) = codec::fill_word(data) {
            return self.add_range(block, 1, Entry::fill(word));
        }
        let start = self.scratch.len();
        let id = compressor.compress(data, None, &mut self.scratch);
        let payload = match (id, at) {
            (CodecId::Raw, Some(at)) => Payload::Source(at..at + BLOCK_BYTES),
            (CodecId::Raw, None) => {
                self.scratch.extend_from_slice(data);
                Payload::Scratch(start..self.scratch.len())
            }
            _ => Payload::Scratch(start..self.scratch.len()),
        };
        let bytes = match &payload {
            Payload::Scratch(range) => &self.scratch[range.clone()],
            Payload::Source(_) => data,
        };
        let header = summed(RecordKind::Data, block, id as u8, bytes);
        self.log_bytes += header.record_len();
        self.data_bytes += header.record_len();
        self.items.push(Item::Data { header, payload });
    }

    /// Adds a range of blocks that get an entry without a record; goes together with the range before if it can.
    pub(crate) fn add_range(&mut self, block: u64, count: u64, entry: Entry) {
        if let Some(Item::Range { header, payload, count: before, entry: same }) = self.items.last_mut()
            && *same == entry
            && header.block + *before == block
        {
            *before += count;
            *payload = encode_range(*before, entry);
            *header = summed(RecordKind::Range, header.block, 0, payload);
            return;
        }
        let payload = encode_range(count, entry);
        let header = summed(RecordKind::Range, block, 0, &payload);
        self.log_bytes += header.record_len();
        self.items.push(Item::Range { header, payload, count, entry });
    }
}

/// A header with the (unmasked) checksum over itself and its payload.
pub(crate) fn summed(kind: RecordKind, block: u64, codec: u8, payload: &[u8]) -> RecordHeader {
    let mut header = RecordHeader {
        crc: 0,
        block,
        payload_len: payload.len() as u16,
        kind,
        moved: false,
        codec,
        extra: 0,
    };
    sum(&mut header, &[], payload);
    header
}

/// Sets a header's (unmasked) checksum.
pub(crate) fn sum(header: &mut RecordHeader, origin: &[u8], payload: &[u8]) {
    let mut raw = [0; RECORD_HEADER_BYTES];
    header.encode(&mut raw);
    let crc = crc32c::crc32c(&raw[4..]);
    let crc = if origin.is_empty() { crc } else { crc32c::crc32c_append(crc, origin) };
    header.crc = crc32c::crc32c_append(crc, payload);
}
