//! Streams of a client: TCP, Unix sockets, TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

/// Both directions of a stream.
pub(crate) trait Duplex: Read + Write + Send {
    /// Says farewell. Nothing is sent behind it.
    fn close(&mut self) {}
}

impl Duplex for TcpStream {}
impl Duplex for UnixStream {}
