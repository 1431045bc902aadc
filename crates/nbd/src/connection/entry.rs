//! The step from the handshake into transmission: behind the [fence](crate::fence), then the reply that lets
//! the client send requests.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use device::Device;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::connection::front_end::FrontEnd;
use crate::error::ConnectionError;
use crate::exports::export::Chosen;
use crate::fence::areas::{AreaClaim, Claimed, Heir};
use crate::fence::{Attached, BridgeArrival, DROP_TIME, Member, Question};
use crate::limits::config::ServerConfig;
use crate::peers::presence::Presence;
use crate::peers::writer::Writer;
use crate::wire::operation::Session;
use crate::wire::option_reply::push_reply;
use crate::wire::protocol::{OPT_GO, REP_ERR_POLICY};

/// Waiting time from which the log reports why a client waited.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// Interval of checks of a waiting client.
const LOOK: Duration = Duration::from_secs(1);

/// Longest time for sending a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// A session that was negotiated. The client does not know yet.
pub(crate) struct Entry<D> {
    pub(crate) export: Chosen<D>,
    pub(crate) session: Session,
    /// Where requests come from, if not from the stream.
    pub(crate) front_end: Option<FrontEnd>,
    /// How it arrived, if the client is the bridge of an attached drive.
    pub(crate) bridge: Option<BridgeArrival>,
    /// The option by which the client chose the export.
    pub(crate) option: u32,
    /// The reply to it.
    pub(crate) answer: Vec<u8>,
}

/// Result of the step.
pub(crate) enum Begun {
    /// The client may send requests. With the membership of the connection, which is to be kept until its
    /// last request has ended; without one, the client may only read.
    Transmission(Option<Arc<Member>>),
    /// The client has left. Nothing that it sent is carried out.
    Left,
}

impl<D: Device> Entry<D> {
    /// Waits until no request of a disconnected client is in flight, then lets the client send requests.
    ///
    /// # Errors
    /// [`ConnectionError::UnderWay`] if such requests did not end in time. The client gets a reply.
    /// [`ConnectionError::InUse`] if a bridge finds other clients with write access. The client gets a reply.
    /// [`ConnectionError::Attached`] if the device was attached in the meantime.
    /// [`ConnectionError::Unattended`] if a bridge is new, and another one that was killed has left its
    /// device to this server. The client gets a reply.
    /// [`ConnectionError::Overtaken`] if the requests that this client has sent must no longer be carried
    /// out.
    pub(crate) async fn begin<S: AsyncWrite + Unpin>(
        &self,
        writer: Writer,
        stream: &mut S,
        presence: impl Fn(&S) -> Presence,
        config: &ServerConfig,
    ) -> Result<Begun, ConnectionError> {
        let number = writer.number;
        // Who serves the device of a read-only drive has to be alone, too.
        if self.session.read_only && self.front_end.is_none() {
            send(stream, &self.answer, config.handshake_timeout).await?;
            return Ok(Begun::Transmission(None));
        }
        // From here on the area is this process's, too, whatever becomes of the client.
        let heir = match &self.front_end {
            Some(FrontEnd::Fuse(front_end)) => Some(self.export.fence().areas().wait_for(front_end.id)),
            _ => None,
        };
        let is_kept = heir.is_some();
        let mut question = self.export.fence().ask();
        if !self.wait(&mut question, (number, is_kept), stream, &presence, config).await? {
            return Ok(Begun::Left);
        }
        let attached = match self.bridge {
            Some(arrival) => {
                match self
                    .attach(&mut question, arrival, (number, is_kept), stream, &presence, config)
                    .await?
                {
                    Some(attached) => Some(attached),
                    None => return Ok(Begun::Left),
                }
            }
            None => None,
        };
        let claim = match heir {
            Some(heir) => match claim(heir, || presence(stream), config.fence_timeout).await {
                Claim::Claimed(claim) => Some(claim),
                Claim::Overtaken => return Ok(Begun::Left),
                Claim::UnderWay => {
                    let error = ConnectionError::UnderWay(Vec::new());
                    self.refuse(&error, stream).await?;
                    return Err(error);
                }
            },
            None => None,
        };
        question.check_client(|| presence(stream));
        let sent = send(stream, &self.answer, config.handshake_timeout).await;
        // A keeper that was killed leaves its area to this server, which serves it.
        if !is_kept {
            sent?;
        }
        // Not before the client has taken the reply, for which others must not wait.
        let (member, is_overtaken) = question.join(writer, attached, claim, &self.export.sharing)?;
        match presence(stream) {
            Presence::Left if !is_kept => Ok(Begun::Left),
            Presence::MayHaveLeft if is_overtaken => Err(ConnectionError::Overtaken),
            // A client that sends no more may have sent all its requests ahead. Connections that ask wait for
            // them too.
            _ => Ok(Begun::Transmission(Some(member))),
        }
    }

