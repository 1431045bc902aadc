//! One connection, from the greeting to its end.

mod answers;
mod buffers;
pub mod delivery;
mod entry;
mod execute;
mod handshake;
mod input;
mod output;
mod slots;
mod transmission;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use device::{Device, Stay};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::audit::Refused;
use crate::audit::refusal::RefusalReason;
use crate::connection::answers::Answers;
use crate::connection::delivery::Receive;
use crate::connection::entry::{Begun, Entry};
use crate::connection::execute::{Executor, LONG_RANGES_MAX, execute};
use crate::connection::handshake::{Handshake, Negotiated, greet};
use crate::connection::transmission::Transmission;
use crate::error::ConnectionError;
use crate::exports::export::Shared;
use crate::exports::sessions::Client;
use crate::fence::Member;
use crate::fence::attachment::{Carrier, Foreign};
use crate::limits::admission::Admission;
use crate::limits::budget::Lease;
use crate::limits::config::{ServerConfig, TlsPolicy};
use crate::peers::peer::Peer;
use crate::peers::presence::Presence;
use crate::peers::writer::Writer;
use crate::shutdown::Shutdown;
use crate::trust::identity::Identity;

/// Interval at which an active connection is checked for idleness.
const TICK: Duration = Duration::from_secs(1);

/// Longest wait for the peer when closing TLS.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one client over `stream` until it leaves, fails, its export is removed, or `shutdown` is requested.
///
/// Everything runs within the returned future: device futures are polled by it and are dropped with it (see
/// [`Device`] for the consequences), so let it finish. Requires the timer of a tokio runtime. The connection
/// and its memory are charged to `shared`; the connection also counts for `peer`. `presence` returns what the
/// stream knows of its client now: requests of a client that has left must not be carried out after those of
/// the next one.
///
/// # Errors
/// The reason why the connection ended, unless the client disconnected or shutdown was requested. The caller
/// can only log it.
pub async fn serve_connection<S, D>(
    stream: S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    peer: Peer,
    shared: &Shared<D>,
    shutdown: Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let admission = shared.resources.admissions.admit(peer)?;
    serve_admitted(stream, presence, None, admission, shared, shutdown).await
}

