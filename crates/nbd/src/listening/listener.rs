//! Listening on Unix and TCP sockets.
//!
//! A [`Listener`] is bound outside any runtime, and an [`Acceptor`] belongs to one. An [`Accepted`]
//! connection that is [`Admitted`] can be sent to the runtime of another thread before it is registered
//! there.

use std::io;
use std::net::{self, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use device::Device;
use rustix::net::sockopt;
use socket_file::SocketFile;

use crate::connection::front_end::UNIX;
use crate::connection::serve_admitted;
use crate::error::ConnectionError;
use crate::exports::Exports;
use crate::limits::admission::Admission;
use crate::limits::config::{ServerConfig, TlsPolicy};
use crate::listening::address::Address;
use crate::peers::peer::Peer;
use crate::peers::presence::Presence;
use crate::shutdown::Shutdown;

const BACKLOG: i32 = 1024;

/// Send buffer of Unix sockets, in bytes. TCP sizes its own.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Keepalive of TCP clients: idle time before the first probe, interval of probes, and probes until the
/// client counts as gone. The resources of a client that is gone (a place, a drive that is to be opened
/// again) are free within two minutes. While sent data is unacknowledged, TCP retransmits instead and gives
/// up after about 15 minutes. `TCP_USER_TIMEOUT` would shorten that, but it would also disconnect clients
/// that are alive and take nothing for a while, such as a suspended machine.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Bit in the mode of a file: all users may write, and so connect to a socket.
const WRITABLE_BY_ALL: u32 = 0o002;

/// A socket that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
#[non_exhaustive]
pub enum ListenError {
    #[error("{0}: {1}")]
    Socket(Address, socket_file::Error),
    #[error("{0}: anyone on the network could use the drive: configure TLS, or use --insecure")]
    Insecure(Address),
    #[error(
        "{0}: anyone on the network could use the drive, as TLS without a client CA lets any client in: configure \
         the client CA, or use --tls-anonymous"
    )]
    Anonymous(Address),
    #[error("{0}: {1}")]
    Io(Address, io::Error),
}

impl ListenError {
    /// Returns whether this process has no permission to listen there.
    pub fn is_denied(&self) -> bool {
        let error = match self {
            ListenError::Socket(_, socket_file::Error::Io(error)) | ListenError::Io(_, error) => error,
            _ => return false,
        };
        error.kind() == io::ErrorKind::PermissionDenied
    }
}

enum Socket {
    /// The file is removed before the socket is closed. `None`: the process that bound the socket keeps its
    /// file.
    Unix(Option<SocketFile>, UnixListener),
    Tcp(TcpListener),
}

/// A bound socket that clients can already connect to. They are accepted later.
pub struct Listener {
    socket: Socket,
    address: Address,
}

