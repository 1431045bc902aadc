//! A client, for programs that read exports or test servers. It waits for each reply.

mod connection;
mod duplex;
mod negotiation;
mod tls;
mod uri;

use std::io::{self, Read};

pub use connection::Connection;
#[cfg(feature = "testing")]
pub(crate) use duplex::Duplex;
pub use negotiation::{
    Agreed, Brought, Negotiated, Replies, Wishes, negotiate, negotiate_attachment, take_left,
};
pub use tls::{ClientTls, ClientTlsFiles};
pub use uri::{ExportUri, UriError};

/// Error for a server that violates the protocol or refuses.
fn protocol(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => protocol("the server closed the connection"),
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"),
        _ => error,
    })?;
    Ok(bytes)
}
