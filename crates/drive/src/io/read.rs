//! Reads of hosts, in spans.

use media::Media;

use crate::error::Error;
use crate::medium::read::Caching;
use crate::shared::{Drive, Shared};
use crate::state::read_cache::LARGE_READ_BYTES;

/// A read is done in spans of this size, so that its buffers stay bounded.
const SPAN_BYTES: u64 = 512 * 1024;

impl<M: Media> Drive<M> {
    /// Fills `buf` from `offset`.
    #[tracing::instrument(level = "debug", skip(self, buf), fields(len = buf.len()), err(level = "debug"))]
    pub async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.check_range(offset, buf.len() as u64)?;
        Shared::<M>::count(&self.0.host_read_bytes, buf.len() as u64);
        let caching = if buf.len() < LARGE_READ_BYTES { Caching::Keep } else { Caching::Bypass };
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let span = ((at / SPAN_BYTES + 1) * SPAN_BYTES - at).min((buf.len() - done) as u64) as usize;
            self.0.read_part(at, &mut buf[done..done + span], caching).await?;
            done += span;
        }
        // What was read may be old if another has the drive.
        self.0.acknowledge(Ok(())).await
    }
}
