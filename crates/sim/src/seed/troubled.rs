//! A drive of some hundred segments whose backing fails while it is in use: everything that the small drives
//! go through, where cleaning has many segments to choose from and tables, checkpoints and searches are long.
//!
//! It is filled to a share of what it can hold while all is well. That data lies in the annex, which no
//! client touches, so the clients work on what is left, and the samples that are read back are of all ages.

use super::{Run, Stop};
use crate::Subject;

/// Percent of the space for data that is taken before anything fails.
const FILLED_PERCENT: [u64; 4] = [40, 60, 80, 95];

impl<S: Subject> Run<S> {
    /// Fills the drive. Then its bad pages take no more writes.
    pub(super) fn fill_before_trouble(&mut self) -> Result<(), Stop> {
        self.open()?;
        let percent = FILLED_PERCENT[self.rng.index(FILLED_PERCENT.len())];
        self.fill_large(percent)?;
        self.count("large: filled, then its backing fails");
        if self.rng.chance(1, 2) {
            self.close_quietly()?;
        }
        self.crash();
        self.config.trouble.bad_bytes.iter().for_each(|&byte| self.media.make_bad(byte));
        Ok(())
    }
}
