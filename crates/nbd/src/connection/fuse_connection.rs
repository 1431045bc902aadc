//! A connection that serves a FUSE file: its requests, its keeper, and who else waits for its area.
//!
//! The end of a keeper that was killed is not the end: the next one brings the area again. Meanwhile nor is a
//! failure, such as a lack of memory: nobody would connect again, and the kernel would end all requests with
//! the last descriptor. The requests in flight end, and the area is taken up anew.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use device::{Device, Stay};
use fuse::{AreaError, Share};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::connection::answers::Answers;
use crate::connection::buffers::Buffer;
use crate::connection::entry::Entry;
use crate::connection::execute::{Executor, Finished, LONG_RANGES_MAX, Request, execute};
use crate::connection::front_end::{FuseFrontEnd, GOODBYE};
use crate::connection::fuse_requests::{End, FuseRequests, is_mounted};
use crate::error::ConnectionError;
use crate::exports::Exports;
use crate::fence::Member;
use crate::fence::areas::AreaClaim;
use crate::limits::helpers::Assignment;
use crate::peers::presence::Presence;
use crate::shutdown::Shutdown;

/// Interval at which memory that was not needed is given back.
const TICK: Duration = Duration::from_secs(1);
/// Time after a failure until an area without a keeper is taken up again.
const PAUSE: Duration = Duration::from_millis(100);
/// Logged when a keeper was killed.
const UNATTENDED: &str = "the bridge of the drive's device is gone: the device works on, and fails if this server \
                          ends, too; `pumice attach` starts another bridge";
/// Logged when a server ends meanwhile.
const GIVEN_UP: &str =
    "the drive's device has no bridge here: unless one has it, its requests fail from now on";
/// Logged when requests of such a device cannot be received or answered.
const FAILED: &str = "the drive's device has no bridge, which was killed, and a request could not be received \
                      or answered: trying again";

/// Serves a FUSE file until its keeper leaves, another connection brings the area, it is unmounted, the
/// export is removed, or `shutdown` is requested. A failure ends it, too, as long as the keeper is there to
/// connect again. Without a keeper the area is taken up again.
#[tracing::instrument(level = "debug", skip_all, fields(export = ?entry.export.name))]
pub(super) async fn serve_fuse<S, D>(
    stream: &mut S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    member: Option<Arc<Member>>,
    entry: &Entry<D>,
    front_end: FuseFrontEnd,
    exports: &Exports<D>,
    shutdown: &mut Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let (config, export) = (&exports.resources.config, &entry.export.name);
    // Whoever brings an area has both.
    let Some(member) = member else { return Ok(()) };
    let Some(claim) = member.area() else { return Ok(()) };
    let share = Arc::new(front_end.share);
    let mut removed = entry.export.end();
    let stops = pin!(async {
        tokio::select! {
            () = shutdown.requested() => {}
            () = removed.requested() => {}
        }
    });
    let mut around = Around {
        export,
        stream,
        presence,
        claim,
        answers: Answers::new(&member, config.shutdown_grace),
        stops,
        keeper: Keeper::Here,
        share: Some(share.clone()),
        is_ending: false,
        is_stopping: false,
    };
    let mut is_first = true;
    let end = loop {
        let requests = device::Connection::new();
        let executor = Executor {
            device: &entry.export.device,
            member: Some(member.clone()),
            long_ranges: Semaphore::new(LONG_RANGES_MAX),
            requester: requests.requester(),
        };
        let execute = |assignment, request, buffer| execute(&executor, assignment, request, buffer);
        let drive = &*entry.export.device;
        let end = match FuseRequests::open(&share, drive, execute, config, &exports.resources.budget) {
            Ok((mut serving, count)) => {
                if std::mem::take(&mut is_first) && count > 0 {
                    tracing::info!(requests = count, "taken up from the last server of the FUSE file");
                }
                attend(&mut serving, &requests, &mut around, config.shutdown_grace).await
            }
            Err(error) => {
                // Whether the keeper is there.
                poll_fn(|cx| Poll::Ready(around.poll(cx, None))).await;
                End::Failed(error.into())
            }
        };
        let error = match end {
            End::Failed(error) if around.goes_on() && !is_damage(&error) => error,
            end => break end,
        };
        if let Some(held_back) = claim.failures().pass() {
            tracing::error!(?export, %error, held_back, "{FAILED}");
        }
        around.pause().await;
        if !around.goes_on() {
            break End::Left;
        }
        if !is_mounted(&share.device) {
            break End::Unmounted;
        }
    };
    let is_given_up = around.goes_on() && is_mounted(&share.device);
    let result = match end {
        End::Left | End::Unmounted | End::Closed => Ok(()),
        End::Expired => Err(ConnectionError::GraceExpired),
        End::Failed(error) => Err(error),
    };
    if is_given_up {
        let error = result.as_ref().err().map(tracing::field::display);
        tracing::error!(?export, error, "{GIVEN_UP}");
    }
    result
}

