//! The transmission phase of a connection with its timers: ends that others ask for, clients that leave,
//! idleness.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use device::{Device, Stay};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep};

use crate::connection::answers::Answers;
use crate::connection::buffers::Buffer;
use crate::connection::entry::Entry;
use crate::connection::execute::{Executor, Finished, LONG_RANGES_MAX, Request, execute};
use crate::connection::transmission::Transmission;
use crate::error::ConnectionError;
use crate::exports::Exports;
use crate::exports::resources::Resources;
use crate::fence::Member;
use crate::limits::budget::Lease;
use crate::limits::config::ServerConfig;
use crate::limits::helpers::Assignment;
use crate::peers::presence::Presence;
use crate::shutdown::Shutdown;

/// Interval at which an active connection is checked for idleness.
const TICK: Duration = Duration::from_secs(1);

/// Runs the transmission phase.
#[tracing::instrument(level = "debug", skip_all, fields(export = ?entry.export.name))]
pub(super) async fn transmit<S, D>(
    stream: &mut S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    member: Option<Arc<Member>>,
    entry: &Entry<D>,
    exports: &Exports<D>,
    shutdown: &mut Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let resources = &*exports.resources;
    let config: &ServerConfig = &resources.config;
    let Entry { export, session, .. } = entry;
    let answers = member.as_ref().map(|member| Answers::new(member, config.shutdown_grace));
    let requests = device::Connection::new();
    let executor = Executor {
        device: &export.device,
        member: member.clone(),
        long_ranges: Semaphore::new(LONG_RANGES_MAX),
        requester: requests.requester(),
    };
    let run = |assignment, request, buffer| execute(&executor, assignment, request, buffer);
    let lease = Lease::new(&resources.budget, config.connection_buffer_bytes_max);
    let limit = config.requests_per_connection_max;
    let helpers = config.helpers.as_ref();
    let transmission = Transmission::new(stream, &*export.device, run, helpers, *session, limit, lease);
    let mut course = Course {
        transmission,
        presence,
        member,
        requests,
        answers,
        resources,
        sends_no_more: false,
        is_end_told: false,
        is_in_grace: false,
        is_ticking: true,
        activity: Activity { moved_bytes: 0, at: Instant::now(), stalled_since: None },
    };
    let mut end = export.end();
    let mut stopped = pin!(shutdown.requested());
    let mut end = pin!(end.requested());
    let mut tick = pin!(sleep(TICK));
    poll_fn(|cx| {
        if !course.transmission.is_closing()
            && (stopped.as_mut().poll(cx).is_ready() || end.as_mut().poll(cx).is_ready())
        {
            course.transmission.close();
        }
        match course.poll(cx) {
            Poll::Pending => course.poll_tick(cx, tick.as_mut()),
            ended @ Poll::Ready(_) => ended,
        }
    })
    .await
}

/// A connection in the transmission phase, with all that can end it.
struct Course<'a, S, D, E, F, P> {
    transmission: Transmission<'a, S, D, E, F>,
    /// Returns what the stream knows of its client now.
    presence: P,
    member: Option<Arc<Member>>,
    /// Those that may wait for others.
    requests: device::Connection,
    /// For others who ask whether this client is there.
    answers: Option<Answers>,
    resources: &'a Resources,
    /// The client sends no more requests, and another one waits until those that it has sent are done.
    sends_no_more: bool,
    /// Requests that wait know that the connection ends.
    is_end_told: bool,
    /// The grace period for the end has begun.
    is_in_grace: bool,
    is_ticking: bool,
    activity: Activity,
}

/// When bytes last moved.
struct Activity {
    /// At the last tick.
    moved_bytes: u64,
    at: Instant,
    stalled_since: Option<Instant>,
}

