//! The path of hosts' requests to a drive: counted, refused while it closes, and delayed if necessary.

use std::sync::Arc;

use drive::Drive;
use media::Media;

use crate::admission::held::Held;
use crate::admission::pacer::Pacer;
use crate::admission::throttle::Throttle;
use crate::watch::latency::Kind;
use crate::watch::requests::Requests;
use device::{Device, DeviceError, Extent, Geometry, Requester, Zeroes};

/// Largest request that a host should send: what NBD clients may send to any server.
const MAX_TRANSFER_BYTES: u32 = 32 << 20;

/// A drive as hosts access it.
pub struct Gate<M: Media> {
    pub(crate) drive: Drive<M>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) pacer: Arc<Pacer>,
    pub(crate) held: Arc<Held>,
    pub(crate) read_only: bool,
}

/// Bytes of a block, which a write takes space for however little of it it changes.
const BLOCK: u64 = layout::BLOCK_BYTES as u64;

/// Returns the bytes of the blocks that a range touches.
fn covered_bytes(offset: u64, len: u64) -> u64 {
    let blocks = offset.saturating_add(len).div_ceil(BLOCK).saturating_sub(offset / BLOCK);
    if len == 0 { 0 } else { blocks.saturating_mul(BLOCK) }
}

/// Returns the bytes of the blocks that a range touches in part.
fn edge_bytes(offset: u64, len: u64) -> u64 {
    let whole = (offset.saturating_add(len) / BLOCK).saturating_sub(offset.div_ceil(BLOCK));
    covered_bytes(offset, len).saturating_sub(whole.saturating_mul(BLOCK))
}

impl<M: Media> Gate<M> {
    /// Waits until a writer may write so much.
    ///
    /// # Errors
    /// If it leaves meanwhile.
    async fn admit(&self, bytes: u64, requester: &Requester) -> Result<(), DeviceError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes == 0 {
            return Ok(());
        }
        let wait = async {
            self.throttle.admit(bytes).await;
            self.pacer.admit(bytes).await;
        };
        requester.during(wait).await
    }
}

impl<M: Media> Device for Gate<M> {
    fn geometry(&self) -> Geometry {
        let sector_bytes = self.drive.sector_bytes();
        Geometry {
            capacity_bytes: self.drive.logical_capacity_bytes(),
            sector_bytes,
            preferred_bytes: layout::BLOCK_BYTES as u32,
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            read_only: self.read_only,
        }
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Read)?;
        request.end(self.drive.read(offset, buf).await)
    }

    async fn write(
        &self,
        offset: u64,
        data: &[u8],
        fua: bool,
        requester: &Requester,
    ) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Write)?;
        self.admit(covered_bytes(offset, data.len() as u64), requester).await?;
        let write = || self.drive.write(offset, data, fua);
        request.end(self.held.make(data.len(), requester, || self.drive.space(), write).await?)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Flush)?;
        request.end(self.drive.flush().await)
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool, _: &Requester) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Trim)?;
        let trimmed = self.drive.trim(offset, len, fua).await;
        self.held.room_made();
        request.end(trimmed)
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroes: Zeroes,
        requester: &Requester,
    ) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Trim)?;
        self.admit(edge_bytes(offset, len), requester).await?;
        let write = || self.drive.write_zeroes(offset, len, zeroes);
        let written = self.held.make(0, requester, || self.drive.space(), write).await?;
        self.held.room_made();
        request.end(written)
    }

    async fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, DeviceError> {
        let request = self.requests.begin_extents()?;
        request.end(self.drive.extents(offset, len, max).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_costs_its_block() {
        for (offset, len, covered, edges) in [
            (0, 0, 0, 0),
            (5000, 1, 4096, 4096),
            (4095, 2, 8192, 8192),
            (0, 4096, 4096, 0),
            (4096, 65536, 65536, 0),
            (512, 8192, 12288, 8192),
            (0, 4097, 8192, 4096),
            (1, 8191, 8192, 4096),
        ] {
            assert_eq!(
                (covered_bytes(offset, len), edge_bytes(offset, len)),
                (covered, edges),
                "{len} at {offset}"
            );
        }
        // A range beyond the end is harmless here: the engine refuses it.
        covered_bytes(u64::MAX, u64::MAX);
        edge_bytes(u64::MAX, u64::MAX);
    }
}
