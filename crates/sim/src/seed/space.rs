//! The oracle of space: what a drive says of it is so, and a full drive still serves.
//!
//! On a quiet drive without faults:
//!
//! 1. **What is free can be taken.** `physical_free_bytes` and `physical_reclaimable_bytes` together are what new data may
//!    still occupy. Incompressible data, in blocks that hold nothing, takes at least 98 % of that before it is refused, less
//!    two segments for the map and the ends of segments.
//! 2. **Maintenance makes nothing larger.** `physical_used_bytes` does not grow by cleaning and checkpoints alone, also after a
//!    change of the codec, but for map nodes, which may be coded anew. (With dictionaries that come and go there is no such
//!    rule: what needs one that is retired is compressed anew.)
//! 3. **A full drive serves.** Overwriting in place succeeds: with what is there, whatever codec and dictionaries are now, and by
//!    data that takes no more. So do TRIM of whole blocks and of whole leaves, and FLUSH: at once, after a crash, and however
//!    often the drive is opened.
//! 4. **Maintenance ends.** A quiet drive, full or not, comes to have nothing to do: it does not wear its medium for ever.
//!
//! Writes go to the annex, which no client touches, and are accounted in the [`Ledger`](crate::ledger::Ledger).

use drive::Error;

use super::{Run, Stop};
use crate::content::Filler;
use crate::ledger::{BLOCK_BYTES, Piece};
use crate::subject::Space;
use crate::{Style, Subject};

/// Of an incompressible block with its header, in bytes.
const RAW_BYTES: u64 = BLOCK_BYTES + 16;
/// What must be had of what is told to be free.
const TAKEN_PERCENT_MIN: u64 = 98;
/// Segments that may stay partly filled, or go to the map.
const SEGMENTS_SPARE: u64 = 2;
/// Of a map node, at most.
const NODE_BYTES_MAX: u64 = 5200;
/// Pieces of maintenance after which a quiet drive should have nothing left to do, mostly.
const MAINTENANCE_MAX: u32 = 256;
/// The same, for each of its segments: enough to move all data twenty times.
const MAINTENANCE_A_SEGMENT_MAX: u32 = 40;
/// Blocks that differ from others of their kind by less than an incompressible block takes.
const ALIKE_BLOCKS: u64 = 16;
/// Blocks of a leaf of the map.
const LEAF_BLOCKS: u64 = 512;
/// Most segments cleaned to see whether that makes what they hold larger.
const CLEANINGS_MAX: u64 = 80;
/// Blocks read back at once.
const READ_BLOCKS: u64 = 64;

impl<S: Subject> Run<S> {
    /// Whether the rules of space hold on this seed's drives: nothing takes space away from them.
    pub(super) fn has_space_rules(&self) -> bool {
        S::HAS_SPACE && !self.config.is_faulty()
    }

