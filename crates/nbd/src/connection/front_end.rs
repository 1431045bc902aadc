//! Front ends: the requests of a block device come to the server from the kernel itself. The keeper of the
//! device makes it, and its connection brings descriptors in place of requests.
//!
//! A private extension of the protocol, for clients over Unix sockets, without TLS, of the server's own user
//! or root:
//!
//! 1. The client sends [`OPT_FUSE`](crate::protocol::OPT_FUSE), without data. The server agrees.
//! 2. The client sends one byte, and with it (`SCM_RIGHTS`) a [share](fuse::Share): a descriptor of
//!    `/dev/fuse`, and the area for the requests that are read from it. The server says whether it takes
//!    them.
//! 3. Once the client has chosen an export, the server takes up what an earlier server has left in the area,
//!    reads requests from the device, and answers them there. The connection carries nothing any more: its
//!    end is the end of the front end, if the client has sent [`GOODBYE`] before. What has no answer then
//!    stays in the area.
//!
//! A connection that ends without that byte is one of a keeper that was killed. The server goes on: it has
//! the same descriptors. The next keeper sends [`OPT_LEFT`](crate::protocol::OPT_LEFT), behind
//! [`OPT_ATTACH`](crate::protocol::OPT_ATTACH) and with the name of the export. The reply has the number of
//! shares that were left, in four bytes, and each follows as the client sends one. The client then brings
//! them as its own. While a connection waits for an area, or serves one whose keeper it takes to be there,
//! the reply is `NBD_REP_ERR_POLICY`: the client asks again. The number is zero only if nothing is served.
//!
//! A [queue of a ublk device](crate::ublk_queue) is brought in the same way.
//!
//! Whoever serves an area is alone: a connection that brings one waits for the end of the connection that
//! [has it](crate::fence::areas).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use fuse::{Area, Share};
use rustix::fs::{FileType, fstat, major, minor};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;

use crate::connection::ublk_queue::UblkFrontEnd;
use crate::fence::areas::AreaId;

/// Number of the device `/dev/fuse`.
const FUSE_DEVICE: (u32, u32) = (10, 229);
/// Payload that accompanies the descriptors.
const DESCRIPTORS_BYTE: u8 = b'd';
/// Sent by a keeper before it closes a connection that brought a share. The kernel, which closes those of one
/// that is killed, does not send it.
pub const GOODBYE: u8 = b'g';
/// Most shares that are left by a keeper.
pub(crate) const SHARES_MAX: u32 = 64;
/// Why a server cannot tell what is left.
pub(crate) const AREAS_UNDER_WAY: &str =
    "connections of the drive's device are being handed over, or have not ended yet: try again";

/// How a kind of stream carries descriptors: each time one byte, and with it two at most.
pub(crate) struct Carrier<S> {
    /// Receives a byte, and the descriptors that came with it.
    pub(crate) receive: fn(&S, &mut Context<'_>) -> Poll<io::Result<Vec<OwnedFd>>>,
    /// Sends those of a share.
    pub(crate) send: fn(&S, &Share, &mut Context<'_>) -> Poll<io::Result<()>>,
}

impl<S> Clone for Carrier<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Carrier<S> {}

/// Unix sockets carry descriptors.
pub(crate) const UNIX: Carrier<tokio::net::UnixStream> = Carrier { receive: poll_receive, send: poll_send };

/// Where the requests of a connection come from, if not from its stream.
pub(crate) enum FrontEnd {
    Fuse(FuseFrontEnd),
    Ublk(UblkFrontEnd),
}

/// The server's end of a share.
pub(crate) struct FuseFrontEnd {
    /// The same descriptors as the keeper has.
    pub(crate) share: Share,
    pub(crate) id: AreaId,
}

impl FuseFrontEnd {
    /// Takes the descriptors of a share. Another connection may serve the area: it is not mapped before it is
    /// claimed.
    ///
    /// # Errors
    /// `InvalidInput` if they are something else: reading that could block, or return anything.
    pub(crate) fn new(descriptors: Vec<OwnedFd>) -> io::Result<FuseFrontEnd> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let [device, area] =
            <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| invalid("not two descriptors"))?;
        let found = fstat(&device)?;
        let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
        if !is_device || (major(found.st_rdev), minor(found.st_rdev)) != FUSE_DEVICE {
            return Err(invalid("not a FUSE device"));
        }
        Area::check(&area)?;
        Ok(FuseFrontEnd { id: AreaId::of(&area)?, share: Share { device, area } })
    }
}

/// Sends the descriptors of a share.
pub(crate) fn send(stream: &impl AsFd, share: &Share) -> io::Result<()> {
    send_descriptors(stream, &[share.device.as_fd(), share.area.as_fd()])
}

/// Sends at most two descriptors.
pub(crate) fn send_descriptors(stream: &impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    // There is room for them.
    ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    let byte = [DESCRIPTORS_BYTE];
    sendmsg(stream, &[IoSlice::new(&byte)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn poll_send(stream: &tokio::net::UnixStream, share: &Share, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_io(Interest::WRITABLE, || send(stream, share)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return Poll::Ready(sent),
        }
    }
}

fn poll_receive(stream: &tokio::net::UnixStream, cx: &mut Context<'_>) -> Poll<io::Result<Vec<OwnedFd>>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        match stream.try_io(Interest::READABLE, || receive(stream)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return Poll::Ready(received),
        }
    }
}

/// Receives a share, which a server sends.
pub(crate) fn receive_share(stream: &impl AsFd) -> io::Result<Share> {
    FuseFrontEnd::new(receive(stream)?).map(|taken| taken.share)
}

fn receive(stream: &impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message =
        recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_a_share_is_taken() {
        let (one, other) = UnixStream::pair().expect("sockets");
        let file = || OwnedFd::from(File::open("/dev/null").expect("opened"));
        let area = Area::create().expect("an area");
        send(&one, &Share { device: file(), area }).expect("sent");
        let received = receive(&other).expect("received");
        assert_eq!(received.len(), 2);
        assert!(FuseFrontEnd::new(received).is_err(), "no FUSE device");
        assert!(FuseFrontEnd::new(vec![file()]).is_err() && FuseFrontEnd::new(Vec::new()).is_err());
        let Ok(fuse) = File::options().read(true).write(true).open("/dev/fuse") else { return };
        let fuse = || OwnedFd::from(fuse.try_clone().expect("cloned"));
        assert!(FuseFrontEnd::new(vec![fuse(), file()]).is_err(), "no area");
        let share = Share { device: fuse(), area: Area::create().expect("an area") };
        let allocated = || fstat(&share.area).expect("a memory").st_blocks;
        let few = allocated();
        send(&one, &share).expect("sent");
        FuseFrontEnd::new(receive(&other).expect("received")).expect("taken");
        send(&one, &share).expect("sent");
        receive_share(&other).expect("received");
        assert_eq!(allocated(), few, "another connection may be serving it");
    }

    #[test]
    fn a_byte_without_descriptors_and_the_end_are_told_apart() {
        use std::io::Write;
        let (mut one, other) = UnixStream::pair().expect("sockets");
        one.write_all(b"d").expect("sent");
        assert!(receive(&other).expect("received").is_empty());
        drop(one);
        assert_eq!(receive(&other).expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
    }
}