/// Serves an area that was taken up, until no request of it is in flight any more.
async fn attend<S, P, W, D, E, F>(
    serving: &mut FuseRequests<'_, D, E, F>,
    requests: &device::Connection,
    around: &mut Around<'_, S, P, W>,
    grace: Duration,
) -> End
where
    S: AsyncRead + Unpin,
    P: Fn(&S) -> Presence,
    W: Future<Output = ()>,
    D: Device,
    E: Fn(Option<Assignment>, Request, Buffer) -> F,
    F: Future<Output = Finished>,
{
    let mut tick = pin!(sleep(TICK));
    let (mut is_ticking, mut is_in_grace, mut seen) = (true, false, 0);
    let (mut is_asked, mut is_told) = (false, false);
    poll_fn(|cx| {
        let keeper = around.keeper;
        let is_known = around.poll(cx, serving.end.as_ref());
        if around.is_ending {
            serving.close(End::Left);
        }
        if around.keeper != keeper {
            is_ticking = true;
            tick.as_mut().reset(Instant::now() + TICK);
        }
        // Requests that wait for their turn, or for space, must not begin once the keeper has left.
        is_asked |= requests.poll_asked(cx) || serving.is_at_limit || serving.is_closing();
        if is_asked && (is_known || serving.is_closing()) {
            is_asked = false;
            requests.answer(|| match (serving.is_closing(), around.is_stopping) {
                (true, false) => Stay::Left,
                (true, true) => Stay::Ending,
                (false, _) => Stay::Here,
            });
        }
        if let Poll::Ready(end) = serving.poll(cx) {
            return Poll::Ready(end);
        }
        if serving.is_closing() && !is_told {
            is_told = true;
            // Requests that wait are told at once.
            cx.waker().wake_by_ref();
        }
        let is_over = around.is_over(serving.end.as_ref());
        if is_over != is_in_grace {
            (is_in_grace, is_ticking) = (is_over, true);
            tick.as_mut().reset(Instant::now() + if is_over { grace } else { TICK });
        } else if !is_ticking && serving.moved != seen {
            is_ticking = true;
            tick.as_mut().reset(Instant::now() + TICK);
        }
        while is_ticking && tick.as_mut().poll(cx).is_ready() {
            if is_in_grace {
                return Poll::Ready(End::Expired);
            }
            let is_killed = around.keeper == Keeper::Killed;
            if serving.moved == seen && serving.is_idle() {
                serving.release_memory();
                is_ticking = is_killed;
            } else {
                seen = serving.moved;
                serving.memory.trim();
            }
            tick.as_mut().reset(Instant::now() + TICK);
            // The kernel wakes nobody for that who waits for requests.
            if is_killed && !is_mounted(serving.device.get_ref()) {
                serving.close(End::Unmounted);
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    })
    .await
}

/// What a connection watches beside its requests.
struct Around<'a, S, P, W> {
    export: &'a str,
    stream: &'a mut S,
    presence: P,
    claim: &'a AreaClaim,
    answers: Answers,
    /// Ready when the server stops, or the export is removed.
    stops: Pin<&'a mut W>,
    keeper: Keeper,
    /// Until it is left to the next keeper.
    share: Option<Arc<Share>>,
    /// The keeper has left, another connection waits for the area, or the server stops.
    is_ending: bool,
    is_stopping: bool,
}

impl<S, P, W> Around<'_, S, P, W>
where
    S: AsyncRead + Unpin,
    P: Fn(&S) -> Presence,
    W: Future<Output = ()>,
{
    /// Looks at all of it. `end`: why no more requests are read. Returns whether it is known how the
    /// connection has ended, if it has.
    fn poll(&mut self, cx: &mut Context<'_>, end: Option<&End>) -> bool {
        if !self.is_ending {
            self.is_stopping = self.stops.as_mut().poll(cx).is_ready();
            self.keeper.poll(self.stream, cx);
            self.is_ending =
                self.is_stopping || self.claim.poll_leave(cx).is_ready() || self.keeper == Keeper::Left;
            if self.is_stopping && self.keeper == Keeper::Killed {
                tracing::error!(export = ?self.export, "{GIVEN_UP}");
            }
        }
        let is_over = self.is_over(end);
        if self.keeper == Keeper::Killed
            && !is_over
            && let Some(share) = self.share.take()
            && self.claim.leave_to_next(share)
        {
            tracing::warn!(export = ?self.export, "{UNATTENDED}");
        }
        // Until it is known how a connection has ended, nothing is answered.
        let is_known = match self.keeper {
            Keeper::Here => matches!((self.presence)(self.stream), Presence::Here | Presence::Unread),
            Keeper::Left | Keeper::Killed => true,
        };
        if !is_over {
            self.answers.poll(cx, 0, || if is_known { Presence::Here } else { Presence::Unread });
        }
        is_known
    }

    /// Returns whether the connection ends once its requests have, if no more are read because of `end`.
    fn is_over(&self, end: Option<&End>) -> bool {
        match end {
            None => self.is_ending,
            Some(End::Failed(_)) => !self.goes_on(),
            Some(_) => true,
        }
    }

    /// Returns whether the device has nobody but this connection.
    fn goes_on(&self) -> bool {
        self.keeper == Keeper::Killed && !self.is_ending
    }

    /// Waits before the area is taken up again, unless the connection ends.
    async fn pause(&mut self) {
        let mut over = pin!(sleep(PAUSE));
        poll_fn(|cx| {
            self.poll(cx, None);
            if self.is_ending { Poll::Ready(()) } else { over.as_mut().poll(cx) }
        })
        .await;
    }
}

/// Returns whether an error is one of the area, which does not pass.
fn is_damage(error: &ConnectionError) -> bool {
    let ConnectionError::Io(error) = error else { return false };
    error.get_ref().is_some_and(|inner| inner.is::<AreaError>())
}

/// What is known of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// It has the node.
    Here,
    /// It has said so.
    Left,
    /// Its connection has ended, and it has said nothing.
    Killed,
}

impl Keeper {
    /// Reads what it sends: nothing until it leaves.
    fn poll<S: AsyncRead + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) {
        let mut bytes = [0; 64];
        while *self == Keeper::Here {
            let mut read = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut read) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if read.filled().contains(&GOODBYE) => *self = Keeper::Left,
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
                Poll::Ready(_) => *self = Keeper::Killed,
            }
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
