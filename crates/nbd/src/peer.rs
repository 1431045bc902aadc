//! Peers: the machine or user at the other end of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Peer that a connection is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The address of a TCP client.
    Address(IpAddr),
    /// The user of a process that connected to a Unix socket.
    User(u32),
    /// Unknown peer: only the limit of all connections applies.
    Unknown,
}

/// Bits of an IPv6 address that the host chooses (RFC 4291, 2.5.4).
const HOST_BITS: u32 = 64;

impl Peer {
    /// Returns the peer that limits count. Of an IPv6 address, that is its network of 64 bits, which one machine usually
    /// has to itself: it has as many addresses there as it likes.
    pub(crate) fn counted(self) -> Peer {
        match self {
            Peer::Address(address) => Peer::Address(match address.to_canonical() {
                IpAddr::V6(address) => {
                    Ipv6Addr::from_bits(address.to_bits() >> HOST_BITS << HOST_BITS).into()
                }
                address => address,
            }),
            other => other,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::User(user) => write!(f, "user {user}"),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}
