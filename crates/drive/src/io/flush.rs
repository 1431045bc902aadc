//! FLUSH and FUA: acknowledged writes become durable. Concurrent flushes share packs and syncs.

use std::sync::Arc;

use layout::Head;
use media::Media;

use crate::error::Error;
use crate::planted::PlantedBug;
use crate::shared::{Drive, Shared};

impl<M: Media> Drive<M> {
    /// Makes every write that returned before this call durable.
    #[tracing::instrument(level = "debug", skip(self), err(level = "debug"))]
    pub async fn flush(&self) -> Result<(), Error> {
        let is_writable = !self.0.core().mode.is_read_only();
        self.0.core().counters.flushes_count += u64::from(is_writable);
        self.0.acknowledge(self.0.flush().await).await
    }
}

impl<M: Media> Shared<M> {
    /// See [`Drive::flush`]. Does not count as a flush of a host.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<(), Error> {
        {
            let core = self.core();
            core.mode.trusted()?;
            if core.mode.is_read_only() {
                return Ok(());
            }
        }
        if self.planted.has(PlantedBug::SkipFlush) {
            self.seal(&[Head::Host]);
            return Ok(());
        }
        self.flush_log().await
    }
}
