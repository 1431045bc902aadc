//! A backing that completes nothing for minutes, while a host writes and asks for nothing to be durable.
//!
//! Writes are taken or wait, and what waits for the backing takes no more memory than a drive may use,
//! however small its packs are. When the backing works again, nothing is lost.

use super::{Run, Stop, Ticker};
use crate::content::Filler;
use crate::executor::Cut;
use crate::{Error, Subject};

/// One opening in this many is followed by a hang, where it can be judged.
const ONE_IN: u64 = 3;
/// Most writes meanwhile.
const WRITES_MAX: u64 = 256;
/// Free space for each write, in bytes. A drive with less makes room, which takes reads.
const FREE_BYTES_A_WRITE: u64 = 64 << 10;
/// Most memory for packs that wait: what the engine allows, and two packs more.
const WAITING_BYTES_MAX: u64 = (32 << 20) + (1 << 20);

impl<S: Subject> Run<S> {
    /// Lets the backing hang for a while under the drive, which was just opened, in some cases.
    pub(super) fn perhaps_hang(&mut self) -> Result<(), Stop> {
        let config = &self.config;
        let suits = config.write_cache && !config.is_faulty() && !config.is_served() && !config.panics();
        if !suits || !self.hanging.chance(1, ONE_IN) {
            return Ok(());
        }
        // The toy reports none.
        let Some(space) = self.drive.as_ref().and_then(S::space) else { return Ok(()) };
        let writes = self.hanging.below(WRITES_MAX).min(space.free_bytes / FREE_BYTES_A_WRITE);
        let mut pieces = Vec::new();
        self.media.hang(true);
        for _ in 0..writes {
            let (first, count) = (self.ledger.fresh_block(), 1 + self.hanging.skewed(4));
            if first + count > self.config.annex_end_block() {
                break;
            }
            let piece = self.ledger.draft(first, count, Filler::Random);
            let (Some(drive), data) = (self.drive.clone(), self.ledger.data(&piece)) else { break };
            let write = async move { drive.write(piece.offset(), &data, false).await };
            let ticker = Ticker(self.drive.clone());
            match self.executor.block_on(&self.media, &ticker, Cut::Never, write) {
                Ok(Ok(())) => self.ledger.wrote(piece),
                Ok(Err(Error::NoSpace)) => break,
                Ok(Err(error)) => {
                    return Err(Stop::Failed(format!("a write to a backing that hangs failed: {error}")));
                }
                // It waits, and has changed nothing.
                Err(_) => {
                    self.count("hang: a write waits");
                    self.executor.give_up();
                    break;
                }
            }
            pieces.push(piece);
            // The second one seals the pack.
            (0..2).for_each(|_| self.drive.iter().for_each(S::tick));
            let waiting = self.drive.as_ref().map_or(0, S::waiting_memory_bytes);
            if waiting > WAITING_BYTES_MAX {
                return Err(Stop::Failed(format!(
                    "{waiting} bytes of memory for packs that wait, after {} writes to a backing that hangs",
                    pieces.len()
                )));
            }
        }
        self.media.hang(false);
        self.count("hang: over");
        self.flush_quietly()?;
        for piece in pieces {
            self.read_annex_at(piece.first, piece.count)?;
            self.trim(piece.first, piece.count, false)?;
        }
        Ok(())
    }
}
