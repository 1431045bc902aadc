//! A drive filled to the brim: over 98 % of what it can hold lives, and hundreds of random overwrites of
//! equal size follow. It is quiet, and its backing has no faults.
//!
//! 1. **No write is refused.** Each takes as much as what it replaces.
//! 2. **Cleaning keeps to what the free share demands.** Let d be the dead share of the segments that may be
//!    cleaned. The one with least to move is at most as full as the average, so cleaning moves at most 1 - d
//!    for each d that it gains: all in all the medium takes at most 1 / d bytes for each byte of the host.
//!    What is neither live, nor kept free (the floor of the host's head, two segments and the stock), nor in
//!    the heads (one that each fills, and the next), is dead:
//!
//!    d = (segments - live - floor - 2 - stock - 6) / segments
//!
//!    With the usual reserve 1 / d is 14 to 18. Measured on drives of 200 to 300 segments: up to 1.02 / d for
//!    writes of 16 KiB, with all that packs and checkpoints add; 0.2 / d for 64 KiB and 256 KiB, whose
//!    segments die in large parts.
//! 3. **No write waits for long.** While one waits, the medium takes a bounded number of bytes. Background
//!    work keeps a stock of segments: then a write waits for at most one segment, which costs 1 / d segments.
//!    Without it, a write makes room for itself and the next few: at most four segments are gained meanwhile.
//!    Measured: up to 0.3 / d and 2.1 / d.

use super::{Run, Stop};
use crate::content::Filler;
use crate::ledger::BLOCK_BYTES;
use crate::subject::Space;
use crate::{Error, Subject};

/// Blocks of a write that fills the drive.
const FILL_BLOCKS: u64 = 64;
/// Blocks of an overwrite. One of them is drawn. The fewer, the more cleaning has to do.
const OVERWRITE_BLOCKS: [u64; 4] = [4, 4, 16, 64];
/// Share of the limit that lives, per mille. One of them is drawn.
const FULL_PER_MILLE: [u64; 4] = [981, 985, 990, 995];
/// Fewest and most overwrites.
const WRITES: (u64, u64) = (200, 1000);
/// Most bytes that the medium takes for each byte of the host, in units of 1 / d.
const WRITTEN_MAX: f64 = 1.5;
/// Most segments gained while a write waits, if background work keeps a stock, and if there is none.
const GAINED_MAX: (f64, f64) = (1.0, 4.0);
/// Segments that the three heads fill, and the next ones.
const OF_HEADS: u64 = 6;

impl<S: Subject> Run<S> {
    /// Fills the drive to the brim, overwrites it, and checks the rules.
    pub(super) fn overwrite_at_the_brim(&mut self) -> Result<(), Stop> {
        let Some(places) = self.fill_to_the_brim()? else { return Ok(()) };
        let blocks = OVERWRITE_BLOCKS[self.brim.index(OVERWRITE_BLOCKS.len())];
        let upkeep = self.brim.below(3) as u32;
        let space = self.space()?;
        let room_bytes = u64::from(self.config.parity.room_bytes(self.config.segment_bytes));
        let dead = dead_share(&space, room_bytes);
        let segment_bytes = space.segment_bytes as f64;
        let gained_max = if upkeep > 0 { GAINED_MAX.0 } else { GAINED_MAX.1 };
        // Twice what fits before cleaning begins.
        let spare_bytes = space.segments * room_bytes - space.used_bytes;
        let writes = (2 * spare_bytes / (blocks * BLOCK_BYTES)).clamp(WRITES.0, WRITES.1);
        let began = self.overwrites.written_bytes();
        for _ in 0..writes {
            let place = places[self.brim.index(places.len())];
            let first = place + self.brim.below(FILL_BLOCKS / blocks) * blocks;
            let piece = self.ledger.draft(first, blocks, Filler::Random);
            let before = self.overwrites.written_bytes();
            self.put(piece, false)?.map_err(|error| {
                Stop::Failed(format!("an overwrite of a drive filled to the brim failed: {error}"))
            })?;
            let waited = (self.overwrites.written_bytes() - before) as f64 / segment_bytes;
            if waited > gained_max / dead {
                return Err(Stop::Failed(format!(
                    "while a write of {blocks} blocks waited, {waited:.1} segments were written: more than {:.1}",
                    gained_max / dead
                )));
            }
            self.maintain_quietly(upkeep)?;
        }
        self.flush_quietly()?;
        let of_host = writes * blocks * BLOCK_BYTES;
        let written = (self.overwrites.written_bytes() - began) as f64 / of_host as f64;
        self.trace(|| {
            format!("brim: {writes} of {blocks} blocks, 1/d {:.1}: {written:.1} bytes a byte", 1.0 / dead)
        });
        if written > WRITTEN_MAX / dead {
            return Err(Stop::Failed(format!(
                "{written:.1} bytes were written for each byte of {writes} overwrites of {blocks} blocks: more than \
                 {:.1}",
                WRITTEN_MAX / dead
            )));
        }
        self.count("brim: over 98 % full, overwritten hundreds of times");
        self.check(false)?;
        self.read_annex()
    }

    /// Fills the drive until more than 98 % of its limit live. Returns the first blocks of the writes, or
    /// `None` if the annex does not suffice.
    fn fill_to_the_brim(&mut self) -> Result<Option<Vec<u64>>, Stop> {
        let per_mille = FULL_PER_MILLE[self.brim.index(FULL_PER_MILLE.len())];
        let mut places = Vec::new();
        loop {
            let Space { used_bytes, free_bytes, reclaimable_bytes, .. } = self.space()?;
            let limit = used_bytes + free_bytes + reclaimable_bytes;
            if used_bytes * 1000 >= limit * per_mille {
                return Ok(Some(places));
            }
            let first = self.ledger.fresh_block();
            if first + FILL_BLOCKS > self.config.annex_end_block() {
                self.count("brim: annex used up");
                return Ok(None);
            }
            let piece = self.ledger.draft(first, FILL_BLOCKS, Filler::Random);
            match self.put(piece, false)? {
                Ok(()) => places.push(first),
                Err(Error::NoSpace) => {
                    let why = format!("a quiet drive takes no more: {used_bytes} of {limit} bytes are used");
                    return Err(Stop::Failed(why));
                }
                Err(error) => return Err(Stop::Failed(format!("filling a drive failed: {error}"))),
            }
            self.maintain_quietly(1)?;
        }
    }
}

/// Returns d: see the top of the file.
fn dead_share(space: &Space, room_bytes: u64) -> f64 {
    let Space { segments, used_bytes, .. } = *space;
    let live = used_bytes as f64 / room_bytes as f64;
    let floor = (segments / 100).max(4);
    let left = segments.saturating_sub(live.ceil() as u64 + floor);
    let stock = (segments / 20).min(left / 4).max(3);
    (segments as f64 - live - (floor + 2 + stock + OF_HEADS) as f64) / segments as f64
}
