//! Peers: the machine or user at the other end of a connection.

use std::fmt;
use std::net::IpAddr;

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

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::User(user) => write!(f, "user {user}"),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}
