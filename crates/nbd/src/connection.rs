//! One connection, from the greeting to its end.

mod answers;
mod buffers;
mod entry;
mod execute;
pub mod front_end;
mod fuse_connection;
mod fuse_requests;
mod handshake;
mod input;
mod output;
mod planted;
mod transmission;
mod transmit;
pub mod ublk_queue;
mod ublk_requests;

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use device::Device;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_rustls::server::TlsStream;

use crate::audit::Refused;
use crate::audit::refusal::RefusalReason;
use crate::connection::entry::{Begun, Entry};
use crate::connection::front_end::{Carrier, FrontEnd};
use crate::connection::fuse_connection::serve_fuse;
use crate::connection::handshake::{Channel, Handshake, Negotiated, greet};
use crate::connection::transmit::transmit;
use crate::connection::ublk_requests::serve_ublk;
use crate::error::ConnectionError;
use crate::exports::Exports;
use crate::exports::sessions::Client;
use crate::limits::admission::Admission;
use crate::limits::config::TlsPolicy;
use crate::peers::peer::Peer;
use crate::peers::presence::Presence;
use crate::peers::writer::Writer;
use crate::shutdown::Shutdown;
use crate::trust::identity::Identity;

/// Longest wait for the peer when closing TLS.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one client over `stream` until it leaves, fails, its export is removed, or `shutdown` is requested.
///
/// Everything runs within the returned future: device futures are polled by it and are dropped with it (see
/// [`Device`] for the consequences), so let it finish. Requires the timer of a tokio runtime. The connection
/// and its memory are charged to `exports`; the connection also counts for `peer`. `presence` returns what
/// the stream knows of its client now: requests of a client that has left must not be carried out after those
/// of the next one.
///
/// # Errors
/// The reason why the connection ended, unless the client disconnected or shutdown was requested. The caller
/// can only log it.
pub async fn serve_connection<S, D>(
    stream: S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    peer: Peer,
    exports: &Exports<D>,
    shutdown: Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let admission = exports.resources.admissions.admit(peer)?;
    serve_admitted(stream, presence, None, admission, exports, shutdown).await
}

/// Serves a client that has a place. `presence` returns what the stream knows of the client now; `carrier`
/// is how such streams carry descriptors, if they can.
#[tracing::instrument(
    name = "client",
    level = "debug",
    skip_all,
    fields(number = admission.number(), peer = %admission.peer()),
)]
pub(crate) async fn serve_admitted<S, D>(
    mut stream: S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    carrier: Option<Carrier<S>>,
    mut admission: Admission,
    exports: &Exports<D>,
    mut shutdown: Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let tls = exports.tls();
    let client = Client { number: admission.number(), peer: admission.peer(), identity: None };
    let peer = client.peer;
    let refused = |error: ConnectionError| {
        if let Some(reason) = RefusalReason::of(&error) {
            exports.resources.audit.refused(reason, Refused::peer(peer), &error);
        }
        error
    };
    let mut limits = Limits {
        patience: pin!(admission.patience(&exports.resources.config)),
        closed: admission.closed(),
        stopped: shutdown.clone(),
    };
    let negotiation = async {
        let padding = greet(&mut stream).await?;
        admission.heard();
        let mut handshake = Handshake::new(exports, &tls, &mut admission, &client, padding, Channel::Plain);
        let end = handshake.run(&mut stream, carrier).await?;
        Ok((end, padding))
    };
    let Some((end, padding)) = limits.hold(negotiation).await.map_err(refused)? else { return Ok(()) };
    match (end, &tls) {
        (Negotiated::Over, _) => Ok(()),
        (Negotiated::Transmission(entry), _) => {
            run_transmission(&client, &mut stream, presence, entry, exports, &mut shutdown)
                .await
                .map_err(refused)
        }
        (Negotiated::StartTls, TlsPolicy::Off) => Ok(()),
        (Negotiated::StartTls, TlsPolicy::Required(config)) => {
            let negotiation = async {
                let mut stream = config.accept(stream).await?;
                let chain = stream.get_ref().1.peer_certificates();
                let identity = chain.and_then(Identity::of).map(Arc::new);
                let client = Client { identity, ..client };
                let end = Handshake::new(exports, &tls, &mut admission, &client, padding, Channel::Tls)
                    .run(&mut stream, None)
                    .await?;
                Ok((end, stream, client))
            };
            let Some((end, mut stream, client)) = limits.hold(negotiation).await.map_err(refused)? else {
                return Ok(());
            };
            let result = match end {
                Negotiated::Transmission(entry) => {
                    let presence = |stream: &TlsStream<S>| presence(stream.get_ref().0);
                    run_transmission(&client, &mut stream, presence, entry, exports, &mut shutdown)
                        .await
                        .map_err(refused)
                }
                _ => Ok(()),
            };
            // Shows the client that nothing was cut off.
            let _ = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
            result
        }
    }
}

