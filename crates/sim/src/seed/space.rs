//! The oracle of space: the space reported by a drive is correct, and a full drive still works.
//!
//! On a quiet drive without faults:
//!
//! 1. **Free space can be used.** `physical_free_bytes` and `physical_reclaimable_bytes` together are the
//!    space for new data. Incompressible data, in blocks that hold nothing, takes at least 98 % of that
//!    before it is refused, less two segments for the map and the ends of segments.
//! 2. **Maintenance makes nothing larger.** `physical_used_bytes` does not grow by cleaning and checkpoints
//!    alone, not even after a change of the codec. Map nodes are an exception, because they may be encoded
//!    again. (The rule does not apply if dictionaries are replaced: data that needs a retired dictionary is
//!    compressed again.)
//! 3. **A full drive works.** Overwriting in place succeeds, with the same data, whatever codec and
//!    dictionaries are in use now, and with data that takes no more space. So do TRIM of whole blocks and of
//!    whole leaves, and FLUSH. All of this holds at once, after a crash, and however often the drive is
//!    opened.
//! 4. **Maintenance ends.** A quiet drive, full or not, reaches a state with nothing left to do. It does not
//!    wear its medium for ever.
//! 5. **What is free is given back.** After ten quiet seconds the backing holds no more than the segments
//!    that are not free, whatever earlier lives wrote and discarded (`held.rs`).
//!
//! On every drive, with faults or without, used exceeds the limit by at most 1/256 of it, and the parts of
//! the space fit together ([`Space::check`]).
//!
//! Writes go to the annex, which no client touches, and are recorded in the
//! [`Ledger`](crate::ledger::Ledger).

use super::{Run, Stop};
use crate::content::Filler;
use crate::ledger::{BLOCK_BYTES, Piece};
use crate::subject::Space;
use crate::{Error, Style, Subject};

/// Bytes of an incompressible block with its header.
const RAW_BYTES: u64 = BLOCK_BYTES + 16;
/// Least share of the reported free space that must be usable.
const TAKEN_PERCENT_MIN: u64 = 98;
/// Number of segments that may stay partly filled, or be used for the map.
const SEGMENTS_SPARE: u64 = 2;
/// Most bytes of a map node.
const NODE_BYTES_MAX: u64 = 5200;
/// Number of pieces of maintenance after which a quiet drive should have nothing left to do, in most cases.
const MAINTENANCE_MAX: u32 = 256;
/// The strict limit for each of its segments: enough to move all data twenty times.
const MAINTENANCE_A_SEGMENT_MAX: u32 = 40;
/// Number of blocks whose size differs from that of others of their kind by less than an incompressible block
/// takes.
const ALIKE_BLOCKS: u64 = 16;
/// Blocks per leaf of the map.
const LEAF_BLOCKS: u64 = 512;
/// Most segments cleaned to check that cleaning does not make their content larger.
const CLEANINGS_MAX: u64 = 80;
/// Blocks read back at once.
const READ_BLOCKS: u64 = 64;

impl<S: Subject> Run<S> {
    /// Returns whether the rules of space apply to this seed's drives: no faults take space away from them.
    pub(super) fn has_space_rules(&self) -> bool {
        S::HAS_SPACE && !self.config.is_faulty()
    }

    /// Checks some of the rules, in some cases. The drive is quiet.
    pub(super) fn probe_space(&mut self) -> Result<(), Stop> {
        // Cleaning is most likely to make data larger where parts of frames die.
        let is_framed = self.config.style == Style::Frames;
        if !self.has_space_rules()
            || self.config.is_roomy
            || !(is_framed && self.rng.chance(1, 2) || self.rng.chance(1, 5))
        {
            return Ok(());
        }
        if is_framed || self.rng.chance(1, 2) {
            self.maintenance_must_not_grow()?;
        }
        if self.rng.chance(1, 2) {
            self.free_must_be_had()?;
            if self.rng.chance(1, 2) {
                self.full_must_serve()?;
            }
            if self.rng.chance(1, 4) {
                self.maintenance_must_end()?;
            }
            for _ in 0..if self.rng.chance(1, 2) { self.rng.below(6) } else { 0 } {
                self.reopen()?;
                self.full_must_serve()?;
            }
        }
        if self.rng.chance(2, 3) {
            self.give_annex_up()?;
        }
        if self.rng.chance(1, 2) { self.free_must_be_given_back() } else { Ok(()) }
    }

    /// Crashes and opens a drive whose state the oracle already knows.
    pub(super) fn reopen(&mut self) -> Result<(), Stop> {
        self.crash();
        self.open()?;
        self.count("space: opened again with data in the annex");
        self.read_annex()
    }

    pub(super) fn space(&self) -> Result<Space, Stop> {
        let space = self.drive.as_ref().and_then(S::space);
        space.ok_or_else(|| Stop::Failed("an open drive reports no space".into()))
    }