impl Listener {
    /// Listens on `address`. Resolving the name of its host may take long; see [`Listener::bind_at`].
    ///
    /// # Errors
    /// See [`Listener::unix`] and [`Listener::tcp`].
    pub fn bind(address: &Address, config: &ServerConfig) -> Result<Self, ListenError> {
        Self::bind_at(address, config, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// Listens on `address`. `resolve` returns the addresses of a host and port, if it has one.
    ///
    /// # Errors
    /// As for [`Listener::bind`].
    pub fn bind_at(
        address: &Address,
        config: &ServerConfig,
        resolve: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
    ) -> Result<Self, ListenError> {
        match address {
            Address::Unix(path) => Self::unix(path),
            Address::Tcp(host, port) => {
                let resolved = resolve(host, *port);
                let resolved = resolved.map_err(|error| ListenError::Io(address.clone(), error))?;
                Self::check(address, resolved.iter().any(is_networked), config)?;
                Self::tcp_at(host, &resolved)
            }
        }
    }

    /// Listens on a Unix socket that only this user can connect to (mode 0600). A socket left by a dead
    /// server is replaced. The file is removed when the listener is dropped.
    ///
    /// # Errors
    /// [`ListenError`] if something other than a socket is at `path`, a running server uses the socket, or
    /// the system call fails.
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        let address = Address::Unix(path.to_owned());
        match socket_file::listen(path, BACKLOG) {
            Ok((listener, file)) => Ok(Self { socket: Socket::Unix(Some(file), listener), address }),
            Err(error) => Err(ListenError::Socket(address, error)),
        }
    }

    /// Listens on a Unix socket that another process has bound at `address`.
    pub(crate) fn inherited_unix(listener: UnixListener, address: &Address) -> Result<Self, ListenError> {
        let fail = |error| ListenError::Io(address.clone(), error);
        listener.set_nonblocking(true).map_err(fail)?;
        Ok(Self { socket: Socket::Unix(None, listener), address: address.clone() })
    }

    /// Listens on a TCP port that another process has bound at `address`.
    pub(crate) fn inherited_tcp(
        listener: TcpListener,
        address: &Address,
        config: &ServerConfig,
    ) -> Result<Self, ListenError> {
        let fail = |error| ListenError::Io(address.clone(), error);
        let local = listener.local_addr().map_err(fail)?;
        Self::check(address, is_networked(&local), config)?;
        listener.set_nonblocking(true).map_err(fail)?;
        expect_signs_of_life(&listener).map_err(|error| fail(error.into()))?;
        Ok(Self { socket: Socket::Tcp(listener), address: address.clone() })
    }

    /// Checks that not just anyone on a network could be a client at an address, which is not resolved:
    /// `is_networked`: whether it has a networked listener. Such an address needs TLS with client
    /// certificates, unless the configuration explicitly allows less.
    ///
    /// # Errors
    /// [`ListenError`] if the address would be open to the network.
    pub fn check(address: &Address, is_networked: bool, config: &ServerConfig) -> Result<(), ListenError> {
        match &config.tls {
            _ if !is_networked || config.insecure => Ok(()),
            TlsPolicy::Off => Err(ListenError::Insecure(address.clone())),
            TlsPolicy::Required(tls) if !tls.authenticates_clients() && !config.tls_anonymous => {
                Err(ListenError::Anonymous(address.clone()))
            }
            TlsPolicy::Required(_) => Ok(()),
        }
    }

    /// Returns whether other machines could connect: over TCP at an address that is not loopback.
    pub fn is_networked(&self) -> bool {
        match &self.socket {
            Socket::Unix(..) => false,
            Socket::Tcp(listener) => listener.local_addr().map_or(true, |local| is_networked(&local)),
        }
    }

    /// Listens on a TCP port (0: any free one).
    ///
    /// # Errors
    /// Those of [`Listener::check`]; [`ListenError`] if a system call fails.
    pub fn tcp(host: &str, port: u16, config: &ServerConfig) -> Result<Self, ListenError> {
        Self::bind(&Address::Tcp(host.to_owned(), port), config)
    }

    /// Listens on the first of these addresses of a host that is possible.
    fn tcp_at(host: &str, resolved: &[SocketAddr]) -> Result<Self, ListenError> {
        let wanted = resolved.first().map_or(0, SocketAddr::port);
        let fail = |error| ListenError::Io(Address::Tcp(host.to_owned(), wanted), error);
        let listener = TcpListener::bind(resolved).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        expect_signs_of_life(&listener).map_err(|error| fail(error.into()))?;
        let port = listener.local_addr().map_err(fail)?.port();
        Ok(Self { socket: Socket::Tcp(listener), address: Address::Tcp(host.to_owned(), port) })
    }

    /// Returns whether any user of this machine, or anyone on the network, can be a client without a
    /// certificate: over TCP, or on a Unix socket that another process has bound and made writable for all.
    pub fn is_open(&self, config: &ServerConfig) -> bool {
        let authenticated = matches!(&config.tls, TlsPolicy::Required(tls) if tls.authenticates_clients());
        let is_reachable = match (&self.socket, &self.address) {
            (Socket::Unix(None, _), Address::Unix(path)) => {
                std::fs::metadata(path).map_or(true, |file| file.mode() & WRITABLE_BY_ALL != 0)
            }
            (Socket::Unix(..), _) => false,
            (Socket::Tcp(_), _) => true,
        };
        is_reachable && !authenticated
    }

    /// Address it listens on, with the port that the system assigned.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Registers with the tokio runtime in which this is called.
    ///
    /// # Errors
    /// If the registration fails.
    pub fn register(self) -> io::Result<Acceptor> {
        Ok(match self.socket {
            Socket::Unix(file, listener) => {
                Acceptor::Unix(file, tokio::net::UnixListener::from_std(listener)?)
            }
            Socket::Tcp(listener) => Acceptor::Tcp(tokio::net::TcpListener::from_std(listener)?),
        })
    }
}

fn is_networked(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// Enables keepalive, so that the system ends connections of clients that are gone without closing them.
/// Accepted sockets inherit these options from their listener.
fn expect_signs_of_life(listener: &TcpListener) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(listener, KEEPALIVE_PROBES)
}

/// A listener within a runtime.
pub enum Acceptor {
    /// On a Unix socket. Its file, if it is the server's, is removed before the socket is closed.
    Unix(Option<SocketFile>, tokio::net::UnixListener),
    /// On a TCP port.
    Tcp(tokio::net::TcpListener),
}

impl Acceptor {
    /// Waits for the next client.
    ///
    /// # Errors
    /// Those of `accept(2)`. The listener stays usable; [`crate::AcceptFailures`] handles the failure.
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

/// A client that was accepted and has no place yet.
pub enum Accepted {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(net::TcpStream),
}

impl Accepted {
    /// Peer that the connection counts for.
    pub fn peer(&self) -> Peer {
        match self {
            Self::Unix(stream) => {
                let found = sockopt::socket_peercred(stream);
                found.map_or(Peer::Unknown, |process| Peer::User(process.uid.as_raw()))
            }
            // The address of a client that has already left is not known.
            Self::Tcp(stream) => {
                stream.peer_addr().map_or(Peer::Unknown, |peer| Peer::Address(peer.ip().to_canonical()))
            }
        }
    }