/// Runs the transmission phase once no request of a disconnected client is in flight. Records its beginning
/// and its end.
async fn run_transmission<S, D>(
    client: &Client,
    stream: &mut S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    mut entry: Entry<D>,
    exports: &Exports<D>,
    shutdown: &mut Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let Client { number, peer, identity } = client;
    let identity = identity.as_ref().map(tracing::field::display);
    let (name, read_only) = (&entry.export.name, entry.session.read_only);
    let mut end = entry.export.end();
    let begun = tokio::select! {
        biased;
        begun = entry.begin(Writer { number: *number, peer: *peer }, stream, &presence,
            &exports.resources.config) => begun,
        // Neither the removal nor the shutdown waits for other connections, or for a client that does not
        // read.
        () = end.requested() => return Ok(()),
        () = shutdown.requested() => return Ok(()),
    };
    let member = match begun {
        Ok(Begun::Transmission(member)) => member,
        Ok(Begun::Left) => {
            tracing::debug!(client = number, export = ?name, "the client left before it could send requests");
            return Ok(());
        }
        Err(error) => {
            if matches!(
                error,
                ConnectionError::Overtaken
                    | ConnectionError::InUse(_)
                    | ConnectionError::Attached
                    | ConnectionError::Unattended
            ) {
                tracing::info!(client = number, %peer, identity, export = ?name, "{error}");
            }
            return Err(error);
        }
    };
    let since = Instant::now();
    exports.resources.audit.connected();
    tracing::info!(client = number, %peer, identity, export = ?name, read_only, "client connected");
    if entry.session.is_attached_elsewhere {
        tracing::info!(
            client = number, export = ?name,
            "the client may only read: the drive is attached on this machine, and shared-writes is not set"
        );
    }
    let result = match entry.front_end.take() {
        Some(FrontEnd::Fuse(share)) => {
            serve_fuse(stream, presence, member, &entry, share, exports, shutdown).await
        }
        Some(FrontEnd::Ublk(queue)) => {
            serve_ublk(stream, presence, member, &entry, queue, exports, shutdown).await
        }
        None => transmit(stream, presence, member, &entry, exports, shutdown).await,
    };
    let seconds = since.elapsed().as_secs();
    match &result {
        Ok(()) => {
            tracing::info!(client = number, %peer, identity, export = ?name, seconds, "client disconnected");
        }
        Err(error) => {
            tracing::info!(
                client = number, %peer, identity, export = ?name, seconds, "client disconnected: {error}"
            );
        }
    }
    result
}

/// Limits that end a negotiation early.
struct Limits<'a, F> {
    patience: Pin<&'a mut F>,
    /// Notified when another client gets the place.
    closed: Arc<Notify>,
    stopped: Shutdown,
}

impl<F: Future<Output = ()>> Limits<'_, F> {
    /// Runs a negotiation. Returns `None` if shutdown came first. The end of the stream in the middle of a
    /// message becomes [`ConnectionError::UnexpectedEnd`].
    async fn hold<T>(
        &mut self,
        negotiation: impl Future<Output = Result<T, ConnectionError>>,
    ) -> Result<Option<T>, ConnectionError> {
        tokio::select! {
            biased;
            done = negotiation => match done {
                Err(ConnectionError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(ConnectionError::UnexpectedEnd)
                }
                result => result.map(Some),
            },
            () = self.closed.notified() => Err(ConnectionError::MadeRoom),
            () = &mut self.patience => Err(ConnectionError::HandshakeTimeout),
            () = self.stopped.requested() => Ok(None),
        }
    }
}
