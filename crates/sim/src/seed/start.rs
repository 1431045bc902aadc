//! Loss of the start of the backing while no process has it open: zeros from byte 0 on, over the superblocks
//! and at most all checkpoints there. A drive with far copies must open as if nothing had happened.

use std::sync::Arc;

use media::{IoBuf, Media};

use super::{Run, Stop};
use crate::Subject;

/// One opening in this many is preceded by such a loss, in seeds with far copies.
const ONE_IN: u64 = 4;
/// Both superblocks lie before this byte.
const SUPERBLOCKS_END: u64 = 68 << 10;
const PAGE: u64 = 4096;

impl<S: Subject> Run<S> {
    /// Overwrites the start with zeros, in some cases.
    pub(super) fn perhaps_lose_start(&mut self) -> Result<(), Stop> {
        let geometry = self.config.geometry().filter(|geometry| geometry.far.is_some());
        let Some(geometry) = geometry.filter(|_| self.losing.chance(1, ONE_IN)) else { return Ok(()) };
        // Other faults may have taken the far copies.
        if self.config.does_damage() || self.config.trouble.bad_copy.is_some() {
            return Ok(());
        }
        let all = geometry.segments_offset();
        let len = match self.losing.below(4) {
            0 => SUPERBLOCKS_END,
            1 => SUPERBLOCKS_END + self.losing.below((all - SUPERBLOCKS_END) / PAGE) * PAGE,
            _ => all,
        };
        self.trace(|| format!("the first {len} bytes are lost"));
        self.count(match len == all {
            true => "restart: the start of the backing is lost",
            false => "restart: part of the start of the backing is lost",
        });
        let media = self.media.clone();
        let lost = async move {
            media.write(0, Arc::new(IoBuf::zeroed(len as usize))).await?;
            media.sync().await
        };
        let lost = self.do_now("lose the start", lost)?;
        lost.map_err(|error| Stop::Failed(format!("the start cannot be overwritten: {error}")))
    }
}