    /// Gives the client a place among those of `exports`. Call it in the order in which clients are accepted,
    /// and before they are handed to threads that may be busy: a later client may take the place of one that
    /// has sent nothing so far.
    ///
    /// # Errors
    /// If no place is free. The connection is closed.
    pub fn admit<D: Device>(self, exports: &Exports<D>) -> Result<Admitted, ConnectionError> {
        let admission = exports.resources.admissions.admit(self.peer())?;
        Ok(Admitted { accepted: self, admission })
    }
}

/// A client that has a place and is not yet bound to a runtime. Send it to the thread that is to serve it.
pub struct Admitted {
    accepted: Accepted,
    admission: Admission,
}

impl Admitted {
    /// Serves the client within the runtime in which this is polled; see [`crate::serve_connection`].
    /// `exports` is the server that admitted it.
    ///
    /// # Errors
    /// See [`crate::serve_connection`].
    pub async fn serve<D: Device>(
        self,
        exports: &Exports<D>,
        shutdown: Shutdown,
    ) -> Result<(), ConnectionError> {
        let Admitted { accepted, admission } = self;
        match accepted {
            Accepted::Unix(stream) => {
                // The default size does not hold two replies of 128 KiB. A failure is ignored: the system may
                // allow less.
                let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
                let stream = tokio::net::UnixStream::from_std(stream)?;
                serve_admitted(stream, Presence::of, Some(UNIX), admission, exports, shutdown).await
            }
            Accepted::Tcp(stream) => {
                let stream = tokio::net::TcpStream::from_std(stream)?;
                serve_admitted(stream, Presence::of_tcp, None, admission, exports, shutdown).await
            }
        }
    }
}
