//! A waiter sees each change.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use event_listener::Event;
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::code::wait_until;
use crate::sync::{AtomicU32, Mutex, Ordering};

struct Drive {
    core: Mutex<u32>,
    progress: Event,
    /// A condition outside the lock, as for a write outside the log, which reports its result that way.
    stored: AtomicU32,
}

impl Drive {
    fn new() -> Arc<Drive> {
        Arc::new(Drive { core: Mutex::new(0), progress: Event::new(), stored: AtomicU32::new(0) })
    }

    /// Waits like `Shared::wait_for`.
    async fn wait_for<T>(&self, mut ready: impl FnMut(&mut u32) -> Option<T>) -> T {
        wait_until(&self.progress, || ready(&mut self.core.lock())).await
    }

    /// Progresses like all code of the drive: changes state inside the lock, and notifies after it.
    fn progress_to(&self, step: u32) {
        *self.core.lock() = step;
        self.progress.notify(usize::MAX);
    }
}

fn waiter(drive: &Arc<Drive>, step: u32) -> thread::JoinHandle<()> {
    let drive = drive.clone();
    thread::spawn(move || block_on(drive.wait_for(|at| (*at >= step).then_some(()))))
}

fn join(thread: thread::JoinHandle<()>) {
    thread.join().expect("no thread panics");
}

pub(crate) fn a_change_is_seen() {
    let drive = Drive::new();
    let waiter = waiter(&drive, 1);
    drive.progress_to(1);
    join(waiter);
}

/// The first change is not the awaited one.
pub(crate) fn the_second_change_is_seen() {
    let drive = Drive::new();
    let waiter = waiter(&drive, 2);
    drive.progress_to(1);
    drive.progress_to(2);
    join(waiter);
}

pub(crate) fn a_change_is_seen_by_all() {
    let drive = Drive::new();
    let waiters = [waiter(&drive, 1), waiter(&drive, 1)];
    drive.progress_to(1);
    waiters.into_iter().for_each(join);
}

/// A waiter that is given up does not consume the notification of another.
pub(crate) fn who_gives_up_wakes_others() {
    let drive = Drive::new();
    let waiter = waiter(&drive, 1);
    let hasty = {
        let drive = drive.clone();
        thread::spawn(move || {
            let mut waiting = pin!(drive.wait_for(|at| (*at >= 1).then_some(())));
            let _ = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        })
    };
    drive.progress_to(1);
    join(hasty);
    join(waiter);
}

/// One thread takes what the other waits for, such as the right to maintenance, and returns it.
pub(crate) fn a_right_goes_round() {
    let drive = Drive::new();
    let taker = |drive: Arc<Drive>| {
        move || {
            block_on(drive.wait_for(|taken| (*taken == 0).then(|| *taken = 1)));
            drive.progress_to(0);
        }
    };
    let other = thread::spawn(taker(drive.clone()));
    taker(drive)();
    join(other);
}

/// The condition changes outside the lock, before the notification.
pub(crate) fn what_is_stored_outside_the_lock_is_seen() {
    let drive = Drive::new();
    let writer = {
        let drive = drive.clone();
        thread::spawn(move || {
            drive.stored.store(7, Ordering::Release);
            drive.progress.notify(usize::MAX);
        })
    };
    let stored = drive.wait_for(|_| match drive.stored.load(Ordering::Acquire) {
        0 => None,
        stored => Some(stored),
    });
    assert_eq!(block_on(stored), 7);
    join(writer);
}

/// Incorrect order, not used by the drive: the notification precedes the change.
pub(crate) fn notified_too_early() {
    let drive = Drive::new();
    let waiter = waiter(&drive, 1);
    drive.progress.notify(usize::MAX);
    *drive.core.lock() = 1;
    join(waiter);
}

/// Incorrect, not used by the drive: no notification.
pub(crate) fn never_notified() {
    let drive = Drive::new();
    let waiter = waiter(&drive, 1);
    *drive.core.lock() = 1;
    join(waiter);
}
