//! Listening sockets that another process has bound, such as a service manager (socket activation).

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::limits::config::ServerConfig;
use crate::listening::address::Address;
use crate::listening::listener::{ListenError, Listener};

/// A listening socket that another process has bound. The process that bound it owns it: its file stays when
/// the server ends.
#[derive(Debug)]
pub struct Inherited {
    socket: OwnedFd,
    address: Address,
}

/// A descriptor that is not a socket to listen on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
#[non_exhaustive]
pub enum InheritedError {
    #[error("not a socket")]
    NotASocket,
    #[error("a socket that does not listen: expected ListenStream= with Accept=no")]
    NotListening,
    #[error("a socket of another kind: expected a Unix stream socket, or TCP")]
    OtherKind,
    #[error("a Unix socket without a path: expected a path in the file system, because clients are shown it")]
    NoPath,
    #[error(transparent)]
    System(#[from] Errno),
}

/// A socket that is known to listen.
enum Kind {
    Unix(UnixListener),
    Tcp(TcpListener),
}

fn kind_of(socket: OwnedFd) -> Result<Kind, InheritedError> {
    let kind = sockopt::socket_type(socket.as_fd()).map_err(|error| match error {
        Errno::NOTSOCK => InheritedError::NotASocket,
        error => error.into(),
    })?;
    if kind != SocketType::STREAM {
        return Err(InheritedError::OtherKind);
    }
    if !sockopt::socket_acceptconn(socket.as_fd())? {
        return Err(InheritedError::NotListening);
    }
    match sockopt::socket_domain(socket.as_fd())? {
        AddressFamily::UNIX => Ok(Kind::Unix(socket.into())),
        AddressFamily::INET | AddressFamily::INET6 => Ok(Kind::Tcp(socket.into())),
        _ => Err(InheritedError::OtherKind),
    }
}

fn system(error: &std::io::Error) -> InheritedError {
    InheritedError::System(Errno::from_io_error(error).unwrap_or(Errno::INVAL))
}

impl Inherited {
    /// Checks a descriptor.
    ///
    /// # Errors
    /// [`InheritedError`] if it is no stream socket that listens at an address of ours.
    pub fn new(socket: OwnedFd) -> Result<Inherited, InheritedError> {
        let clone = socket.try_clone().map_err(|error| system(&error))?;
        let address = match kind_of(clone)? {
            Kind::Unix(listener) => {
                let address = listener.local_addr().map_err(|error| system(&error))?;
                let path = address.as_pathname().ok_or(InheritedError::NoPath)?;
                Address::Unix(std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)))
            }
            Kind::Tcp(listener) => {
                let local: SocketAddr = listener.local_addr().map_err(|error| system(&error))?;
                Address::Tcp(local.ip().to_string(), local.port())
            }
        };
        Ok(Inherited { socket, address })
    }

    /// Address that it listens at.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns a listener on it. There can be one after the other: until the next one accepts, clients wait.
    ///
    /// # Errors
    /// Those of [`Listener::check`], or if a system call fails.
    pub fn listener(&self, config: &ServerConfig) -> Result<Listener, ListenError> {
        let fail = |error| ListenError::Io(self.address.clone(), error);
        let clone = self.socket.try_clone().map_err(fail)?;
        match kind_of(clone).map_err(|error| fail(std::io::Error::other(error)))? {
            Kind::Unix(listener) => Listener::inherited_unix(listener, &self.address),
            Kind::Tcp(listener) => Listener::inherited_tcp(listener, &self.address, config),
        }
    }
}