/// Serves a client that has a place. `presence` returns what the stream knows of the client now; `receive`
/// takes a descriptor from it, if such streams can carry one.
#[tracing::instrument(
    name = "client",
    level = "debug",
    skip_all,
    fields(number = admission.number(), peer = %admission.peer()),
)]
pub(crate) async fn serve_admitted<S, D>(
    mut stream: S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    receive: Option<Receive<S>>,
    mut admission: Admission,
    shared: &Shared<D>,
    mut shutdown: Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let tls = shared.tls();
    let client = Client { number: admission.number(), peer: admission.peer(), identity: None };
    let peer = client.peer;
    let refused = |error: ConnectionError| {
        if let Some(reason) = RefusalReason::of(&error) {
            shared.resources.audit.refused(reason, Refused::peer(peer), &error);
        }
        error
    };
    let mut limits = Limits {
        patience: pin!(admission.patience(&shared.resources.config)),
        closed: admission.closed(),
        stopped: shutdown.clone(),
    };
    let negotiation = async {
        let zeroes = greet(&mut stream).await?;
        admission.heard();
        let mut handshake = Handshake::new(shared, &tls, &mut admission, &client, zeroes, false);
        let end = handshake.run(&mut stream, receive).await?;
        Ok((end, zeroes))
    };
    let Some((end, zeroes)) = limits.hold(negotiation).await.map_err(refused)? else { return Ok(()) };
    match (end, &tls) {
        (Negotiated::Over, _) => Ok(()),
        (Negotiated::Transmission(entry), _) => {
            carry(&client, &mut stream, presence, &entry, shared, &mut shutdown).await.map_err(refused)
        }
        (Negotiated::StartTls, TlsPolicy::Off) => Ok(()),
        (Negotiated::StartTls, TlsPolicy::Required(config)) => {
            let negotiation = async {
                let mut stream = config.accept(stream).await?;
                let chain = stream.get_ref().1.peer_certificates();
                let identity = chain.and_then(Identity::of).map(Arc::new);
                let client = Client { identity, ..client };
                let end = Handshake::new(shared, &tls, &mut admission, &client, zeroes, true)
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
                    carry(&client, &mut stream, presence, &entry, shared, &mut shutdown)
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

/// Runs the transmission phase once no request of a client that has left is under way, and records its
/// beginning and its end.
async fn carry<S, D>(
    client: &Client,
    stream: &mut S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    entry: &Entry<D>,
    shared: &Shared<D>,
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
            &shared.resources.config) => begun,
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
                ConnectionError::Overtaken | ConnectionError::InUse(_) | ConnectionError::Attached
            ) {
                tracing::info!(client = number, %peer, identity, export = ?name, "{error}");
            }
            return Err(error);
        }
    };
    let since = Instant::now();
    shared.resources.audit.connected();
    tracing::info!(client = number, %peer, identity, export = ?name, read_only, "client connected");
    if entry.session.is_attached_elsewhere {
        tracing::info!(
            client = number, export = ?name,
            "the client may only read: the drive is attached on this machine, and shared-writes is not set"
        );
    }
    let result = transmit(stream, presence, member, entry, shared, shutdown).await;
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

/// What requests that wait have to know of their client. One of which a TCP socket cannot tell may have left.
fn stay(presence: Presence, is_ending: bool) -> Stay {
    match presence {
        Presence::Left | Presence::MayHaveLeft => Stay::Left,
        Presence::Here | Presence::Unread | Presence::SendsNoMore if is_ending => Stay::Ending,
        Presence::Here | Presence::Unread | Presence::SendsNoMore => Stay::Here,
    }
}

/// Runs the transmission phase with its timers.
#[tracing::instrument(level = "debug", skip_all, fields(export = ?entry.export.name))]
async fn transmit<S, D>(
    stream: &mut S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    member: Option<Arc<Member>>,
    entry: &Entry<D>,
    shared: &Shared<D>,
    shutdown: &mut Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let config: &ServerConfig = &shared.resources.config;
    let lease = Lease::new(&shared.resources.budget, config.connection_buffer_bytes_max);
    let limit = config.requests_per_connection_max;
    let helpers = config.helpers.as_ref();
    let Entry { export, session, delivery, .. } = entry;
    let mut answers = member.as_ref().map(|member| Answers::new(member, config.shutdown_grace));
    let is_bridge = member.as_ref().is_some_and(|member| member.is_bridge());
    let other = member.as_ref().filter(|_| !is_bridge && export.sharing.shared_writes);
    let foreign =
        other.map(|member| Foreign { fence: Arc::clone(member.fence()), sharing: export.sharing.clone() });
    let carrier =
        member.as_ref().filter(|_| is_bridge).map(|member| Carrier::new(member.fence(), member.number()));
    let writer = member.clone();
    let requests = device::Connection::new();
    let executor = Executor {
        device: &export.device,
        member,
        delivery: delivery.clone(),
        foreign,
        long_ranges: Semaphore::new(LONG_RANGES_MAX),
        requester: requests.requester(),
    };
    let run = |place, request, buffer| execute(&executor, place, request, buffer);
    let mut transmission =
        Transmission::new(stream, &*export.device, run, helpers, *session, limit, lease).carrying(carrier);
    let mut end = export.end();
    let mut stopped = pin!(shutdown.requested());
    let mut end = pin!(end.requested());
    let mut tick = pin!(sleep(TICK));
    let mut ticking = true;
    // The client sends no more requests, and another one waits until those that it has sent are done.
    let mut ending = false;
    let mut closing = false;
    // Requests that wait know that the connection ends.
    let mut is_ended = false;
    // The bridge of an attached device was asked to flush and leave.
    let mut leaving = false;
    let mut moved_bytes = 0;
    let mut stalled_since: Option<Instant> = None;
    let mut active_at = Instant::now();
    poll_fn(|cx| {
        if !transmission.is_closing()
            && !leaving
            && (stopped.as_mut().poll(cx).is_ready() || end.as_mut().poll(cx).is_ready())
        {
            if is_bridge {
                leaving = true;
                transmission.ask_to_leave();
            } else {
                transmission.close();
            }
        }
        if !transmission.is_closing() && writer.as_ref().is_some_and(|writer| writer.is_expelled()) {
            transmission.fail(ConnectionError::Attached);
        }
        // What waits, for its turn or in the socket, must not begin once the client has left.
        if requests.poll_asked(cx) || transmission.is_at_limit() {
            requests.answer(|| stay(presence(transmission.stream()), is_ended));
            if requests.has_left() {
                transmission.close();
            }
        }
        // Before more requests are taken, and again after.
        for is_done in [false, true] {
            if let Some(answers) = &mut answers
                // Otherwise its client waits for the end of a connection that it has ended itself.
                && !transmission.is_closing()
            {
                match answers.poll(cx, transmission.received_bytes(), || presence(transmission.stream())) {
                    Some(Presence::SendsNoMore | Presence::MayHaveLeft) => ending = true,
                    Some(Presence::Left) => {
                        transmission.close();
                        if is_done {
                            // It may be over now, and nothing else might happen on it before the grace period
                            // ends.
                            cx.waker().wake_by_ref();
                        }
                    }
                    Some(Presence::Here | Presence::Unread) | None => {}
                }
            }
            if !is_done && let Poll::Ready(result) = transmission.poll(cx) {
                return Poll::Ready(result);
            }
        }
        // Otherwise the file system of a client that was killed would wait for requests that are under way
        // here.
        if transmission.is_closing()
            && let Some(delivery) = delivery
        {
            delivery.close();
        }
        if !is_ended && (leaving || transmission.is_closing()) {
            is_ended = true;
            requests.answer(|| match transmission.is_broken() {
                true => Stay::Left,
                false => stay(presence(transmission.stream()), true),
            });
        }
        let asked = answers.as_ref().is_some_and(Answers::is_due);
        if !closing && (ending || leaving || transmission.is_closing()) {
            closing = true;
            ticking = true;
            tick.as_mut().reset(Instant::now() + config.shutdown_grace);
        } else if !ticking && (asked || transmission.moved_bytes() != moved_bytes) {
            ticking = true;
            tick.as_mut().reset(Instant::now() + TICK);
        }
        while (ticking || config.idle_timeout.is_some()) && tick.as_mut().poll(cx).is_ready() {
            if closing {
                return Poll::Ready(Err(ConnectionError::GraceExpired));
            }
            transmission.send_notices(cx);
            // At one of its limits, the connection does not read, and so does not see the end of the stream.
            if let Some(delivery) = delivery
                && presence(transmission.stream()) == Presence::Left
            {
                delivery.close();
            }
            let now = Instant::now();
            let moved = transmission.moved_bytes() != moved_bytes;
            moved_bytes = transmission.moved_bytes();
            if moved || !transmission.waits_for_client() {
                stalled_since = None;
            } else {
                let since = *stalled_since.get_or_insert(now);
                if now - since >= config.stall_timeout && shared.resources.budget.is_contended() {
                    shared.resources.budget.log_stalled(transmission.held_bytes());
                    return Poll::Ready(Err(ConnectionError::Stalled));
                }
            }
            if !moved && !asked && transmission.is_idle() {
                transmission.release_memory();
                ticking = false;
                if let Some(patience) = config.idle_timeout {
                    if now - active_at >= patience {
                        return Poll::Ready(Err(ConnectionError::Idle));
                    }
                    tick.as_mut().reset(active_at + patience);
                }
            } else {
                active_at = now;
                transmission.trim_memory();
                tick.as_mut().reset(now + TICK);
            }
        }
        Poll::Pending
    })
    .await
}