    /// Checks rule 2.
    pub(super) fn maintenance_must_not_grow(&mut self) -> Result<(), Stop> {
        // The improver of a served drive does not stop.
        if self.config.is_training() || self.config.is_served() {
            return Ok(());
        }
        self.flush_quietly()?;
        if self.config.changes_codec() {
            self.put_holed_frames()?;
            // Data that is packed again now mostly becomes larger.
            let policy = self.config.draw_other_codec(&mut self.rng);
            self.run("change of codec", move |drive| async move { drive.set_codec(policy).await })?;
            self.count("space: codec changed on a quiet drive");
        }
        self.run("checkpoint", |drive| async move { drive.checkpoint().await })?;
        let before = self.space()?;
        let cleanings = 1 + self.rng.below((2 * before.segments).min(CLEANINGS_MAX));
        for _ in 0..cleanings {
            match self.attempt("clean", |drive| async move { drive.clean().await })? {
                Ok(true) => self.count("space: segment cleaned on a quiet drive"),
                // A full drive may have no space to move anything to.
                Ok(false) | Err(Error::NoSpace) => break,
                Err(error) => return Err(self.unexpected("clean", &error)),
            }
            if self.rng.chance(1, 4) {
                self.run("checkpoint", |drive| async move { drive.checkpoint().await })?;
            }
        }
        self.maintain_quietly(MAINTENANCE_MAX)?;
        self.run("checkpoint", |drive| async move { drive.checkpoint().await })?;
        let after = self.space()?;
        let allowed = before.used_bytes + self.map_bytes_max();
        self.count("space: maintenance watched");
        if after.used_bytes > allowed {
            return Err(Stop::Failed(format!(
                "maintenance of a quiet drive made what is used grow from {} to {} bytes",
                before.used_bytes, after.used_bytes
            )));
        }
        Ok(())
    }

    /// Writes frames to the annex, and trims parts of them: cleaning may pack what is left anew.
    fn put_holed_frames(&mut self) -> Result<(), Stop> {
        const FRAME: u64 = 8;
        self.run("change of codec", |drive| async move { drive.set_codec(codec::Policy::Zstd(1)).await })?;
        for _ in 0..self.rng.below(64) {
            let first = self.ledger.fresh_block().next_multiple_of(FRAME);
            if first + FRAME > self.config.annex_end_block() {
                break;
            }
            let filler = [Filler::Text, Filler::Mixed][self.rng.index(2)];
            let piece = self.ledger.draft(first, FRAME, filler);
            match self.put(piece, false)? {
                Ok(()) => {}
                Err(Error::NoSpace) => break,
                Err(error) => return Err(self.unexpected("write", &error)),
            }
            let (hole, count) = (self.rng.below(FRAME / 2), 1 + self.rng.below(FRAME / 2));
            self.trim(first + hole, count, false)?;
            self.count("space: frame with a hole");
        }
        self.flush_quietly()
    }

    /// Most bytes that the whole map takes.
    fn map_bytes_max(&self) -> u64 {
        let (_, blocks) = self.ledger.used();
        let leaves = self.oracle.lock().leaves() + blocks / LEAF_BLOCKS + 1;
        (leaves + leaves / 64 + 4) * NODE_BYTES_MAX
    }

    /// Checks rule 1. The drive is full afterwards, or as full as the annex allows.
    pub(super) fn free_must_be_had(&mut self) -> Result<(), Stop> {
        self.flush_quietly()?;
        self.run("checkpoint", |drive| async move { drive.checkpoint().await })?;
        let reported = self.space()?;
        let promised = reported.free_bytes + reported.reclaimable_bytes;
        let mut blocks = 1 << self.rng.below(7);
        let maintenance = [0, 1, 4][self.rng.index(3)];
        let to_refusal = self.rng.chance(1, 2);
        // Each write is in a separate pack, with unused space after it.
        let fua = self.rng.chance(1, 4);
        let mut taken = 0;
        let mut rested = false;
        while to_refusal || taken < promised {
            if self.ledger.fresh_block() + blocks > self.config.annex_end_block() {
                self.count("space: annex used up");
                return Ok(());
            }
            let piece = self.ledger.draft(self.ledger.fresh_block(), blocks, Filler::Random);
            match self.put(piece, fua)? {
                Ok(()) => {
                    taken += blocks * RAW_BYTES;
                    rested = false;
                    self.maintain_quietly(maintenance)?;
                }
                Err(Error::NoSpace) if !rested => {
                    self.maintain_quietly(MAINTENANCE_MAX)?;
                    rested = true;
                }
                Err(Error::NoSpace) if blocks > 1 => blocks /= 2,
                Err(Error::NoSpace) => {
                    self.is_full = true;
                    self.count("space: filled to refusal on a quiet drive");
                    break;
                }
                Err(error) => return Err(self.unexpected("write", &error)),
            }
        }
        self.count("space: what was free was taken");
        let map = if self.config.style == Style::Sparse { self.map_bytes_max() } else { 0 };
        let spare = SEGMENTS_SPARE * reported.segment_bytes + map;
        if taken + spare < promised * TAKEN_PERCENT_MIN / 100 {
            return Err(Stop::Failed(format!(
                "of {promised} bytes reported as free ({} free, {} reclaimable, {} used) only {taken} could be taken",
                reported.free_bytes, reported.reclaimable_bytes, reported.used_bytes
            )));
        }
        Ok(())
    }

