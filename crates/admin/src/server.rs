//! Connections of HTTP clients, with limits on their number, duration and request size.
//!
//! One request per connection. Slow clients are disconnected, and if there are too many connections the
//! oldest is closed, so that clients which hold connections open do not exclude others.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use log_limit::LogLimit;
use socket_file::SocketFile;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use crate::address::HttpAddress;
use crate::answer::answer;
use crate::monitored::Reports;

/// Pause after a failure to accept, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest request line and headers.
const REQUEST_MAX_BYTES: usize = 16 << 10;
/// Most headers.
const HEADERS_MAX: usize = 64;
/// Clients of a Unix socket that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Limits of clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. A further one ends the oldest.
    pub connections: usize,
    /// Time for the whole request line and headers.
    pub headers: Duration,
    /// Time from connecting to the last byte of the response.
    pub connection: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 64, headers: Duration::from_secs(10), connection: Duration::from_secs(30) }
    }
}

/// The server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address is open to the network.
    #[error("{0}: anyone on the network could read the status: listen on 127.0.0.1, or use --insecure")]
    Insecure(HttpAddress),
    /// The Unix socket cannot be used.
    #[error("{0}: cannot listen for HTTP: {1}")]
    Socket(HttpAddress, socket_file::Error),
    /// The system refuses.
    #[error("{0}: cannot listen for HTTP: {1}")]
    Io(HttpAddress, io::Error),
}

/// A bound socket.
enum Socket {
    /// Name that clients may use for this machine in addition to `localhost` and IP addresses; `None`: any
    /// name, because the network is trusted.
    Tcp(TcpListener, Option<String>),
    /// The file is removed before the socket is closed.
    Unix { _file: SocketFile, listener: UnixListener },
}

/// A bound address: clients can connect, and wait for [`HttpListener::serve`].
pub struct HttpListener {
    socket: Socket,
    address: HttpAddress,
}

/// A listening server. Dropping it ends the server and its connections.
pub struct HttpServer {
    address: HttpAddress,
    accepting: JoinHandle<()>,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl HttpListener {
    /// Binds the address, on the current runtime. TCP beyond this machine needs `insecure`. A Unix socket is
    /// for this user only. Resolving the name of a host may take long; see [`HttpListener::bind_at`].
    ///
    /// # Errors
    /// [`HttpError`] if the address would be open to the network, is unknown or in use.
    pub fn bind(address: &HttpAddress, insecure: bool) -> Result<HttpListener, HttpError> {
        HttpListener::bind_at(address, insecure, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// Binds the address as [`HttpListener::bind`] does. `resolve` returns the addresses of a host and port,
    /// if it has one.
    ///
    /// # Errors
    /// As for [`HttpListener::bind`].
    pub fn bind_at(
        address: &HttpAddress,
        insecure: bool,
        resolve: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
    ) -> Result<HttpListener, HttpError> {
        match address {
            HttpAddress::Tcp(host, port) => {
                let resolved = resolve(host, *port);
                let resolved = resolved.map_err(|error| HttpError::Io(address.clone(), error))?;
                HttpListener::tcp(address, host, &resolved, insecure)
            }
            HttpAddress::Unix(path) => HttpListener::unix(address, path),
        }
    }

    fn tcp(
        address: &HttpAddress,
        host: &str,
        resolved: &[SocketAddr],
        insecure: bool,
    ) -> Result<HttpListener, HttpError> {
        let failed = |error| HttpError::Io(address.clone(), error);
        let open = resolved.iter().any(|address| !address.ip().to_canonical().is_loopback());
        if open && !insecure {
            return Err(HttpError::Insecure(address.clone()));
        }
        let listener = std::net::TcpListener::bind(resolved).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        assert!(
            insecure || bound.ip().to_canonical().is_loopback(),
            "not open to the network unless allowed"
        );
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let name = (!open).then(|| host.to_string());
        let address = HttpAddress::Tcp(bound.ip().to_string(), bound.port());
        Ok(HttpListener { socket: Socket::Tcp(listener, name), address })
    }

    fn unix(address: &HttpAddress, path: &Path) -> Result<HttpListener, HttpError> {
        let (listener, file) =
            socket_file::listen(path, BACKLOG).map_err(|error| HttpError::Socket(address.clone(), error))?;
        let listener =
            UnixListener::from_std(listener).map_err(|error| HttpError::Io(address.clone(), error))?;
        Ok(HttpListener { socket: Socket::Unix { _file: file, listener }, address: address.clone() })
    }

    /// Starts to answer clients.
    pub fn serve(self, limits: Limits, reports: Reports) -> HttpServer {
        let accepting = tokio::spawn(accept(self.socket, limits, reports));
        HttpServer { address: self.address, accepting }
    }
}

impl HttpServer {
    /// Binds the address and answers clients at once; see [`HttpListener::bind`].
    ///
    /// # Errors
    ///
    /// As for [`HttpListener::bind`].
    pub fn listen(
        address: &HttpAddress,
        insecure: bool,
        limits: Limits,
        reports: Reports,
    ) -> Result<HttpServer, HttpError> {
        Ok(HttpListener::bind(address, insecure)?.serve(limits, reports))
    }

    /// Address it listens at, with the actual port.
    pub fn address(&self) -> &HttpAddress {
        &self.address
    }
}

/// A client's connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Socket {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Socket::Tcp(listener, _) => Box::new(listener.accept().await?.0),
            Socket::Unix { listener, .. } => Box::new(listener.accept().await?.0),
        })
    }

    /// Name that clients may use for this machine in addition to `localhost` and IP addresses; `None`: any
    /// name.
    fn host(&self) -> Option<Arc<str>> {
        match self {
            Socket::Tcp(_, name) => name.as_deref().map(Arc::from),
            Socket::Unix { .. } => None,
        }
    }
}

/// Accepts clients until it is aborted.
async fn accept(socket: Socket, limits: Limits, reports: Reports) {
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    let failures = LogLimit::new();
    let host = socket.host();
    loop {
        let stream = tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    if let Some(held_back) = failures.pass() {
                        tracing::warn!(%error, held_back, "cannot accept an HTTP client");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        oldest_first.retain(|connection| !connection.is_finished());
        while oldest_first.len() >= limits.connections.max(1) {
            if let Some(oldest) = oldest_first.pop_front() {
                oldest.abort();
            }
        }
        debug_assert!(oldest_first.len() < limits.connections.max(1), "there is a place for the connection");
        oldest_first.push_back(connections.spawn(carry(stream, limits, host.clone(), reports.clone())));
    }
}

/// Serves one connection, from beginning to end.
async fn carry(stream: Box<dyn Stream>, limits: Limits, host: Option<Arc<str>>, reports: Reports) {
    let respond = service_fn(move |request: hyper::Request<Incoming>| {
        let response = answer(&request, host.as_deref(), || reports());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_buf_size(REQUEST_MAX_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), respond);
    match tokio::time::timeout(limits.connection, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended"),
        Err(_) => tracing::debug!("an HTTP client was too slow"),
    }
}
