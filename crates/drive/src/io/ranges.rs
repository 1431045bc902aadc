//! TRIM and write-zeroes: records of the log like any write, without payload.

use device::Zeroes;
use layout::{BLOCK_BYTES, Entry, NODE_ENTRIES, NodeId};
use media::Media;

use crate::ATOMIC_WRITE_BYTES;
use crate::error::Error;
use crate::io::hold::Turn;
use crate::io::write::Reservation;
use crate::shared::{Drive, yield_now};
use crate::state::batch::Batch;
use crate::upkeep::relief::Effort;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Space in the log of a leaf with one fill, with its share of its ancestors.
const UNITS_A_FILLED_LEAF: u64 = 3;
/// Most blocks whose entries one critical section changes (the first one twice as many). The worst case (no
/// hole, every leaf new) stays short.
const BLOCKS_A_STEP: u64 = 16 * NODE_ENTRIES as u64;
/// The same in bytes.
const STEP_BYTES: u64 = BLOCKS_A_STEP * BLOCK;
/// Most bytes that are filled with one reservation for their map.
const FILLED_AT_ONCE_BYTES: u64 = 4 << 30;

impl<M: Media> Drive<M> {
    /// Unmaps a range: it reads as zeros from then on, and its space is reclaimed. Durable like a write.
    /// Partly covered blocks keep their other bytes.
    #[tracing::instrument(level = "debug", skip(self), err(level = "debug"))]
    pub async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        self.check_range(offset, len)?;
        self.0.core().counters.host_trimmed_bytes += len;
        self.set_range(offset, len, Entry::UNMAPPED).await?;
        let done = if fua || !self.0.write_cache { self.0.flush().await } else { Ok(()) };
        self.0.acknowledge(done).await
    }

    /// Makes a range read as zeros. Unless it is unmapped, it stays allocated (as far as a thin drive
    /// allocates zeros).
    #[tracing::instrument(level = "debug", skip(self), err(level = "debug"))]
    pub async fn write_zeroes(&self, offset: u64, len: u64, zeroes: Zeroes) -> Result<(), Error> {
        self.check_range(offset, len)?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            // Each part is refused before it changes anything, or not at all; a reservation for all of a long
            // range would be as large as what others write meanwhile.
            let stop = match zeroes.unmap {
                false => ((at + FILLED_AT_ONCE_BYTES) / STEP_BYTES * STEP_BYTES).min(end),
                true => end,
            };
            self.set_range(at, stop - at, if zeroes.unmap { Entry::UNMAPPED } else { Entry::fill(0) })
                .await?;
            at = stop;
        }
        let done = if zeroes.fua || !self.0.write_cache { self.0.flush().await } else { Ok(()) };
        self.0.acknowledge(done).await
    }

    async fn set_range(&self, offset: u64, len: u64, entry: Entry) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        let end = offset + len;
        // The map for a long range of fills. The request is refused before anything was changed, or not at
        // all.
        let leaves = if entry.is_unmapped() { 0 } else { len / BLOCK / NODE_ENTRIES as u64 };
        let reservation = match leaves {
            0 => None,
            _ => Some(self.reserve_fills(offset, len, entry, leaves * UNITS_A_FILLED_LEAF).await?),
        };
        let reserved = reservation.is_some();
        // Steps end at multiples of their size, so that whole leaves are cleared as such. A range short
        // enough to be atomic is one step wherever it is.
        let boundary = |at: u64| (at / BLOCK / BLOCKS_A_STEP + 1) * BLOCKS_A_STEP * BLOCK;
        let first_end = if len <= ATOMIC_WRITE_BYTES { end } else { boundary(offset).min(end) };
        if first_end == end {
            return self.set_step(&[(offset, end)], entry, reserved).await;
        }
        // Partly covered blocks take space and may be refused: both ends at once, before anything else
        // changes.
        let last_from = (end - 1) / BLOCK / BLOCKS_A_STEP * BLOCKS_A_STEP * BLOCK;
        self.set_step(&[(offset, first_end), (last_from, end)], entry, reserved).await?;
        let mut at = first_end;
        while at < last_from {
            yield_now().await;
            self.set_step(&[(at, boundary(at))], entry, reserved).await?;
            at = boundary(at);
        }
        Ok(())
    }

    /// Reserves space for the map of a long range of fills. On a full drive, what its first step replaces
    /// makes up for that.
    async fn reserve_fills(
        &self,
        offset: u64,
        len: u64,
        entry: Entry,
        units: u64,
    ) -> Result<Reservation<'_, M>, Error> {
        let mut effort = Effort::default();
        match self.0.reserve(units, &[], &mut effort).await {
            Err(Error::NoSpace) => {}
            reserved => return reserved,
        }
        let (first, end) = (offset.div_ceil(BLOCK), (offset + len) / BLOCK);
        let mut batch = Batch::take();
        batch.add_range(first, (end - first).min(BLOCKS_A_STEP), entry);
        // What it replaces is known only if the map is loaded.
        self.0.look_up(&batch).await;
        let reserved = self.0.reserve(units, std::slice::from_ref(&batch), &mut effort).await;
        batch.give_back();
        reserved
    }

    /// Sets some parts of a range, with their edges, as one batch.
    async fn set_step(&self, parts: &[(u64, u64)], entry: Entry, reserved: bool) -> Result<(), Error> {
        let mut batch = Batch::take();
        let mut effort = Effort::default();
        let mut turn = Turn::new(&self.0);
        let result = loop {
            batch.clear();
            batch.reserved = reserved;
            if let Err(error) = self.add_parts(&mut batch, parts, entry).await {
                break Err(error);
            }
            if batch.items.is_empty() {
                break self.0.core().mode.writable();
            }
            match self.0.append(&batch, &[], &mut effort, turn.holds()).await {
                Ok(true) => break Ok(()),
                Ok(false) => turn.lost(&batch).await,
                Err(error) => break Err(error),
            }
        };
        batch.give_back();
        result
    }

    async fn add_parts(&self, batch: &mut Batch, parts: &[(u64, u64)], entry: Entry) -> Result<(), Error> {
        for &(offset, end) in parts {
            let (whole_from, whole_to) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
            if whole_from > whole_to {
                let len = (end - offset) as usize;
                self.merge(batch, None, offset, |block, from| block[from..from + len].fill(0)).await?;
                continue;
            }
            if offset < whole_from {
                self.merge(batch, None, offset, |block, from| block[from..].fill(0)).await?;
            }
            if whole_from < whole_to && !self.is_absent(whole_from / BLOCK, whole_to / BLOCK, entry) {
                batch.add_range(whole_from / BLOCK, (whole_to - whole_from) / BLOCK, entry);
            }
            if whole_to < end {
                let len = (end - whole_to) as usize;
                self.merge(batch, None, whole_to, |block, _| block[..len].fill(0)).await?;
            }
        }
        Ok(())
    }

    /// Returns whether unmapping these blocks changes nothing.
    fn is_absent(&self, from: u64, to: u64, entry: Entry) -> bool {
        if !entry.is_unmapped() {
            return false;
        }
        let (first, last) = (NodeId::leaf_of(from).index, NodeId::leaf_of(to - 1).index);
        let core = self.0.core();
        (first..=last).all(|index| core.map.is_absent(NodeId { level: layout::LEAF_LEVEL, index }))
    }
}
