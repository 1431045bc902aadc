//! Check of recovery from faults: once they have stopped, a drive works normally, at once or after another
//! opening.
//!
//! Transient faults have no lasting effect: failed writes and syncs, read errors that occur once, a full
//! backing that has space again. Pages of segments that accept no writes are lasting, and the drive writes
//! elsewhere. So an open drive accepts a write and keeps it. If it does not, because something failed while
//! it was opened, it does after the next opening. Only lasting damage is an excuse. Lack of space is an
//! excuse for a write; then TRIM of a whole block works.

use super::{Run, Stop};
use crate::content::Filler;
use crate::ledger::BLOCK_BYTES;
use crate::{Error, Subject};

/// Openings after which a drive whose backing has no more faults must accept writes.
const ATTEMPTS_MAX: u32 = 3;
/// A drive with less data than this share of its size is not full.
const NEARLY_EMPTY_PERCENT: u64 = 20;

/// Request that a drive should have served.
#[derive(Debug, thiserror::Error)]
enum Unserved {
    #[error("write: {0}")]
    Write(Error),
    #[error("trim: {0}")]
    Trim(Error),
}

impl<S: Subject> Run<S> {
    /// Checks that the drive, which was just opened, accepts a write and keeps it.
    pub(super) fn must_serve_again(&mut self) -> Result<(), Stop> {
        if !self.config.is_faulty() && !self.rng.chance(1, 4) {
            return Ok(());
        }
        let mut why = None;
        for attempt in 0..ATTEMPTS_MAX {
            let struck = self.struck();
            if struck.damaged && !struck.lost_data_only(&self.media.counts())
                || self.is_unreadable()
                || self.stays_full
            {
                return Ok(());
            }
            if attempt > 0 {
                self.reopen()?;
            }
            match self.serve()? {
                Ok(()) => {
                    self.count(if attempt == 0 {
                        "liveness: serves"
                    } else {
                        "liveness: serves after another opening"
                    });
                    return Ok(());
                }
                Err(unserved) => why = Some(unserved),
            }
        }
        let why = why.map_or(String::new(), |unserved| unserved.to_string());
        Err(Stop::Failed(format!("the drive takes no writes although its backing is well again: {why}")))
    }

    fn serve(&mut self) -> Result<Result<(), Unserved>, Stop> {
        let block = self.ledger.fresh_block();
        if block >= self.config.annex_end_block() {
            return Ok(Ok(()));
        }
        let piece = self.ledger.draft(block, 1, Filler::Random);
        match self.put(piece, true)? {
            Ok(()) => self.read_annex_at(block, 1)?,
            Err(Error::NoSpace) if self.may_be_full() => self.count("liveness: full, and takes no write"),
            Err(error) => return Ok(Err(Unserved::Write(error))),
        }
        let trimmed = self.attempt("trim", move |drive| async move {
            drive.trim(block * BLOCK_BYTES, BLOCK_BYTES, true).await
        })?;
        match trimmed {
            Ok(()) => {
                self.ledger.zeroed(block, 1);
                self.ledger.flushed();
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(Unserved::Trim(error))),
        }
    }

    fn may_be_full(&self) -> bool {
        let bytes = self.oracle.lock().live_bytes_max() + self.ledger.mapped_blocks() * BLOCK_BYTES;
        let bytes = bytes + self.config.shared_bytes();
        // The map of a sparse drive may be most of what is stored.
        let is_sparse = self.config.style == crate::Style::Sparse;
        is_sparse || bytes > self.config.physical_bytes * NEARLY_EMPTY_PERCENT / 100
    }
}