    /// Puts some of the rules to the test, now and then. The drive is quiet.
    pub(super) fn probe_space(&mut self) -> Result<(), Stop> {
        // Where parts of frames die, cleaning them is the most likely to make them larger.
        let is_framed = self.config.style == Style::Frames;
        if !self.has_space_rules() || !(is_framed && self.rng.chance(1, 2) || self.rng.chance(1, 5)) {
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
        if self.rng.chance(2, 3) { self.give_annex_up() } else { Ok(()) }
    }

    /// A crash and another opening of a drive to which nothing happened that the oracle does not know of already.
    pub(super) fn reopen(&mut self) -> Result<(), Stop> {
        self.crash();
        self.open()?;
        self.count("space: opened again with data in the annex");
        self.read_annex()
    }

    pub(super) fn space(&self) -> Result<Space, Stop> {
        let space = self.drive.as_ref().and_then(S::space);
        space.ok_or_else(|| Stop::Failed("a drive that is open tells nothing of its space".into()))
    }

    /// Rule 2.
    pub(super) fn maintenance_must_not_grow(&mut self) -> Result<(), Stop> {
        // Who improves a served drive does not rest.
        if self.config.is_training() || self.config.is_served() {
            return Ok(());
        }
        self.flush_quietly()?;
        if self.config.changes_codec() {
            // Whatever is packed anew now is larger than it was, mostly.
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
                // A full drive may have no room to move anything to.
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

    /// What all of the map takes at most.
    fn map_bytes_max(&self) -> u64 {
        let (_, blocks) = self.ledger.used();
        let leaves = self.oracle.lock().leaves() + blocks / LEAF_BLOCKS + 1;
        (leaves + leaves / 64 + 4) * NODE_BYTES_MAX
    }

    /// Rule 1. Leaves the drive full, or as full as the annex allows.
    pub(super) fn free_must_be_had(&mut self) -> Result<(), Stop> {
        self.flush_quietly()?;
        self.run("checkpoint", |drive| async move { drive.checkpoint().await })?;
        let told = self.space()?;
        let promised = told.free_bytes + told.reclaimable_bytes;
        let mut blocks = 1 << self.rng.below(7);
        let maintenance = [0, 1, 4][self.rng.index(3)];
        let to_refusal = self.rng.chance(1, 2);
        // Each in a pack of its own, with a gap behind it.
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
        let spare = SEGMENTS_SPARE * told.segment_bytes + map;
        if taken + spare < promised * TAKEN_PERCENT_MIN / 100 {
            return Err(Stop::Failed(format!(
                "of {promised} bytes that were told to be free ({} free, {} reclaimable, {} used) only {taken} could be taken",
                told.free_bytes, told.reclaimable_bytes, told.used_bytes
            )));
        }
        Ok(())
    }

    /// Rule 3, if the drive is full.
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

    /// The same bytes again, or others that take as much: never refused.
    pub(super) fn overwrite_in_place(&mut self, piece: Piece) -> Result<(), Stop> {
        let filler = self.ledger.filler(piece.version);
        // What marks its sectors may have been made smaller by another codec than the one in use now.
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
                "overwriting {} blocks at block {} in place on a full drive, by data that takes as much ({filler:?}), was \
                 refused: {error}",
                piece.count, piece.first
            ))
        })
    }

    /// Other data of the same kind, after blocks were given up that compress not at all: never refused, as that makes more room than
    /// such data differs by.
    pub(super) fn overwrite_alike(&mut self, piece: Piece) -> Result<(), Stop> {
        let filler = self.ledger.filler(piece.version);
        // By another codec, or without the dictionary that fitted them, other bytes may take more.
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
                "overwriting {} blocks at block {} of a full drive by data of the same kind ({filler:?}) was refused, although \
                 blocks were given up before: {error}",
                piece.count, piece.first
            ))
        })
    }

    /// Some of a piece, its leaf, or all of it: never refused.
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

    /// Trims blocks of the annex, which never fails.
    pub(super) fn trim(&mut self, first: u64, count: u64, fua: bool) -> Result<(), Stop> {
        let (offset, len) = (first * BLOCK_BYTES, count * BLOCK_BYTES);
        let result = self.attempt("trim", |drive| async move { drive.trim(offset, len, fua).await })?;
        self.tell(|| format!("annex: trim of {count} blocks at {first}, fua {fua}: {result:?}"));
        self.ledger.zeroed(first, count);
        if fua && result.is_ok() {
            self.ledger.flushed();
        }
        result.map_err(|error| {
            Stop::Failed(format!("a trim of {count} whole blocks at block {first} was refused: {error}"))
        })
    }

    /// Trims all of the annex.
    pub(super) fn give_annex_up(&mut self) -> Result<(), Stop> {
        let (first, count) = self.ledger.used();
        if self.ledger.mapped_blocks() == 0 {
            return Ok(());
        }
        // By whole leaves.
        self.trim(first, count.next_multiple_of(LEAF_BLOCKS), true)?;
        self.is_full = false;
        self.count("space: annex given up");
        self.maintain_quietly(MAINTENANCE_MAX)
    }

    /// Writes a piece. Answers what the drive said.
    pub(super) fn put(&mut self, piece: Piece, fua: bool) -> Result<Result<(), Error>, Stop> {
        let (data, offset) = (self.ledger.data(&piece), piece.offset());
        let result = self.attempt("write", |drive| async move { drive.write(offset, &data, fua).await })?;
        self.tell(|| {
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

    /// Maintenance, up to so many times, until there is nothing to do.
    pub(super) fn maintain_quietly(&mut self, most: u32) -> Result<(), Stop> {
        for _ in 0..most {
            if !self.run("maintain", |drive| async move { drive.maintain().await })? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Rule 4.
    pub(super) fn maintenance_must_end(&mut self) -> Result<(), Stop> {
        // The smaller the map's memory, and the records, the more checkpoints there are beside each segment that is cleaned.
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

    /// Holds what the annex holds against the ledger.
    pub(super) fn read_annex(&mut self) -> Result<(), Stop> {
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
        self.ledger.observe(first, &data).map_err(Stop::Failed)
    }

    /// Does something with the drive that nothing excuses failing.
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
