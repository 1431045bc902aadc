//! Loss of the start of the backing while no process has it open: zeros from byte 0 on, over the superblocks
//! and at most all checkpoints there. A drive with far copies must open as if nothing had happened.

use std::sync::Arc;

use media::{IoBuf, Media};

use super::{Run, Stop};
use crate::{Error, Subject};

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
        let read = async move { media.read(0, IoBuf::zeroed(len as usize)).await };
        let (start, read) = self.do_now("read the start", read)?;
        read.map_err(|error| Stop::Failed(format!("the start cannot be read: {error}")))?;
        self.lost_start = (len > SUPERBLOCKS_END).then(|| start.to_vec());
        self.overwrite_start(IoBuf::zeroed(len as usize))
    }

    fn overwrite_start(&mut self, bytes: IoBuf) -> Result<(), Stop> {
        let media = self.media.clone();
        let written = async move {
            media.write(0, Arc::new(bytes)).await?;
            media.sync().await
        };
        let written = self.do_now("overwrite the start", written)?;
        written.map_err(|error| Stop::Failed(format!("the start cannot be overwritten: {error}")))
    }

    /// Returns whether an opening may fail so. With the copies of the checkpoint in front of the first
    /// segment, what tells where the log ends may be lost. The drive cannot know that no segment was. The
    /// same if copies cannot be read just now.
    pub(super) fn end_is_in_doubt(&self, error: &Error, hidden: bool) -> bool {
        (self.lost_start.is_some() || hidden)
            && matches!(error, Error::Damaged(why) if why.contains("may have been in what is lost"))
    }

    /// Brings back what was lost at the start.
    pub(super) fn bring_back_start(&mut self) -> Result<(), Stop> {
        self.count("restart: refused, the end of the log may be lost");
        let Some(start) = self.lost_start.take() else { return Ok(()) };
        let mut bytes = IoBuf::zeroed(start.len());
        bytes.copy_from_slice(&start);
        self.overwrite_start(bytes)
    }
}
