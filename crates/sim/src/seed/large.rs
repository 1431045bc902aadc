//! A drive of some hundred segments with a reserve of only 7 %. It is filled, used a little, and opened
//! repeatedly while it is full.
//!
//! Requests are sent one at a time and recorded in the [`Ledger`](crate::ledger::Ledger). The rules are those
//! of [`super::space`]. Codec and frames stay the same in all lives, so that the same bytes take the same
//! space again.

use super::{Run, Stop};
use crate::content::Filler;
use crate::ledger::Piece;
use crate::{Error, Subject};

/// Blocks of a write that fills the drive: the largest atomic write.
const PIECE_BLOCKS: u64 = 64;
/// Blocks of a frame.
const GROUP_BLOCKS: u64 = 8;
/// Most groups that are discarded in part, and most segments cleaned to check that cleaning does not make
/// them larger. The limit saves time.
const GROUPS_UNRAVELLED_MAX: u64 = 1500;
/// Number of pieces read back after each opening.
const SAMPLES: u64 = 4;

impl<S: Subject> Run<S> {
    /// Runs a whole seed of this kind.
    pub(super) fn large_lives(&mut self) -> Result<(), Stop> {
        self.create()?;
        self.open()?;
        let percent = [60, 90, 101, 101][self.rng.index(4)];
        self.fill_large(percent)?;
        if self.rng.chance(2, 3) {
            self.unravel_some()?;
        }
        if self.rng.chance(1, 2) {
            self.maintenance_must_not_grow()?;
        }
        if self.rng.chance(3, 4) {
            self.free_must_be_had()?;
        }
        for _ in 0..4 * self.config.lives {
            self.end_large_life()?;
            self.open()?;
            self.count(if self.is_full { "large: opened full" } else { "large: opened" });
            self.read_samples()?;
            self.perhaps_hang()?;
            self.full_must_serve()?;
            if self.rng.chance(1, 8) {
                self.free_must_be_had()?;
            }
        }
        self.check(true)?;
        self.read_annex()?;
        self.give_annex_up()?;
        let piece = self.ledger.draft(self.ledger.fresh_block(), 1, Filler::Random);
        self.put(piece, true)?.map_err(|error| {
            Stop::Failed(format!("a drive from which everything was trimmed takes nothing: {error}"))
        })?;
        self.overwrite_at_the_brim()
    }

    /// Writes data of several kinds until the drive refuses, or this share of what it can hold is taken.
    pub(super) fn fill_large(&mut self, percent: u64) -> Result<(), Stop> {
        // Number of writes in 8 with blocks that compress only together, and with text.
        let (alike, text) = [(8, 0), (6, 1), (6, 0), (2, 2)][self.rng.index(4)];
        let maintenance = [0, 0, 1, 4][self.rng.index(4)];
        let limit = {
            let space = self.space()?;
            space.used_bytes + space.free_bytes + space.reclaimable_bytes
        };
        while self.ledger.fresh_block() + PIECE_BLOCKS <= self.config.annex_end_block() {
            if self.space()?.used_bytes * 100 > limit * percent {
                break;
            }
            let filler = match self.rng.below(8) {
                pick if pick < alike => Filler::draw_alike(&mut self.rng),
                pick if pick < alike + text => Filler::Mixed,
                _ => Filler::Random,
            };
            let piece = self.ledger.draft(self.ledger.fresh_block(), PIECE_BLOCKS, filler);
            match self.put(piece, false)? {
                Ok(()) => self.maintain_quietly(maintenance)?,
                Err(Error::NoSpace) => {
                    self.count("large: filled to refusal");
                    self.is_full = true;
                    break;
                }
                Err(error) => return Err(Stop::Failed(format!("filling a drive failed: {error}"))),
            }
        }
        self.flush_quietly()
    }

    /// Discards parts of frames, so that the way in which they are cleaned matters.
    fn unravel_some(&mut self) -> Result<(), Stop> {
        let mask: u8 = [0x55, 0xfe, 0x0f, 0x7f, 0x3c][self.rng.index(5)];
        let pieces: Vec<Piece> = self.ledger.pieces().to_vec();
        let groups = pieces.len() as u64 * PIECE_BLOCKS / GROUP_BLOCKS;
        for piece in pieces {
            let is_framed = !self.ledger.filler(piece.version).is_incompressible();
            if !is_framed || piece.count != PIECE_BLOCKS {
                continue;
            }
            for group in (piece.first..piece.first + piece.count).step_by(GROUP_BLOCKS as usize) {
                if !self.rng.chance(GROUPS_UNRAVELLED_MAX, groups) {
                    continue;
                }
                let mut at = 0;
                while at < GROUP_BLOCKS {
                    let run = u64::from((mask >> at).trailing_ones());
                    if run > 0 {
                        self.trim(group + at, run, false)?;
                        // The drive may not be full any more.
                        self.is_full = false;
                    }
                    at += run.max(1);
                }
                self.count("large: part of a frame trimmed");
            }
            let maintenance = self.rng.below(3) as u32;
            self.maintain_quietly(maintenance)?;
        }
        self.flush_quietly()
    }

    fn end_large_life(&mut self) -> Result<(), Stop> {
        if self.rng.chance(1, 8) {
            self.close_quietly()?;
        }
        self.crash();
        Ok(())
    }

    pub(super) fn read_samples(&mut self) -> Result<(), Stop> {
        let pieces = self.ledger.pieces().len();
        for _ in 0..SAMPLES {
            let Some(&piece) = self.ledger.pieces().get(self.rng.index(pieces.max(1))) else { return Ok(()) };
            self.read_annex_at(piece.first, piece.count)?;
        }
        Ok(())
    }
}
