//! Writing: divided into atomic pieces, prepared outside the lock, appended and published inside it.

use std::sync::Arc;

use layout::record::RECORD_HEADER_BYTES;
use layout::{ATOMIC_WRITE_BYTES, BLOCK_BYTES, UNIT_BYTES};
use media::Media;

use crate::error::Error;
use crate::io::hold::Turn;
use crate::io::offloaded::Plan;
use crate::planted::PlantedBug;
use crate::shared::{Drive, Shared, yield_now};
use crate::state::batch::Batch;
use crate::upkeep::relief::Effort;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl<M: Media> Drive<M> {
    /// Writes `data` at `offset`. With `fua` it is durable before this returns.
    ///
    /// Up to 256 KiB are atomic across a power cut: all of it or none. Larger writes are atomic in pieces of
    /// 256 KiB.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if physical space cannot hold it: the piece that failed changed nothing.
    #[tracing::instrument(level = "debug", skip(self, data), fields(len = data.len()), err(level = "debug"))]
    pub async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        self.check_range(offset, data.len() as u64)?;
        if data.len() <= ATOMIC_WRITE_BYTES {
            let (data, torn_off) = data.split_at(self.torn_at(offset, data.len()));
            self.write_piece(offset, data, Batch::take(), &mut Effort::default()).await?;
            if !torn_off.is_empty() {
                let offset = offset + data.len() as u64;
                self.write_piece(offset, torn_off, Batch::take(), &mut Effort::default()).await?;
            }
        } else {
            self.write_pieces(offset, data).await?;
        }
        let done = if fua || !self.0.write_cache { self.0.flush().await } else { Ok(()) };
        self.0.acknowledge(done).await
    }

    /// Length of the part of a small write that takes effect at once: all of it, but for the planted mistake.
    fn torn_at(&self, offset: u64, len: usize) -> usize {
        let is_odd = !(offset | len as u64).is_multiple_of(512);
        match is_odd && self.0.planted.has(PlantedBug::OddWriteTorn) {
            true => len.min((BLOCK - offset % BLOCK) as usize),
            false => len,
        }
    }

    /// Writes a request of several pieces. Space is reserved first, so that it is refused as a whole or not
    /// at all. Other requests have their turn between the pieces.
    async fn write_pieces(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut effort = Effort::default();
        let (mut reservation, batches) = match self.0.try_reserve(raw_units(data), &[]) {
            Some(reservation) => (reservation, Vec::new()),
            // Near full: only the compressed size decides.
            None => self.reserve_compressed(offset, data, &mut effort).await?,
        };
        let mut batches = batches.into_iter();
        for (at, piece) in pieces(offset, data) {
            let mut batch = batches.next().unwrap_or_else(Batch::take);
            batch.reserved = true;
            self.write_piece(at, piece, batch, &mut effort).await?;
            // What was written counts as live. Only the rest stays reserved.
            reservation.keep(match batches.len() {
                0 => raw_units(&data[(at - offset) as usize + piece.len()..]),
                _ => data_units(batches.as_slice()),
            });
            yield_now().await;
        }
        Ok(())
    }

    /// Compresses all pieces and reserves what they take. Returns them as batches, too.
    async fn reserve_compressed(
        &self,
        offset: u64,
        data: &[u8],
        effort: &mut Effort,
    ) -> Result<(Reservation<'_, M>, Vec<Batch>), Error> {
        let mut batches = Vec::new();
        for (at, piece) in pieces(offset, data) {
            let mut batch = Batch::take();
            self.prepare(&mut batch, at, piece).await?;
            batches.push(batch);
            yield_now().await;
        }
        let reservation = match self.0.reserve(data_units(&batches), &batches, effort.cleaning(false)).await {
            Err(Error::NoSpace) => self.reserve_densely(offset, data, &mut batches, effort).await?,
            reserved => reserved?,
        };
        Ok((reservation, batches))
    }

    /// Packs all pieces as small as possible, once more if retired dictionaries make them smaller, and
    /// reserves what they take.
    async fn reserve_densely(
        &self,
        offset: u64,
        data: &[u8],
        batches: &mut [Batch],
        effort: &mut Effort,
    ) -> Result<Reservation<'_, M>, Error> {
        let mut again = true;
        loop {
            for (batch, (at, piece)) in batches.iter_mut().zip(pieces(offset, data)) {
                batch.clear();
                self.prepare_densely(batch, at, piece).await?;
                yield_now().await;
            }
            match self.0.reserve(data_units(batches), batches, effort.cleaning(true)).await {
                Err(Error::NoSpace) if std::mem::take(&mut again) => {}
                reserved => return reserved,
            }
            let mut any = false;
            for (batch, (at, piece)) in batches.iter().zip(pieces(offset, data)) {
                any |= self.bring_back_dictionaries(at, piece, batch).await?;
            }
            if !any {
                return Err(Error::NoSpace);
            }
        }
    }

    /// Writes one piece with a batch, which may be prepared already.
    async fn write_piece(
        &self,
        offset: u64,
        data: &[u8],
        mut batch: Batch,
        effort: &mut Effort,
    ) -> Result<(), Error> {
        let reserved = batch.reserved;
        let mut turn = Turn::new(&self.0);
        let mut densely = batch.dense;
        let mut brought_back = false;
        let result = loop {
            if batch.items.is_empty() && batch.expected.is_empty() {
                let prepared = match densely {
                    false => self.prepare(&mut batch, offset, data).await,
                    true => self.prepare_densely(&mut batch, offset, data).await,
                };
                if let Err(error) = prepared {
                    break Err(error);
                }
            }
            // What was not packed as small as possible comes again.
            match self.0.append(&batch, data, effort.cleaning(batch.dense), turn.holds()).await {
                Ok(true) => break Ok(()),
                Ok(false) => turn.lost(&batch).await,
                Err(Error::NoSpace) if !densely => densely = true,
                Err(Error::NoSpace) if !std::mem::replace(&mut brought_back, true) => {
                    match self.bring_back_dictionaries(offset, data, &batch).await {
                        Ok(true) => {}
                        Ok(false) => break Err(Error::NoSpace),
                        Err(error) => break Err(error),
                    }
                }
                Err(error) => break Err(error),
            }
            batch.clear();
            batch.reserved = reserved;
        };
        batch.give_back();
        result
    }

    /// Fills a batch from the host's bytes: whole blocks as they are, the edges merged with present contents.
    async fn prepare(&self, batch: &mut Batch, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut plan = self.0.plan_offload();
        self.gather(batch, plan.as_mut(), offset, data).await?;
        if let Some(plan) = plan {
            Box::pin(plan.execute(batch, data)).await;
        }
        Ok(())
    }

    /// Collects the blocks: in the plan of an offload if there is one, otherwise compressed in the batch.
    async fn gather(
        &self,
        batch: &mut Batch,
        mut plan: Option<&mut Plan>,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Error> {
        let end = offset + data.len() as u64;
        let (whole_from, whole_to) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        let at = |position: u64| (position - offset) as usize;
        if whole_from > whole_to {
            // Inside one block.
            return self
                .merge(batch, plan, offset, |block, from| {
                    block[from..from + data.len()].copy_from_slice(data)
                })
                .await;
        }
        if offset < whole_from {
            let head = &data[..at(whole_from)];
            self.merge(batch, plan.as_deref_mut(), offset, |block, from| block[from..].copy_from_slice(head))
                .await?;
        }
        if whole_from < whole_to {
            let whole = at(whole_from)..at(whole_to);
            let from = Some(whole.start);
            self.0.sampler.offer(&data[whole.clone()]);
            match &mut plan {
                Some(plan) => plan.add_run(whole_from / BLOCK, &data[whole], from),
                None => batch.add_run(&self.0.recipe(), whole_from / BLOCK, &data[whole], from),
            }
        }
        if whole_to < end {
            let tail = &data[at(whole_to)..];
            self.merge(batch, plan, whole_to, |block, _| block[..tail.len()].copy_from_slice(tail)).await?;
        }
        Ok(())
    }

    /// Adds the block at `offset` to a batch, or to the plan for it, as it will be after `change` (which gets
    /// the block and the offset in it).
    pub(crate) async fn merge(
        &self,
        batch: &mut Batch,
        plan: Option<&mut Plan>,
        offset: u64,
        change: impl FnOnce(&mut [u8], usize),
    ) -> Result<(), Error> {
        let block = offset / BLOCK;
        let mut bytes = vec![0; BLOCK_BYTES];
        let seen = self.0.read_block(block, &mut bytes).await?;
        change(&mut bytes, (offset % BLOCK) as usize);
        match plan {
            Some(plan) => plan.add_merged(batch, &bytes, seen),
            None => batch.add_merged(&self.0.recipe(), &bytes, seen),
        }
        Ok(())
    }
}

