//! The right to write to a backing that other machines reach too. It ends by itself at a certain time, unless somebody
//! who made sure that it still holds extends it. What a process does after it was stopped for a while waits until
//! then.
//!
//! See `docs/design/durability.md`, *One owner*.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// A clock in nanoseconds that never goes back, and goes on while the machine is suspended.
pub type LeaseClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A right to write that ends by itself. Shared by those who use it and the one who extends it.
pub struct Lease {
    clock: LeaseClock,
    /// By the clock. 0: not now, or no more.
    until: AtomicU64,
    /// Why it is lost for good.
    lost: OnceLock<String>,
    changed: Notify,
    /// Operations that change the backing, between their begin and their end.
    in_flight: AtomicU64,
    /// Somebody stopped waiting for such an operation: it may still happen.
    abandoned: AtomicBool,
}

impl Lease {
    /// A lease that does not hold yet.
    pub fn new(clock: LeaseClock) -> Lease {
        Lease {
            clock,
            until: AtomicU64::new(0),
            lost: OnceLock::new(),
            changed: Notify::new(),
            in_flight: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Time by its clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Returns whether it holds at this moment.
    pub fn holds(&self) -> bool {
        self.now() < self.until.load(Relaxed)
    }

    /// Lets it hold until this time. To be called by one task alone.
    pub fn extend(&self, until: u64) {
        if self.lost.get().is_none() {
            self.until.store(until, Release);
            self.changed.notify_waiters();
        }
    }

    /// Ends it. Whoever needs it waits, until it is extended or lost.
    pub fn suspend(&self) {
        self.until.store(0, Release);
    }

    /// Ends it for good. Whoever needs it gets this reason.
    pub fn lose(&self, why: &str) {
        // The first reason stays.
        let _ = self.lost.set(why.to_string());
        self.suspend();
        self.changed.notify_waiters();
    }

    /// Returns once it holds.
    ///
    /// # Errors
    ///
    /// The reason, if it is lost for good.
    pub async fn confirm(&self) -> Result<(), String> {
        loop {
            if self.holds() {
                return Ok(());
            }
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before it looks again, so that no change is missed.
            changed.as_mut().enable();
            if let Some(why) = self.lost.get() {
                return Err(why.clone());
            }
            if !self.holds() {
                changed.await;
            }
        }
    }

    /// Begins an operation that changes the backing, once the lease holds.
    ///
    /// # Errors
    ///
    /// The reason, if it is lost for good.
    pub async fn begin(&self) -> io::Result<Changing<'_>> {
        self.confirm().await.map_err(io::Error::other)?;
        self.in_flight.fetch_add(1, Relaxed);
        Ok(Changing { lease: self, ended: false })
    }

    /// Returns whether every operation that was begun has ended: nothing will happen to the backing any more.
    pub fn is_quiet(&self) -> bool {
        self.in_flight.load(Acquire) == 0 && !self.abandoned.load(Relaxed)
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease(until {} ns)", self.until.load(Relaxed))
    }
}

/// An operation that changes the backing.
pub struct Changing<'a> {
    lease: &'a Lease,
    ended: bool,
}

impl Changing<'_> {
    /// The operation has ended.
    pub fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.lease.abandoned.store(true, Relaxed);
        }
        self.lease.in_flight.fetch_sub(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn at(now: &Arc<AtomicU64>) -> Lease {
        let now = now.clone();
        Lease::new(Arc::new(move || now.load(Relaxed)))
    }

    #[test]
    fn it_ends_by_itself_and_goes_on_when_it_is_extended() {
        let now = Arc::new(AtomicU64::new(10));
        let lease = at(&now);
        assert!(!lease.holds(), "nobody made sure yet");
        lease.extend(15);
        assert!(lease.holds());
        now.store(15, Relaxed);
        assert!(!lease.holds());
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = std::pin::pin!(lease.confirm());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        lease.extend(20);
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    }

    #[test]
    fn what_is_lost_never_comes_back() {
        let lease = at(&Arc::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = std::pin::pin!(lease.confirm());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        lease.lose("another host took the drive");
        lease.extend(u64::MAX);
        lease.lose("a later reason");
        assert!(!lease.holds());
        let why = "another host took the drive".to_string();
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(Err(why)));
    }

    #[tokio::test]
    async fn it_knows_what_may_still_happen() {
        let lease = at(&Arc::default());
        lease.extend(u64::MAX);
        let changing = lease.begin().await.expect("it holds");
        assert!(!lease.is_quiet());
        changing.end();
        assert!(lease.is_quiet());
        drop(lease.begin().await.expect("it holds"));
        assert!(!lease.is_quiet(), "nobody knows whether that has happened");
    }
}
