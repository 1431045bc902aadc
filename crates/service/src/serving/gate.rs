//! The path of hosts' requests to a drive: counted, refused while it closes, and delayed if necessary.

use std::sync::Arc;

use drive::Drive;
use media::Media;

use crate::admission::pacer::Pacer;
use crate::admission::throttle::Throttle;
use crate::watch::latency::Kind;
use crate::watch::requests::Requests;
use device::{Device, DeviceError, Extent, Geometry};

/// Largest request that a host should send: what NBD clients may send to any server.
const MAX_TRANSFER_BYTES: u32 = 32 << 20;

/// A drive as hosts access it.
pub struct Gate<M: Media> {
    pub(crate) drive: Drive<M>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) pacer: Arc<Pacer>,
    pub(crate) read_only: bool,
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

    async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Write)?;
        self.throttle.admit(data.len()).await;
        self.pacer.admit(data.len()).await;
        request.end(self.drive.write(offset, data, fua).await)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Flush)?;
        request.end(self.drive.flush().await)
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Trim)?;
        request.end(self.drive.trim(offset, len, fua).await)
    }

    async fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool, fua: bool) -> Result<(), DeviceError> {
        let request = self.requests.begin(Kind::Trim)?;
        request.end(self.drive.write_zeroes(offset, len, no_hole, fua).await)
    }

    async fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, DeviceError> {
        let request = self.requests.begin_extents()?;
        request.end(self.drive.extents(offset, len, max).await)
    }
}
