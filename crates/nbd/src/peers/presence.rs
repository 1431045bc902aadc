//! Whether the client at the other end of a socket is still there.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};

/// Presence of the client, as its socket shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The connection is open, as far as the socket knows.
    Here,
    /// As before, but data is unread. The end of the connection may wait behind it, at the client, until the
    /// socket has room.
    Unread,
    /// The client sends nothing more after what the socket holds, and still waits for replies.
    SendsNoMore,
    /// The client sends nothing more. It may wait for replies, or may have closed the connection: a TCP
    /// socket cannot tell.
    MayHaveLeft,
    /// The connection is closed or broken. Nobody gets replies.
    Left,
}

impl Presence {
    /// Asks a TCP socket, now.
    pub(crate) fn of_tcp(socket: &impl AsFd) -> Presence {
        // First: nothing gets in the way of an end from here on.
        let unread = ioctl_fionread(socket).map_or(true, |bytes| bytes > 0);
        match Presence::of(socket) {
            Presence::Here if unread => Presence::Unread,
            Presence::SendsNoMore => Presence::MayHaveLeft,
            found => found,
        }
    }

    /// Asks a Unix socket, now. It knows of an end at once, whatever is unread.
    pub(crate) fn of(socket: &impl AsFd) -> Presence {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut sockets = [PollFd::new(socket, PollFlags::RDHUP)];
        while let Err(error) = poll(&mut sockets, Some(&now)) {
            if error != Errno::INTR {
                // Not known: requests of a client that might have left must not run.
                return Presence::Left;
            }
        }
        let found = sockets[0].revents();
        if found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            Presence::Left
        } else if found.intersects(PollFlags::RDHUP) {
            Presence::SendsNoMore
        } else {
            Presence::Here
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_that_left_is_noticed_before_its_data_is_read() {
        let (mut client, server) = UnixStream::pair().expect("sockets");
        client.write_all(b"data").expect("sent");
        assert_eq!(Presence::of(&server), Presence::Here);
        client.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(Presence::of(&server), Presence::SendsNoMore);
        drop(client);
        assert_eq!(Presence::of(&server), Presence::Left);
    }

    #[test]
    fn a_tcp_client_that_left_may_have_left() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        assert_eq!(Presence::of_tcp(&server), Presence::Here);
        client.write_all(b"data").expect("sent");
        assert_eq!(Presence::of_tcp(&server), Presence::Unread);
        drop(client);
        // On one machine, a close is there before the next connection.
        assert_eq!(Presence::of_tcp(&server), Presence::MayHaveLeft);
    }

    #[test]
    fn the_end_of_a_tcp_client_waits_behind_data_that_is_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        client.set_nonblocking(true).expect("set");
        server.set_nonblocking(true).expect("set");
        while client.write(&[0; 64 << 10]).is_ok() {}
        drop(client);
        assert_eq!(Presence::of_tcp(&server), Presence::Unread);
        let read_all = |_| {
            while server.read(&mut [0; 64 << 10]).is_ok_and(|bytes| bytes > 0) {}
            std::thread::sleep(Duration::from_millis(1));
            Presence::of_tcp(&server) == Presence::MayHaveLeft
        };
        assert!((0..5000).any(read_all));
    }
}