    /// Attaches the device, for a bridge. One that returns has a device that is in use: others lose their
    /// write access, and are waited for. Returns `None` if the client left in the meantime.
    async fn attach<S: AsyncWrite + Unpin>(
        &self,
        question: &mut Question,
        arrival: BridgeArrival,
        (number, is_kept): (u64, bool),
        stream: &mut S,
        presence: impl Fn(&S) -> Presence,
        config: &ServerConfig,
    ) -> Result<Option<Attached>, ConnectionError> {
        // What is left of a device that is being removed ends at once.
        let unserved = pin!(self.export.fence().areas().unserved());
        if arrival == BridgeArrival::New && timeout(DROP_TIME, unserved).await.is_err() {
            self.refuse(&ConnectionError::Unattended, stream).await?;
            return Err(ConnectionError::Unattended);
        }
        loop {
            match self.export.fence().attach(arrival, &self.export.sharing) {
                Ok(attached) => return Ok(Some(attached)),
                Err(writers) if arrival == BridgeArrival::New => {
                    let error = ConnectionError::InUse(writers);
                    self.refuse(&error, stream).await?;
                    return Err(error);
                }
                Err(_) => {
                    *question = self.export.fence().ask();
                    if !self.wait(question, (number, is_kept), stream, &presence, config).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Tells the client why it cannot have the export, if the option has replies for that.
    async fn refuse<S: AsyncWrite + Unpin>(
        &self,
        error: &ConnectionError,
        stream: &mut S,
    ) -> Result<(), ConnectionError> {
        if self.option != OPT_GO {
            return Ok(());
        }
        let mut refusal = Vec::new();
        push_reply(&mut refusal, OPT_GO, REP_ERR_POLICY, &[error.to_string().as_bytes()]);
        send(stream, &refusal, REFUSAL_TIMEOUT).await
    }

    /// Waits for the answers to a question. Returns false if the client left in the meantime. One that has
    /// brought an area (`is_kept`) cannot try again once it was killed: its connection waits on.
    async fn wait<S: AsyncWrite + Unpin>(
        &self,
        question: &mut Question,
        (number, is_kept): (u64, bool),
        stream: &mut S,
        presence: impl Fn(&S) -> Presence,
        config: &ServerConfig,
    ) -> Result<bool, ConnectionError> {
        let export = &self.export.name;
        let since = Instant::now();
        let mut is_late = false;
        loop {
            match question.check_client(|| presence(stream)) {
                Presence::Left if !is_kept => return Ok(false),
                Presence::MayHaveLeft if question.is_overtaken() => return Err(ConnectionError::Overtaken),
                _ => {}
            }
            if timeout(LOOK.min(config.fence_timeout), question.answered()).await.is_ok() {
                break;
            }
            // Connections whose clients have left end when the grace period does.
            if !is_late && since.elapsed() >= config.shutdown_grace + DROP_TIME {
                is_late = true;
                tracing::warn!(
                    client = number, ?export, waits_for = ?question.missing(),
                    "the client waits for others that have left or whose threads do not respond: their requests do \
                     not end"
                );
            }
            let may_have_left = || matches!(presence(stream), Presence::Left | Presence::MayHaveLeft);
            if since.elapsed() >= config.fence_timeout && !(is_kept && may_have_left()) {
                let error = ConnectionError::UnderWay(question.missing());
                self.refuse(&error, stream).await?;
                return Err(error);
            }
        }
        let waited = since.elapsed();
        if waited >= WORTH_A_LINE {
            let seconds = waited.as_secs();
            tracing::info!(
                client = number,
                ?export,
                seconds,
                "the client waited for requests of a connection that has ended"
            );
        }
        Ok(true)
    }
}

/// Result of [`claim`].
#[derive(Debug)]
enum Claim {
    Claimed(AreaClaim),
    /// Another connection has come for the area since.
    Overtaken,
    /// The connection that serves the area has not ended in time. The client may try again.
    UnderWay,
}

/// Claims an area, once no other connection serves it any more. A client that has left cannot try again, and
/// this process then has the last descriptors of the area: its connection waits on.
async fn claim(heir: Heir, presence: impl Fn() -> Presence, patience: Duration) -> Claim {
    let since = Instant::now();
    let mut is_late = false;
    loop {
        let mut over = match heir.claim() {
            Claimed::Claim(claim) => return Claim::Claimed(claim),
            Claimed::Overtaken => return Claim::Overtaken,
            Claimed::Served(over) => over,
        };
        // The channel carries nothing but its end.
        let is_over = timeout(LOOK.min(patience), over.changed()).await.is_ok();
        if is_over || since.elapsed() < patience {
            continue;
        }
        if !matches!(presence(), Presence::Left | Presence::MayHaveLeft) {
            return Claim::UnderWay;
        }
        if !std::mem::replace(&mut is_late, true) {
            tracing::warn!("a connection of the drive's device does not end: until it does, requests wait");
        }
    }
}

/// Sends the last reply of a negotiation.
async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: &[u8],
    patience: Duration,
) -> Result<(), ConnectionError> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    match timeout(patience, sent).await {
        Ok(sent) => sent.map_err(|error: io::Error| error.into()),
        Err(_) => Err(ConnectionError::HandshakeTimeout),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use fuse::Area;
    use futures::FutureExt;

    use super::*;
    use crate::fence::areas::{AreaId, Areas};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn area() -> AreaId {
        AreaId::of(&Area::create().expect("an area")).expect("a file")
    }

    /// Claims an area that nobody serves.
    fn free(areas: &Arc<Areas>, area: AreaId) -> AreaClaim {
        match claim(areas.wait_for(area), || Presence::Here, PATIENCE).now_or_never() {
            Some(Claim::Claimed(claim)) => claim,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_only_heir_waits_as_long_as_it_takes() {
        let (areas, area) = (Arc::new(Areas::default()), area());
        let stuck = free(&areas, area);
        let mut waiting = pin!(claim(areas.wait_for(area), || Presence::Left, PATIENCE));
        assert!(timeout(PATIENCE * 10, &mut waiting).await.is_err(), "nobody else has the area");
        drop(stuck);
        assert!(matches!(waiting.await, Claim::Claimed(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_there_is_refused_in_time() {
        let (areas, area) = (Arc::new(Areas::default()), area());
        let _stuck = free(&areas, area);
        let since = Instant::now();
        let refused = claim(areas.wait_for(area), || Presence::Here, PATIENCE).await;
        assert!(matches!(refused, Claim::UnderWay), "{refused:?}");
        assert!(since.elapsed() < PATIENCE * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_left_makes_way_for_the_next() {
        let (areas, area) = (Arc::new(Areas::default()), area());
        let stuck = free(&areas, area);
        let mut first = pin!(claim(areas.wait_for(area), || Presence::Left, PATIENCE));
        assert!(timeout(PATIENCE * 2, &mut first).await.is_err());
        let mut second = pin!(claim(areas.wait_for(area), || Presence::Here, PATIENCE));
        assert!((&mut second).now_or_never().is_none());
        let first = timeout(PATIENCE, first).await.expect("in time");
        assert!(matches!(first, Claim::Overtaken), "{first:?}");
        drop(stuck);
        assert!(matches!(second.await, Claim::Claimed(_)));
    }
}
