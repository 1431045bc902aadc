//! Switches of threads where a task does not wait.
//!
//! The tasks of a server run on several threads. Between two entries of the engine's critical section, also
//! without an await in between, other tasks may change the drive. Here one thread polls all tasks, so such a
//! switch is made on purpose: with a task that is polled, another one comes along, and is polled before one
//! of the entries of the first.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    static COMPANION: RefCell<Option<Companion>> = const { RefCell::new(None) };
}

/// A task that comes along.
pub(crate) struct Companion {
    /// Entries of the other task before it is polled.
    entries: u64,
    future: BoxFuture,
    waker: Waker,
    /// Called when it is polled.
    begin: Box<dyn FnOnce()>,
}

/// What became of it.
pub(crate) enum Came {
    /// It was not polled.
    Along(BoxFuture),
    /// It was polled and waits.
    Waits(BoxFuture),
    /// It was polled to its end.
    Ended,
    /// It has panicked.
    Panicked(Box<dyn Any + Send>),
}

impl Companion {
    pub(crate) fn new(entries: u64, future: BoxFuture, waker: Waker, begin: impl FnOnce() + 'static) -> Self {
        Companion { entries, future, waker, begin: Box::new(begin) }
    }

    /// Runs `poll` with the task along.
    pub(crate) fn come_along<T>(self, poll: impl FnOnce() -> T) -> (T, Came) {
        CAME.set(None);
        COMPANION.set(Some(self));
        let result = poll();
        let left = COMPANION.take();
        let came = CAME.take().or(left.map(|companion| Came::Along(companion.future)));
        (result, came.unwrap_or(Came::Ended))
    }
}

thread_local! {
    static CAME: RefCell<Option<Came>> = const { RefCell::new(None) };
}

/// Called before each entry of the critical section, for [`drive::OpenOptions::before_entry`].
pub(crate) fn before_entry() {
    let due = COMPANION.with_borrow_mut(|companion| match companion {
        Some(Companion { entries: 0, .. }) => companion.take(),
        Some(companion) => {
            companion.entries -= 1;
            None
        }
        None => None,
    });
    let Some(Companion { mut future, waker, begin, .. }) = due else { return };
    begin();
    let poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
    let polled = catch_unwind(AssertUnwindSafe(poll));
    let came = match polled {
        Ok(Poll::Pending) => Came::Waits(future),
        Ok(Poll::Ready(())) => Came::Ended,
        Err(panic) => Came::Panicked(panic),
    };
    CAME.set(Some(came));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_companion_is_polled_once_before_its_entry() {
        for (entries, expected) in [(0, "aXbcd"), (1, "abXcd"), (2, "abcXd"), (3, "abcdX")] {
            let said = Arc::new(Mutex::new(String::new()));
            let say = |letter: char| said.lock().expect("no panic").push(letter);
            let theirs = said.clone();
            let future: BoxFuture = Box::pin(async move { theirs.lock().expect("no panic").push('X') });
            let companion = Companion::new(entries, future, Waker::noop().clone(), || {});
            let ((), came) = companion.come_along(|| {
                say('a');
                for letter in ['b', 'c', 'd'] {
                    before_entry();
                    say(letter);
                }
            });
            match came {
                Came::Along(mut future) => {
                    assert_eq!(entries, 3);
                    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    assert!(polled.is_ready());
                }
                came => assert!(matches!(came, Came::Ended), "{entries}"),
            }
            assert_eq!(*said.lock().expect("no panic"), expected);
        }
    }
}
