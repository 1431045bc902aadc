//! Queues of a ublk device, whose requests the server takes from the kernel's driver itself. The keeper of
//! the device makes it, and has a connection for each queue.
//!
//! A private extension of the protocol, for the same clients as [that of FUSE](crate::front_end):
//!
//! 1. The client sends [`OPT_UBLK`](crate::protocol::OPT_UBLK), with the number of the queue and its depth,
//!    two bytes each. The server agrees.
//! 2. The client sends one byte, and with it (`SCM_RIGHTS`) a descriptor of the driver's own device,
//!    `/dev/ublkcN`. The server says whether it takes it.
//! 3. Once the client has chosen an export, the server allocates what the queue needs, and sends
//!    [`PREPARED`].
//! 4. The client sends [`OPEN`]. The server sends the driver the commands of the queue, then [`OPENED`] to
//!    the client, which starts the device, or ends its recovery, once all its queues have got that far.
//! 5. The connection carries nothing any more: its end is the end of the queue, and the other way round.
//!
//! Steps 3 and 4 are apart because a server that ends when only some of the queues have sent their commands
//! is the worst case for the driver (Linux before 6.16): nothing else happens in between.
//!
//! The driver has a request until it was answered, and issues it to the next server again. So nothing is
//! handed from one server to the next here.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, fstat};

/// The server has all it needs for the queue.
pub const PREPARED: u8 = b'p';
/// The server may send the commands of the queue.
pub const OPEN: u8 = b'o';
/// The driver has the commands of the queue.
pub const OPENED: u8 = b'q';

/// Bytes of the option's data.
const NUMBER_BYTES: usize = 4;
/// `UBLK_MAX_QUEUE_DEPTH`.
const DEPTH_MAX: u16 = 4096;

/// A queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueNumber {
    /// Its number.
    pub number: u16,
    /// Requests in flight, at most: 1 to 4096.
    pub depth: u16,
}

impl QueueNumber {
    pub(crate) fn encode(self) -> [u8; NUMBER_BYTES] {
        let ([a, b], [c, d]) = (self.number.to_be_bytes(), self.depth.to_be_bytes());
        [a, b, c, d]
    }

    pub(crate) fn decode(data: &[u8]) -> Option<QueueNumber> {
        let [a, b, c, d] = *<&[u8; NUMBER_BYTES]>::try_from(data).ok()?;
        let queue = QueueNumber { number: u16::from_be_bytes([a, b]), depth: u16::from_be_bytes([c, d]) };
        (1..=DEPTH_MAX).contains(&queue.depth).then_some(queue)
    }
}

/// The server's end of a queue.
pub(crate) struct UblkFrontEnd {
    pub(crate) queue: QueueNumber,
    /// The driver's own device.
    pub(crate) character: File,
}

impl UblkFrontEnd {
    /// Takes the descriptor of a device.
    ///
    /// # Errors
    /// `InvalidInput` if it is no device. One of another driver refuses the commands of the queue.
    pub(crate) fn new(queue: QueueNumber, descriptors: Vec<OwnedFd>) -> io::Result<UblkFrontEnd> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let [character] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| invalid("not one descriptor"))?;
        if FileType::from_raw_mode(fstat(&character)?.st_mode) != FileType::CharacterDevice {
            return Err(invalid("not a device"));
        }
        Ok(UblkFrontEnd { queue, character: character.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_what_was_sent() {
        let queue = QueueNumber { number: 3, depth: 128 };
        assert_eq!(queue.encode(), [0, 3, 0, 128]);
        assert_eq!(QueueNumber::decode(&queue.encode()), Some(queue));
        for malformed in [&[][..], &[0, 3, 0], &[0, 3, 0, 0], &[0, 3, 0x10, 1], &[0, 3, 0, 128, 0]] {
            assert_eq!(QueueNumber::decode(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn only_a_device_is_taken() -> io::Result<()> {
        let (queue, file) = (QueueNumber { number: 0, depth: 1 }, || OwnedFd::from(tempfile()));
        assert!(
            UblkFrontEnd::new(queue, vec![file()]).is_err() && UblkFrontEnd::new(queue, Vec::new()).is_err()
        );
        let device = || -> io::Result<OwnedFd> { Ok(File::open("/dev/null")?.into()) };
        assert!(UblkFrontEnd::new(queue, vec![device()?, device()?]).is_err());
        UblkFrontEnd::new(queue, vec![device()?]).map(drop)
    }

    fn tempfile() -> File {
        tempfile::tempfile().expect("a file")
    }
}