    /// Checks rule 3, if the drive is full.
    pub(super) fn full_must_serve(&mut self) -> Result<(), Stop> {
        if !self.is_full {
            return Ok(());
        }
        for _ in 0..1 + self.rng.below(8) {
            let number = self.rng.next_u64() >> 32;
            let Some(piece) = self.ledger.intact(number) else { continue };
            match self.rng.below(4) {
                0 => self.trim_some(piece)?,
                1 => self.overwrite_alike(piece)?,
                _ => self.overwrite_in_place(piece)?,
            }
            if self.rng.chance(1, 4) {
                self.flush_quietly()?;
            }
            let maintenance = self.rng.skewed(3) as u32;
            self.maintain_quietly(maintenance)?;
        }
        Ok(())
    }

    /// Writes the same bytes again, or others that take as much space. It must not be refused.
    pub(super) fn overwrite_in_place(&mut self, piece: Piece) -> Result<(), Stop> {
        let filler = self.ledger.filler(piece.version);
        // The stamps of its sectors may have been compressed better by another codec than the current one.
        let is_the_same = filler.is_incompressible() && !self.config.changes_codec();
        let again = match self.rng.chance(1, 2) && is_the_same {
            true => self.ledger.draft(piece.first, piece.count, filler),
            false => piece,
        };
        let fua = self.rng.chance(1, 4);
        let result = self.put(again, fua)?;
        self.count("space: overwritten in place on a full drive");
        result.map_err(|error| {
            Stop::Failed(format!(
                "overwriting {} blocks at block {} in place on a full drive, by data that takes as much ({filler:?}), \
                 was refused: {error}",
                piece.count, piece.first
            ))
        })
    }

    /// Writes other data of the same kind, after incompressible blocks were trimmed. It must not be refused,
    /// because the trim freed more space than the sizes of such data differ by.
    pub(super) fn overwrite_alike(&mut self, piece: Piece) -> Result<(), Stop> {
        let filler = self.ledger.filler(piece.version);
        // With another codec, or without the dictionary that suited them, other bytes may take more space.
        let changes = self.config.changes_codec() || self.config.is_training();
        if changes || filler.is_incompressible() {
            return Ok(());
        }
        let number = self.rng.next_u64() >> 32;
        let Some(room) = self.ledger.intact(number).filter(|other| other.first != piece.first) else {
            return Ok(());
        };
        let blocks = piece.count.div_ceil(ALIKE_BLOCKS);
        if !self.ledger.filler(room.version).is_incompressible() || room.count < blocks {
            return Ok(());
        }
        self.trim(room.first, blocks, false)?;
        let other = self.ledger.draft(piece.first, piece.count, filler);
        let result = self.put(other, false)?;
        self.count("space: overwritten by data of the same kind on a full drive");
        result.map_err(|error| {
            Stop::Failed(format!(
                "overwriting {} blocks at block {} of a full drive by data of the same kind ({filler:?}) was refused, \
                 although blocks were given up before: {error}",
                piece.count, piece.first
            ))
        })
    }

    /// Trims a part of a piece, its leaf, or all of it. It must not be refused.
    pub(super) fn trim_some(&mut self, piece: Piece) -> Result<(), Stop> {
        let (first, count) = match self.rng.below(6) {
            0 => (piece.first, piece.count),
            1 if piece.first / LEAF_BLOCKS * LEAF_BLOCKS >= self.ledger.used().0 => {
                (piece.first / LEAF_BLOCKS * LEAF_BLOCKS, LEAF_BLOCKS)
            }
            _ => (piece.first + self.rng.below(piece.count), 1),
        };
        let fua = self.rng.chance(1, 4);
        self.trim(first, count, fua)?;
        self.count(if count == LEAF_BLOCKS {
            "space: a leaf trimmed on a full drive"
        } else {
            "space: blocks trimmed on a full drive"
        });
        Ok(())
    }

