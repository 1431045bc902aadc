//! The data of requests, in the driver's own device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// `UBLKSRV_IO_BUF_OFFSET`: where the data of requests begins.
const BEGIN: u64 = 0x8000_0000;
/// `UBLK_QID_OFF`, `UBLK_TAG_OFF`: bits of an offset where the numbers of the queue and the tag are.
const QUEUE_SHIFT: u32 = 41;
const TAG_SHIFT: u32 = 25;

/// Where the data of the requests of a queue is read and written. The device stays open as long as a copy of
/// this exists: the driver passes it to no other server before.
#[derive(Clone, Debug)]
pub struct Data {
    character: Arc<File>,
    queue: u16,
}

impl Data {
    /// `character` is the driver's own device, `/dev/ublkcN`.
    pub fn new(character: Arc<File>, queue: u16) -> Data {
        Data { character, queue }
    }

    /// Reads the data of a request that writes.
    ///
    /// # Errors
    /// Of the driver.
    pub fn read(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        self.character.read_exact_at(data, self.place(tag))
    }

    /// Writes the data of a request that reads.
    ///
    /// # Errors
    /// Of the driver.
    pub fn write(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.character.write_all_at(data, self.place(tag))
    }

    fn place(&self, tag: u16) -> u64 {
        BEGIN + (u64::from(self.queue) << QUEUE_SHIFT | u64::from(tag) << TAG_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_requests_is_apart() -> io::Result<()> {
        let character = Arc::new(tempfile::tempfile()?);
        let place = |queue, tag| Data::new(character.clone(), queue).place(tag);
        assert_eq!(place(0, 0), 0x8000_0000);
        assert_eq!(place(0, 1) - place(0, 0), 32 << 20);
        assert_eq!(place(1, 0) - place(0, 0), 1 << 41);
        Ok(())
    }
}