/// The atomic pieces of a request, with their offsets.
fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    (offset..).step_by(ATOMIC_WRITE_BYTES).zip(data.chunks(ATOMIC_WRITE_BYTES))
}

/// Most units that data can take.
fn raw_units(data: &[u8]) -> u64 {
    let blocks = data.len() as u64 / BLOCK + 1 + 2 * data.len().div_ceil(ATOMIC_WRITE_BYTES) as u64;
    blocks * ((BLOCK_BYTES + RECORD_HEADER_BYTES) / UNIT_BYTES) as u64
}

fn data_units(batches: &[Batch]) -> u64 {
    batches.iter().map(Batch::data_units).sum()
}

/// Live units promised to a request; given back when dropped.
pub(crate) struct Reservation<'a, M: Media> {
    shared: &'a Shared<M>,
    units: u64,
}

impl<M: Media> Reservation<'_, M> {
    /// Gives back what is reserved in addition to `units`.
    fn keep(&mut self, units: u64) {
        let given_back = self.units.saturating_sub(units);
        self.units -= given_back;
        self.shared.core().reserved_units -= given_back;
    }
}

impl<M: Media> Drop for Reservation<'_, M> {
    fn drop(&mut self) {
        self.shared.core().reserved_units -= self.units;
    }
}

impl<M: Media> Shared<M> {
    fn try_reserve(&self, units: u64, batches: &[Batch]) -> Option<Reservation<'_, M>> {
        let units = self.core().reserve(units, batches)?;
        Some(Reservation { shared: self, units })
    }

    /// Reserves live units. If necessary, makes the accounting exact first.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        units: u64,
        batches: &[Batch],
        effort: &mut Effort,
    ) -> Result<Reservation<'_, M>, Error> {
        loop {
            if let Some(reservation) = self.try_reserve(units, batches) {
                return Ok(reservation);
            }
            if !self.refine_accounts(effort).await? {
                return Err(Error::NoSpace);
            }
        }
    }
}