    /// Trims blocks of the annex, which must not fail.
    pub(super) fn trim(&mut self, first: u64, count: u64, fua: bool) -> Result<(), Stop> {
        let (offset, len) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
        let result = self.attempt("trim", |drive| async move { drive.trim(offset, len, fua).await })?;
        self.trace(|| format!("annex: trim of {count} blocks at {first}, fua {fua}: {result:?}"));
        self.ledger.zeroed(first, count);
        if fua && result.is_ok() {
            self.ledger.flushed();
        }
        result.map_err(|error| {
            Stop::Failed(format!("a trim of {count} whole blocks at block {first} was refused: {error}"))
        })
    }

    /// Trims the whole annex.
    pub(super) fn give_annex_up(&mut self) -> Result<(), Stop> {
        let (first, count) = self.ledger.used();
        if self.ledger.mapped_blocks() == 0 {
            return Ok(());
        }
        // In whole leaves.
        self.trim(first, count.next_multiple_of(LEAF_BLOCKS), true)?;
        self.is_full = false;
        self.count("space: annex given up");
        self.maintain_quietly(MAINTENANCE_MAX)
    }

    /// Writes a piece. Returns the drive's result.
    pub(super) fn put(&mut self, piece: Piece, fua: bool) -> Result<Result<(), Error>, Stop> {
        let (data, offset) = (self.ledger.data(&piece), piece.offset());
        let result = self.attempt("write", |drive| async move { drive.write(offset, &data, fua).await })?;
        self.trace(|| {
            format!("annex: write of {} blocks at {}, fua {fua}: {result:?}", piece.count, piece.first)
        });
        if result.is_ok() {
            self.ledger.wrote(piece);
            if fua || !self.config.write_cache {
                self.ledger.flushed();
            }
        }
        Ok(result)
    }

    pub(super) fn flush_quietly(&mut self) -> Result<(), Stop> {
        let began = self.oracle.lock().begin_flush();
        self.run("flush", |drive| async move { drive.flush().await })?;
        self.oracle.lock().end_flush(began);
        self.ledger.flushed();
        Ok(())
    }

    /// Runs maintenance up to `most` times, until there is nothing to do.
    pub(super) fn maintain_quietly(&mut self, most: u32) -> Result<(), Stop> {
        for _ in 0..most {
            if !self.run("maintain", |drive| async move { drive.maintain().await })? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Checks rule 4.
    pub(super) fn maintenance_must_end(&mut self) -> Result<(), Stop> {
        // The smaller the map's memory and the records, the more checkpoints are written for each cleaned
        // segment.
        let times = match self.config.scattered {
            true if self.config.record_bytes < BLOCK_BYTES as usize => 16,
            true => 4,
            false => 1,
        };
        let most = MAINTENANCE_A_SEGMENT_MAX * times * self.space()?.segments as u32;
        for _ in 0..most {
            if !self.run("maintain", |drive| async move { drive.maintain().await })? {
                self.count("space: maintenance of a quiet drive ended");
                return Ok(());
            }
        }
        Err(Stop::Failed(format!("maintenance of a quiet drive has not ended after {most} pieces of work")))
    }

    /// Compares the content of the annex with the ledger, or parts of it if it is large.
    pub(super) fn read_annex(&mut self) -> Result<(), Stop> {
        if !self.config.is_troubled {
            return self.read_whole_annex();
        }
        if self.is_damaged() || self.is_unreadable() { Ok(()) } else { self.read_samples() }
    }

    /// Compares the content of the annex with the ledger.
    pub(super) fn read_whole_annex(&mut self) -> Result<(), Stop> {
        if self.is_damaged() || self.is_unreadable() {
            return Ok(());
        }
        let (first, count) = self.ledger.used();
        for from in (first..first + count).step_by(READ_BLOCKS as usize) {
            self.read_annex_at(from, READ_BLOCKS.min(first + count - from))?;
        }
        Ok(())
    }

    pub(super) fn read_annex_at(&mut self, first: u64, count: u64) -> Result<(), Stop> {
        let data = self.run("read of the annex", move |drive| async move {
            let mut data = vec![0xee; (count * BLOCK_BYTES) as usize];
            drive.read(first * BLOCK_BYTES, &mut data).await.map(|()| data)
        })?;
        Ok(self.ledger.observe(first, &data)?)
    }

    /// Does something with the drive that must not fail.
    fn run<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(S) -> F,
    ) -> Result<T, Stop> {
        self.attempt(what, work)?.map_err(|error| self.unexpected(what, &error))
    }

    pub(super) fn attempt<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(S) -> F,
    ) -> Result<Result<T, Error>, Stop> {
        match self.drive.clone() {
            Some(drive) => self.do_now(what, work(drive)),
            None => Err(Stop::Failed(format!("{what}: no drive is open"))),
        }
    }

    fn unexpected(&self, what: &str, error: &Error) -> Stop {
        Stop::Failed(format!("{what} on a quiet drive failed, and nothing excuses it: {error}"))
    }
}
