//! The client that a request comes from, for requests that wait before they begin.
//!
//! A request may wait for minutes until the device can begin it. If its client leaves meanwhile, another
//! client may write the same place, and the request would undo that. So whatever waits is given up as soon as
//! the client has left, and asks whether the client is there once it could begin:
//!
//! ```text
//! request      -- waits --> ask --------------------------> begin, or fail with Shutdown
//! connection               \--> looks at its socket --> answer
//! ```

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::future::{Either, select};
use futures::task::AtomicWaker;
use tokio::sync::watch;

use crate::DeviceError;

/// Presence of the client of a connection, as last answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stay {
    /// It is there.
    Here,
    /// It may wait for replies, but the connection ends: it sends no more requests, or the server closes.
    Ending,
    /// It has left, or may have.
    Left,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    stay: Stay,
    /// Number of the last question that was answered.
    answered: u64,
}

#[derive(Debug)]
struct ClientState {
    known: watch::Sender<Known>,
    /// Number of the last question.
    asked: AtomicU64,
    /// Of the task of the connection.
    task: AtomicWaker,
}

/// A connection, which knows its client. Its requests take the client to have left when it is dropped.
#[derive(Debug)]
pub struct Connection(Arc<ClientState>);

/// The client of a request. The default is one that stays, for requests of the same process.
#[derive(Clone, Debug, Default)]
pub struct Requester(Option<Arc<ClientState>>);

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

impl Connection {
    /// Creates a connection whose client is there.
    pub fn new() -> Connection {
        Connection(Arc::new(ClientState {
            known: watch::Sender::new(Known { stay: Stay::Here, answered: 0 }),
            asked: AtomicU64::new(0),
            task: AtomicWaker::new(),
        }))
    }

    /// The client, for requests.
    pub fn requester(&self) -> Requester {
        Requester(Some(Arc::clone(&self.0)))
    }

    /// Returns whether requests ask for the client. Otherwise the next one that asks wakes the task. Then
    /// call [`Connection::answer`].
    pub fn poll_asked(&self, cx: &mut Context<'_>) -> bool {
        // First: a question after the look below wakes the task.
        self.0.task.register(cx.waker());
        self.0.asked.load(Ordering::SeqCst) > self.0.known.borrow().answered
    }

    /// Returns whether an answer reported that the client has left.
    pub fn has_left(&self) -> bool {
        self.0.known.borrow().stay == Stay::Left
    }

    /// Answers all questions so far. `look` returns the presence of the client now. A client that has left
    /// does not come back.
    pub fn answer(&self, look: impl FnOnce() -> Stay) {
        // First: what is asked after the look is not answered by it.
        let answered = self.0.asked.load(Ordering::SeqCst);
        let found = look();
        self.0.known.send_if_modified(|known| {
            let stay = known.stay.max(found);
            let is_new = stay != known.stay || answered != known.answered;
            *known = Known { stay, answered };
            is_new
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.answer(|| Stay::Left);
    }
}

impl Requester {
    /// Waits until the connection ends, or the client has left.
    pub async fn ends(&self) {
        self.known(|known| known.stay >= Stay::Ending).await;
    }

    /// Asks the connection for the client.
    pub async fn ask(&self) -> Stay {
        let Some(shared) = &self.0 else { return Stay::Here };
        let question = shared.asked.fetch_add(1, Ordering::SeqCst) + 1;
        shared.task.wake();
        self.known(|known| known.stay == Stay::Left || known.answered >= question).await
    }

    /// Waits for something before a request begins. A future that is ready at once costs nothing.
    ///
    /// # Errors
    /// [`DeviceError::Shutdown`] if the client left meanwhile: the request must not begin.
    pub async fn during<T>(&self, wait: impl Future<Output = T>) -> Result<T, DeviceError> {
        let mut wait = pin!(wait);
        let at_once = poll_fn(|cx| {
            Poll::Ready(match wait.as_mut().poll(cx) {
                Poll::Ready(done) => Some(done),
                Poll::Pending => None,
            })
        });
        if let Some(done) = at_once.await {
            return Ok(done);
        }
        let left = pin!(self.known(|known| known.stay == Stay::Left));
        match select(left, wait).await {
            Either::Left(_) => Err(DeviceError::Shutdown),
            Either::Right((done, _)) => match self.ask().await {
                Stay::Left => Err(DeviceError::Shutdown),
                Stay::Here | Stay::Ending => Ok(done),
            },
        }
    }

    /// Waits until this is known.
    async fn known(&self, is_it: impl FnMut(&Known) -> bool) -> Stay {
        let Some(shared) = &self.0 else { return std::future::pending().await };
        // The sender lives as long as this.
        shared.known.subscribe().wait_for(is_it).await.map_or(Stay::Left, |known| known.stay)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures::FutureExt;
    use futures::executor::block_on;

    use super::*;

    fn is_asked(connection: &Connection) -> bool {
        connection.poll_asked(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_waited_begins_only_if_the_client_is_there_then() {
        for (found, begins) in [(Stay::Here, true), (Stay::Ending, true), (Stay::Left, false)] {
            let connection = Connection::new();
            let requester = connection.requester();
            let (done, wait) = futures::channel::oneshot::channel::<()>();
            let mut waiting = pin!(requester.during(wait));
            assert!(waiting.as_mut().now_or_never().is_none());
            assert!(!is_asked(&connection), "it could not begin anyway");
            done.send(()).expect("it waits");
            assert!(waiting.as_mut().now_or_never().is_none(), "not before the connection has looked");
            assert!(is_asked(&connection));
            connection.answer(|| found);
            assert!(!is_asked(&connection));
            assert_eq!(block_on(waiting).is_ok(), begins, "{found:?}");
        }
    }

    #[test]
    fn a_wait_ends_when_the_client_leaves() {
        for is_dropped in [false, true] {
            let connection = Connection::new();
            let requester = connection.requester();
            let mut waiting = pin!(requester.during(std::future::pending::<()>()));
            connection.answer(|| Stay::Ending);
            assert!(waiting.as_mut().now_or_never().is_none(), "it may wait for replies");
            assert!(requester.ends().now_or_never().is_some());
            match is_dropped {
                true => drop(connection),
                false => connection.answer(|| Stay::Left),
            }
            assert_eq!(waiting.now_or_never(), Some(Err(DeviceError::Shutdown)));
            assert_eq!(requester.ask().now_or_never(), Some(Stay::Left));
        }
    }

    #[test]
    fn what_does_not_wait_asks_nobody() {
        let connection = Connection::new();
        assert_eq!(connection.requester().during(std::future::ready(1)).now_or_never(), Some(Ok(1)));
        assert!(!is_asked(&connection));
        let (_done, wait) = futures::channel::oneshot::channel::<()>();
        assert!(Requester::default().during(wait).now_or_never().is_none());
        assert_eq!(Requester::default().ask().now_or_never(), Some(Stay::Here));
    }

    #[test]
    fn a_question_after_the_look_is_not_answered_by_it() {
        let connection = Connection::new();
        let requester = connection.requester();
        let mut late = pin!(requester.ask());
        connection.answer(|| {
            assert!(late.as_mut().now_or_never().is_none());
            Stay::Here
        });
        assert!(late.as_mut().now_or_never().is_none());
        assert!(is_asked(&connection));
        connection.answer(|| Stay::Left);
        assert_eq!(block_on(late), Stay::Left);
    }
}
