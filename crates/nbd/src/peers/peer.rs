//! Peers: the machine or user at the other end of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
/// Bits of an IPv4 address.
const IPV4_BITS: u32 = 32;
/// `64:ff9b::/96` without its last 32 bits: the prefix for IPv4 addresses that a translator (NAT64) has put
/// into IPv6 addresses (RFC 6052, 2.1).
const TRANSLATED: u128 = 0x0064_ff9b_0000_0000_0000_0000;

impl Peer {
    /// Returns the peer that limits count. Of an IPv6 address, that is its network of 64 bits, which one
    /// machine usually has to itself: it has as many addresses there as it likes. Link-local addresses
    /// (`fe80::/10`), which all have the same network, are counted each, and IPv4 addresses in IPv6 addresses
    /// as themselves.
    pub(crate) fn counted(self) -> Peer {
        match self {
            Peer::Address(address) => Peer::Address(match address.to_canonical() {
                IpAddr::V6(address) if address.to_bits() >> IPV4_BITS == TRANSLATED => {
                    Ipv4Addr::from_bits(address.to_bits() as u32).into()
                }
                IpAddr::V6(address) if !address.is_unicast_link_local() => network(address).into(),
                address => address,
            }),
            other => other,
        }
    }
}

/// Address of the network of 64 bits.
fn network(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() >> HOST_BITS << HOST_BITS)
}

/// Shows a peer as limits count it: `2001:db8::/64`.
pub(crate) struct Counted(pub(crate) Peer);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.counted() {
            Peer::Address(IpAddr::V6(address)) if !address.is_unicast_link_local() => {
                write!(f, "{address}/{}", u128::BITS - HOST_BITS)
            }
            peer => peer.fmt(f),
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
