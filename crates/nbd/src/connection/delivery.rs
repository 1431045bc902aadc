//! Delivery: the data of reads goes from the server to where it is awaited, the FUSE device of a client on
//! this machine, past the socket. That saves two copies of all data, and a process the work of passing it on.
//!
//! A private extension of the protocol, for clients over Unix sockets, without TLS, of the server's own user
//! or root:
//!
//! 1. The client sends [`OPT_DELIVER`](crate::protocol::OPT_DELIVER), without data. The server agrees.
//! 2. The client sends one byte, and with it the descriptor of its FUSE device (`SCM_RIGHTS`). The server
//!    says whether it takes it.
//! 3. From then on the client may set [`CMD_FLAG_DELIVER`](crate::protocol::CMD_FLAG_DELIVER) in a read. Its
//!    cookie is the number of the FUSE request that it is for, with [`COOKIE_BIT`] set. The data is written
//!    to the device as the answer to that request.
//! 4. The client gets a [notice](crate::reply::Delivered), late and together with others: nothing waits for
//!    it. Failed reads, and data that the device refuses, are sent over the socket as usual.
//!
//! A request may be answered twice, for instance by a server and by the one that follows it: the kernel never
//! uses a number again, and refuses an answer to what is answered. Connections with simple replies only. The
//! server closes the descriptor as soon as it sees that the client has left.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, ready};

use parking_lot::RwLock;
use rustix::fs::{FileType, fstat, major, minor};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;

/// Bit of the cookie of a read that is to be delivered. Numbers of FUSE requests, which count up from 2, do
/// not have it. (The bit above it would be `FUSE_UNIQUE_RESEND`.)
pub const COOKIE_BIT: u64 = 1 << 62;

/// Number of the device `/dev/fuse`.
const FUSE_DEVICE: (u32, u32) = (10, 229);
/// Bytes of `struct fuse_out_header` of `linux/fuse.h`.
const HEADER_BYTES: usize = 16;
/// Payload that accompanies the descriptor.
const DESCRIPTOR_BYTE: u8 = b'd';

/// Receives a byte from a stream, and the descriptor that came with it, if one did.
pub(crate) type Receive<S> = fn(&S, &mut Context<'_>) -> Poll<io::Result<Option<OwnedFd>>>;

/// A descriptor of `/dev/fuse`, by which requests of a FUSE file system are answered. It must be the very
/// one, or a duplicate of it, by which the client receives them: others do not know them, which looks as if
/// they were answered.
#[derive(Debug)]
pub struct FuseDevice(RwLock<Option<OwnedFd>>);

impl FuseDevice {
    /// Takes a descriptor.
    ///
    /// # Errors
    /// `InvalidInput` if it is something else: writing to that could block.
    pub fn new(descriptor: OwnedFd) -> io::Result<FuseDevice> {
        let found = fstat(&descriptor)?;
        let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
        if !is_device || (major(found.st_rdev), minor(found.st_rdev)) != FUSE_DEVICE {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a FUSE device"));
        }
        Ok(FuseDevice(RwLock::new(Some(descriptor))))
    }

    /// Answers the read with number `unique`. Returns whether it is answered, now or before. If not, nothing
    /// more goes to the device.
    pub(crate) fn answer(&self, unique: u64, data: &[u8]) -> bool {
        let answered = match &*self.0.read() {
            Some(device) => write(device.as_fd(), unique, data),
            None => return false,
        };
        if let Err(error) = answered
            && self.close()
        {
            tracing::warn!(%error, "the FUSE device of the client takes no data: it goes by the socket");
        }
        answered.is_ok()
    }

    /// Closes the descriptor. The kernel ends the file system's requests when the last one is closed, which
    /// must not wait for requests of a client that has left. Returns whether it was open.
    pub(crate) fn close(&self) -> bool {
        self.0.write().take().is_some()
    }

    /// Sends the descriptor to a server.
    pub(crate) fn send(&self, stream: &UnixStream) -> io::Result<()> {
        match &*self.0.read() {
            Some(device) => send(stream, device.as_fd()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

fn write(device: BorrowedFd<'_>, unique: u64, data: &[u8]) -> Result<(), Errno> {
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&((HEADER_BYTES + data.len()) as u32).to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    // Never a part of it. If the kernel cannot copy the data, it ends the request with an error.
    match rustix::io::writev(device, &[IoSlice::new(&header), IoSlice::new(data)]) {
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Number of the FUSE request that the data of a read is for.
pub(crate) fn unique(cookie: u64) -> u64 {
    cookie & !COOKIE_BIT
}

/// Sends the descriptor of a device.
fn send(stream: &UnixStream, device: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [device];
    // There is room for it.
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [DESCRIPTOR_BYTE];
    sendmsg(stream, &[IoSlice::new(&byte)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives what [`send`] has sent.
pub(crate) fn poll_receive(
    stream: &tokio::net::UnixStream,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Option<OwnedFd>>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        match stream.try_io(Interest::READABLE, || receive(stream)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return Poll::Ready(received),
        }
    }
}

fn receive(stream: &impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message =
        recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.last())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_a_fuse_device_is_taken() {
        let (one, other) = UnixStream::pair().expect("sockets");
        assert!(receive_after(&one, &other, File::open("/dev/null").expect("opened").as_fd()).is_err());
        let Ok(fuse) = File::options().read(true).write(true).open("/dev/fuse") else { return };
        let device = receive_after(&one, &other, fuse.as_fd()).expect("taken");
        // Nothing is mounted by it.
        assert!(!device.answer(2, b"data"));
        assert!(!device.close(), "it was closed");
    }

    fn receive_after(one: &UnixStream, other: &UnixStream, sent: BorrowedFd<'_>) -> io::Result<FuseDevice> {
        send(one, sent).expect("sent");
        FuseDevice::new(receive(other).expect("received").expect("a descriptor"))
    }

    #[test]
    fn a_byte_without_a_descriptor_and_the_end_are_told_apart() {
        use std::io::Write;
        let (mut one, other) = UnixStream::pair().expect("sockets");
        one.write_all(b"d").expect("sent");
        assert!(receive(&other).expect("received").is_none());
        drop(one);
        assert_eq!(receive(&other).expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
    }
}
