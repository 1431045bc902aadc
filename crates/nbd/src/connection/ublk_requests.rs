//! Requests of a queue of a ublk device: executed on a thread of their own, which the driver wants (see
//! [`ublk`]). The task of the connection starts it, and tells it when to stop.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use device::Device;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};
use ublk::{Assign, IdleQueue, Options, serve};

use crate::connection::answers::Answers;
use crate::connection::entry::Entry;
use crate::connection::ublk_queue::{OPEN, OPENED, PREPARED, QueueNumber, UblkFrontEnd};
use crate::error::ConnectionError;
use crate::exports::Exports;
use crate::fence::{DROP_TIME, Member};
use crate::limits::config::{MakeRuntime, ServerConfig};
use crate::peers::presence::Presence;
use crate::shutdown::{Shutdown, ShutdownTrigger};

/// A queue on its thread. What it holds is released before the connection is told of its end.
struct Served<D> {
    queue: QueueNumber,
    character: File,
    device: Arc<D>,
    options: Options,
    /// Of the fence: those that ask wait until no request of the queue is executed any more.
    member: Option<Arc<Member>>,
    make_runtime: Option<MakeRuntime>,
    /// Longest time from a stop to the end.
    grace: Duration,
    stop: Shutdown,
    /// What the keeper is to be told.
    steps: mpsc::UnboundedSender<u8>,
    /// The keeper lets the queue send its commands.
    open: oneshot::Receiver<()>,
}

impl<D: Device> Served<D> {
    /// `held` gets what is to be dropped after the end of this thread.
    fn run(self, held: &Mutex<Option<OwnedFd>>) -> Result<(), ConnectionError> {
        // Released in the opposite order.
        let (runtime, _io) = match &self.make_runtime {
            Some(make) => make()?,
            None => {
                (Builder::new_current_thread().enable_all().build()?, Box::new(()) as Box<dyn std::any::Any>)
            }
        };
        let Served {
            queue, character, device, options, member: _member, grace, mut stop, steps, open, ..
        } = self;
        runtime.block_on(async {
            let idle = IdleQueue::new(queue.depth)?;
            *held.lock() = Some(idle.hold()?);
            // Fails if the connection has ended, which stops the queue.
            let _ = steps.send(PREPARED);
            let is_to_open = tokio::select! {
                said = open => said.is_ok(),
                () = stop.requested() => false,
            };
            if !is_to_open {
                return Ok(());
            }
            let opened = idle.open(Arc::new(character), queue.number)?;
            let _ = steps.send(OPENED);
            let mut late = stop.clone();
            let expired = async {
                late.requested().await;
                sleep(grace).await;
            };
            tokio::select! {
                served = serve(opened, device, &options, stop.requested()) => Ok(served?),
                () = expired => Err(ConnectionError::GraceExpired),
            }
        })
    }
}

/// Serves a queue until its keeper leaves, the device is stopped, the export is removed, or `shutdown` is
/// requested.
#[tracing::instrument(level = "debug", skip_all, fields(export = ?entry.export.name))]
pub(super) async fn serve_ublk<S, D>(
    stream: &mut S,
    presence: impl Fn(&S) -> Presence + Send + Sync,
    member: Option<Arc<Member>>,
    entry: &Entry<D>,
    front_end: UblkFrontEnd,
    exports: &Exports<D>,
    shutdown: &mut Shutdown,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
{
    let config = &exports.resources.config;
    let mut answers = member.as_ref().map(|member| Answers::new(member, config.shutdown_grace));
    let UblkFrontEnd { queue, character } = front_end;
    let trigger = ShutdownTrigger::new();
    let (steps, mut said) = mpsc::unbounded_channel();
    let (may_open, open) = oneshot::channel();
    let served = Served {
        queue,
        character,
        device: Arc::clone(&entry.export.device),
        options: Options { write_through: entry.session.is_uncached, assign: assign(config, &member) },
        member,
        make_runtime: config.queue_runtime.clone(),
        grace: config.shutdown_grace,
        stop: trigger.subscribe(),
        steps,
        open,
    };
    let mut ended = start(served)?;
    let mut talk = Talk { unsent: Vec::new(), may_open: Some(may_open) };
    let mut end = entry.export.end();
    let mut stopped = pin!(shutdown.requested());
    let mut end = pin!(end.requested());
    let mut too_late = pin!(sleep(Duration::ZERO));
    let mut is_closing = false;
    std::future::poll_fn(|cx| {
        if !is_closing {
            while let Poll::Ready(Some(step)) = said.poll_recv(cx) {
                talk.unsent.push(step);
            }
            is_closing = stopped.as_mut().poll(cx).is_ready()
                || end.as_mut().poll(cx).is_ready()
                || talk.poll_left(stream, cx).is_ready();
            let is_there = || match presence(stream) {
                Presence::Left | Presence::MayHaveLeft | Presence::SendsNoMore => Presence::Left,
                Presence::Here | Presence::Unread => Presence::Here,
            };
            if !is_closing && let Some(answers) = &mut answers {
                is_closing = answers.poll(cx, 0, is_there) == Some(Presence::Left);
            }
            if is_closing {
                trigger.trigger();
                // The thread drops its requests when the grace period ends.
                too_late.as_mut().reset(Instant::now() + config.shutdown_grace + DROP_TIME);
            }
        }
        if let Poll::Ready(result) = Pin::new(&mut ended).poll(cx) {
            // Not sent: a panic, which its thread has reported.
            return Poll::Ready(result.unwrap_or_else(|_| Err(panicked())));
        }
        if is_closing && too_late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(ConnectionError::GraceExpired));
        }
        Poll::Pending
    })
    .await
}

fn panicked() -> ConnectionError {
    io::Error::other("the thread of a ublk queue has panicked").into()
}

/// Starts the thread of a queue. Returns its result, when it has ended.
fn start<D: Device>(served: Served<D>) -> io::Result<oneshot::Receiver<Result<(), ConnectionError>>> {
    let (tell, ended) = oneshot::channel();
    let name = format!("ublk-{}", served.queue.number);
    let held = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&held);
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || served.run(&kept))?;
    std::thread::Builder::new().name(format!("{name}-end")).spawn(move || {
        if let Ok(result) = thread.join() {
            held.lock().take();
            // Nobody waits for it if the connection was dropped.
            let _ = tell.send(result);
        }
    })?;
    Ok(ended)
}

/// How large requests of a queue find a helper.
fn assign(config: &ServerConfig, member: &Option<Arc<Member>>) -> Option<Assign> {
    let (helpers, member) = (Arc::clone(config.helpers.as_ref()?), member.clone());
    Some(Arc::new(move || {
        let assignment = helpers.assign()?;
        let runtime = assignment.handle();
        Some(ublk::Assignment { runtime, held: Box::new((assignment, member.clone())) })
    }))
}

/// What the keeper and the server say to each other.
struct Talk {
    unsent: Vec<u8>,
    /// `None` once the keeper has said it.
    may_open: Option<oneshot::Sender<()>>,
}

impl Talk {
    /// Ready when the keeper has left.
    fn poll_left<S>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        while !self.unsent.is_empty() {
            match Pin::new(&mut *stream).poll_write(cx, &self.unsent) {
                Poll::Pending => break,
                Poll::Ready(Ok(sent)) if sent > 0 => drop(self.unsent.drain(..sent)),
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
        let mut bytes = [0; 64];
        loop {
            let mut read = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut read) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    if read.filled().contains(&OPEN)
                        && let Some(may_open) = self.may_open.take()
                    {
                        // Its thread may have ended.
                        let _ = may_open.send(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
    }
}
