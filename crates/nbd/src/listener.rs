//! Listening on Unix and TCP sockets.
//!
//! A [`Listener`] is bound outside any runtime, an [`Acceptor`] lives in one, and an [`Accepted`] connection that is
//! [`Admitted`] can go to the runtime of another thread before it is registered there.

use std::io;
use std::net;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use device::Device;
use rustix::net::sockopt;
use socket_file::SocketFile;

use crate::address::Address;
use crate::admission::{Admission, Peer};
use crate::config::{ServerConfig, TlsPolicy};
use crate::connection::serve_admitted;
use crate::error::ConnectionError;
use crate::export::Shared;
use crate::shutdown::Shutdown;

const BACKLOG: i32 = 1024;

/// Send buffer of Unix sockets, in bytes. TCP sizes its own.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// When a silent TCP client is asked whether it is there, how often again, and when it counts as gone: what it holds (a
/// place, a drive that is to be opened again) is free within two minutes. While something that was sent to it is unacknowledged,
/// it is TCP that sends again and gives up, after a quarter of an hour. `TCP_USER_TIMEOUT` would make that less, and also end
/// clients that are there and take nothing for a while, as a machine that is stopped.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// A socket that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ListenError {
    #[error("{0}: {1}")]
    Socket(Address, socket_file::Error),
    #[error("{0}: anyone on the network could use the drive: configure TLS, or use --insecure")]
    Insecure(Address),
    #[error("{0}: {1}")]
    Io(Address, io::Error),
}

enum Socket {
    /// The file goes first.
    Unix(SocketFile, UnixListener),
    Tcp(TcpListener),
}

/// A bound socket that clients can already connect to, to be accepted later.
pub struct Listener {
    socket: Socket,
    address: Address,
}

impl Listener {
    /// Listens on `address`.
    ///
    /// # Errors
    /// See [`Listener::unix`] and [`Listener::tcp`].
    pub fn bind(address: &Address, config: &ServerConfig) -> Result<Self, ListenError> {
        match address {
            Address::Unix(path) => Self::unix(path),
            Address::Tcp(host, port) => Self::tcp(host, *port, config),
        }
    }

    /// Listens on a Unix socket that only this user can connect to (mode 0600). A socket that a dead server left
    /// is replaced; the file is removed when the listener is dropped.
    ///
    /// # Errors
    /// [`ListenError`] when something else is at `path`, a server answers there, or the system refuses.
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        let address = Address::Unix(path.to_owned());
        match socket_file::listen(path, BACKLOG) {
            Ok((listener, file)) => Ok(Self { socket: Socket::Unix(file, listener), address }),
            Err(error) => Err(ListenError::Socket(address, error)),
        }
    }

    /// Listens on a TCP port (0: any free one). Without TLS only loopback is allowed, unless `insecure` is set.
    ///
    /// # Errors
    /// [`ListenError`] when the address would be open to the network, is unknown, or the system refuses.
    pub fn tcp(host: &str, port: u16, config: &ServerConfig) -> Result<Self, ListenError> {
        let address = Address::Tcp(host.to_owned(), port);
        let fail = |error| ListenError::Io(address.clone(), error);
        let resolved: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(fail)?.collect();
        let open = resolved.iter().any(|address| !address.ip().to_canonical().is_loopback());
        if open && matches!(config.tls, TlsPolicy::Off) && !config.insecure {
            return Err(ListenError::Insecure(address));
        }
        let listener = TcpListener::bind(resolved.as_slice()).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        expect_signs_of_life(&listener).map_err(|error| fail(error.into()))?;
        let port = listener.local_addr().map_err(fail)?.port();
        Ok(Self { socket: Socket::Tcp(listener), address: Address::Tcp(host.to_owned(), port) })
    }

    /// Where it listens, with the port that was given.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Registers with the tokio runtime this is called in.
    ///
    /// # Errors
    /// When the runtime cannot.
    pub fn register(self) -> io::Result<Acceptor> {
        Ok(match self.socket {
            Socket::Unix(file, listener) => {
                Acceptor::Unix(file, tokio::net::UnixListener::from_std(listener)?)
            }
            Socket::Tcp(listener) => Acceptor::Tcp(tokio::net::TcpListener::from_std(listener)?),
        })
    }
}

/// Has the system end connections whose clients are gone without a farewell. Accepted sockets have the options of their
/// listener.
fn expect_signs_of_life(listener: &TcpListener) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(listener, KEEPALIVE_PROBES)
}

/// A listener within a runtime.
pub enum Acceptor {
    /// On a Unix socket. Its file goes first.
    Unix(SocketFile, tokio::net::UnixListener),
    /// On a TCP port.
    Tcp(tokio::net::TcpListener),
}

impl Acceptor {
    /// Waits for the next client.
    ///
    /// # Errors
    /// Those of `accept(2)`: the listener stays usable; [`crate::AcceptFailures`] says what to do.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Unix(_, listener) => Ok(Accepted::Unix(listener.accept().await?.0.into_std()?)),
            Self::Tcp(listener) => {
                let stream = listener.accept().await?.0;
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream.into_std()?))
            }
        }
    }
}

/// A client that was accepted, and has no place yet.
pub enum Accepted {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(net::TcpStream),
}

impl Accepted {
    /// Whom the connection counts for.
    pub fn peer(&self) -> Peer {
        match self {
            Self::Unix(stream) => {
                let found = sockopt::socket_peercred(stream);
                found.map_or(Peer::Unknown, |process| Peer::User(process.uid.as_raw()))
            }
            // Of a client that has left already nothing is known.
            Self::Tcp(stream) => {
                stream.peer_addr().map_or(Peer::Unknown, |peer| Peer::Address(peer.ip().to_canonical()))
            }
        }
    }

    /// Gives the client a place among those of `shared`. To be done in the order in which clients are accepted, and before
    /// they are handed to threads that may be busy: who comes later may take the place of who has said nothing so far.
    ///
    /// # Errors
    /// Where there is no place. The connection is closed.
    pub fn admit<D: Device>(self, shared: &Shared<D>) -> Result<Admitted, ConnectionError> {
        let admission = shared.admissions.admit(self.peer())?;
        Ok(Admitted { accepted: self, admission })
    }
}

/// A client that has a place, not yet bound to a runtime: send it to the thread that shall serve it.
pub struct Admitted {
    accepted: Accepted,
    admission: Admission,
}

impl Admitted {
    /// Serves the client within the runtime this is polled in; see [`crate::serve_connection`]. `shared` is what it was
    /// admitted to.
    ///
    /// # Errors
    /// See [`crate::serve_connection`].
    pub async fn serve<D: Device>(
        self,
        shared: &Shared<D>,
        shutdown: Shutdown,
    ) -> Result<(), ConnectionError> {
        let Admitted { accepted, admission } = self;
        match accepted {
            Accepted::Unix(stream) => {
                // The default holds no two replies of 128 KiB. No matter if the system allows less.
                let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
                let stream = tokio::net::UnixStream::from_std(stream)?;
                serve_admitted(stream, admission, shared, shutdown).await
            }
            Accepted::Tcp(stream) => {
                let stream = tokio::net::TcpStream::from_std(stream)?;
                serve_admitted(stream, admission, shared, shutdown).await
            }
        }
    }
}
