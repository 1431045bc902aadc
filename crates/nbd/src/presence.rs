//! Whether the client at the other end of a socket is still there.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What the socket knows of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The connection is open, as far as the socket knows.
    Here,
    /// The client sends nothing more after what the socket holds, and may still wait for replies. A TCP socket cannot tell
    /// that from a client that has closed the connection.
    SendsNoMore,
    /// The connection is closed or broken. Nobody gets replies.
    Left,
}

impl Presence {
    /// Asks the socket, now.
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
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

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
    fn a_tcp_client_that_left_sends_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        client.write_all(b"data").expect("sent");
        assert_eq!(Presence::of(&server), Presence::Here);
        drop(client);
        // On one machine, a close is there before the next connection.
        assert_eq!(Presence::of(&server), Presence::SendsNoMore);
    }
}