impl<S, D, E, F, P> Course<'_, S, D, E, F, P>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
    E: Fn(Option<Assignment>, Request, Buffer) -> F,
    F: Future<Output = Finished>,
    P: Fn(&S) -> Presence,
{
    fn presence(&self) -> Presence {
        (self.presence)(self.transmission.stream())
    }

    /// Receives, executes and sends, and follows what becomes of the client.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if !self.transmission.is_closing() && self.member.as_ref().is_some_and(|member| member.is_expelled())
        {
            self.transmission.fail(ConnectionError::Attached);
        }
        // Requests that wait, for their turn or in the socket, must not begin once the client has left.
        if self.requests.poll_asked(cx) || self.transmission.is_at_limit() {
            self.requests.answer(|| stay(self.presence(), self.is_end_told));
            if self.requests.has_left() {
                self.transmission.close();
            }
        }
        // Before more requests are taken, and again after.
        self.answer_others(cx);
        if let Poll::Ready(result) = self.transmission.poll(cx) {
            return Poll::Ready(result);
        }
        if self.answer_others(cx) {
            // It may be over now, and nothing else might happen on it before the grace period ends.
            cx.waker().wake_by_ref();
        }
        if !self.is_end_told && self.transmission.is_closing() {
            self.is_end_told = true;
            self.requests.answer(|| match self.transmission.is_broken() {
                true => Stay::Left,
                false => stay(self.presence(), true),
            });
        }
        Poll::Pending
    }

    /// Tells others who ask whether the client is there. Returns whether it has left, and the connection
    /// closes for that.
    fn answer_others(&mut self, cx: &mut Context<'_>) -> bool {
        // Its client would wait for the end of a connection that it has ended itself.
        if self.transmission.is_closing() {
            return false;
        }
        let Some(answers) = &mut self.answers else { return false };
        let (transmission, presence) = (&self.transmission, &self.presence);
        match answers.poll(cx, transmission.received_bytes(), || presence(transmission.stream())) {
            Some(Presence::SendsNoMore | Presence::MayHaveLeft) => self.sends_no_more = true,
            Some(Presence::Left) => {
                self.transmission.close();
                return true;
            }
            Some(Presence::Here | Presence::Unread) | None => {}
        }
        false
    }

    /// Ends the connection when its time is over, and gives memory back while it is idle.
    fn poll_tick(
        &mut self,
        cx: &mut Context<'_>,
        mut tick: Pin<&mut Sleep>,
    ) -> Poll<Result<(), ConnectionError>> {
        let config = &self.resources.config;
        let is_asked = self.answers.as_ref().is_some_and(Answers::is_due);
        if !self.is_in_grace && (self.sends_no_more || self.transmission.is_closing()) {
            self.is_in_grace = true;
            self.is_ticking = true;
            tick.as_mut().reset(Instant::now() + config.shutdown_grace);
        } else if !self.is_ticking
            && (is_asked || self.transmission.moved_bytes() != self.activity.moved_bytes)
        {
            self.is_ticking = true;
            tick.as_mut().reset(Instant::now() + TICK);
        }
        while (self.is_ticking || config.idle_timeout.is_some()) && tick.as_mut().poll(cx).is_ready() {
            if self.is_in_grace {
                return Poll::Ready(Err(ConnectionError::GraceExpired));
            }
            match self.examine(is_asked) {
                Ok(Some(next)) => tick.as_mut().reset(next),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    /// Examines at a tick whether the connection is stalled, idle, or active. Returns when to look again;
    /// `None`: when something moves.
    fn examine(&mut self, is_asked: bool) -> Result<Option<Instant>, ConnectionError> {
        let (config, budget) = (&self.resources.config, &self.resources.budget);
        let (now, moved_bytes) = (Instant::now(), self.transmission.moved_bytes());
        let has_moved = moved_bytes != self.activity.moved_bytes;
        self.activity.moved_bytes = moved_bytes;
        if has_moved || !self.transmission.waits_for_client() {
            self.activity.stalled_since = None;
        } else {
            let since = *self.activity.stalled_since.get_or_insert(now);
            if now - since >= config.stall_timeout && budget.is_contended() {
                budget.log_stalled(self.transmission.held_bytes());
                return Err(ConnectionError::Stalled);
            }
        }
        if has_moved || is_asked || !self.transmission.is_idle() {
            self.activity.at = now;
            self.transmission.trim_memory();
            return Ok(Some(now + TICK));
        }
        self.transmission.release_memory();
        self.is_ticking = false;
        let Some(patience) = config.idle_timeout else { return Ok(None) };
        if now - self.activity.at >= patience {
            return Err(ConnectionError::Idle);
        }
        Ok(Some(self.activity.at + patience))
    }
}

/// Presence of a client, for requests that wait. If a TCP socket cannot tell, the client may have left.
fn stay(presence: Presence, is_ending: bool) -> Stay {
    match presence {
        Presence::Left | Presence::MayHaveLeft => Stay::Left,
        Presence::Here | Presence::Unread | Presence::SendsNoMore if is_ending => Stay::Ending,
        Presence::Here | Presence::Unread | Presence::SendsNoMore => Stay::Here,
    }
}
