//! The right to write to a backing that other machines reach too. It ends by itself at a certain time, unless
//! somebody who made sure that it still holds extends it. What a process does after it was stopped for a
//! while waits until then.
//!
//! See `docs/design/durability.md`, *One owner*.

use std::io;

use event_listener::Event;

use crate::sync::{AtomicU64, Mutex, Ordering};

/// A clock in nanoseconds that never goes back, and counts time for which the machine is suspended.
pub type LeaseClock = std::sync::Arc<dyn Fn() -> u64 + Send + Sync>;

/// Set in [`Lease::under_way`] once the lease is lost or closed. In the same word as the count, so that an
/// operation is counted before the end, or sees the end.
const ENDED: u64 = 1;
/// One operation in [`Lease::under_way`].
const OPERATION: u64 = 2;

/// The right to change a backing is lost for good; with the reason, such as the machine that has it now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LeaseLost(pub String);

/// A right to write that ends by itself. Shared by those who use it and the one who extends it.
pub struct Lease {
    clock: LeaseClock,
    /// By the clock. 0: not now, or no more.
    until: AtomicU64,
    /// Why it is lost for good.
    lost: Mutex<Option<String>>,
    changed: Event,
    /// Operations that change the backing, between their begin and their end; and [`ENDED`].
    under_way: AtomicU64,
}

impl Lease {
    /// A lease that does not hold yet.
    pub fn new(clock: LeaseClock) -> Lease {
        Lease {
            clock,
            until: AtomicU64::new(0),
            lost: Mutex::new(None),
            changed: Event::new(),
            under_way: AtomicU64::new(0),
        }
    }

    /// Time by its clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Returns whether it holds at this moment. To be asked last, just before the kernel is given an
    /// operation: whoever asks earlier may be stopped in between.
    pub fn holds(&self) -> bool {
        self.now() < self.until.load(Ordering::Relaxed)
    }

    /// Lets it hold until this time.
    pub fn extend(&self, until: u64) {
        {
            // Held while it is stored: a lease that is lost is never extended.
            let lost = self.lost.lock();
            if lost.is_some() {
                return;
            }
            self.until.store(until, Ordering::Release);
        }
        self.changed.notify(usize::MAX);
    }

    /// Ends it. Whoever needs it waits, until it is extended or lost.
    pub fn suspend(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Ends it for good. Whoever needs it gets this reason. Whether anything can still happen to the backing
    /// is to be asked afterwards ([`Lease::is_quiet`]).
    pub fn lose(&self, why: &str) {
        self.end(why);
    }

    /// Ends it for good, in order to give the backing back. Returns what is left of it, for the last write,
    /// as a lease that nobody extends; `None` if it was lost before, or if an operation is still under way.
    pub fn close(&self, why: &str) -> Option<Lease> {
        let until = self.end(why)?;
        let rest = Lease::new(self.clock.clone());
        rest.extend(until);
        self.is_quiet().then_some(rest)
    }

    /// Returns until when it was to hold, unless it had ended for good before.
    fn end(&self, why: &str) -> Option<u64> {
        let until = {
            let mut lost = self.lost.lock();
            // The first reason stays.
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| why.to_string());
            self.under_way.fetch_or(ENDED, Ordering::AcqRel);
            let until = self.until.swap(0, Ordering::AcqRel);
            is_first.then_some(until)
        };
        self.changed.notify(usize::MAX);
        until
    }

    /// Returns why it is lost for good, if it is.
    pub fn lost(&self) -> Option<String> {
        self.lost.lock().clone()
    }

    /// Returns once it holds.
    ///
    /// # Errors
    ///
    /// If it is lost for good.
    pub async fn confirm(&self) -> Result<(), LeaseLost> {
        loop {
            if self.holds() {
                return Ok(());
            }
            let changed = self.changed.listen();
            // Again, so that no change is missed.
            if let Some(why) = self.lost() {
                return Err(LeaseLost(why));
            }
            if !self.holds() {
                changed.await;
            }
        }
    }

    /// Begins an operation that changes the backing. It may be given to the kernel if the lease holds at that
    /// moment ([`Lease::holds`]).
    ///
    /// # Errors
    ///
    /// [`LeaseLost`], if it is lost for good.
    pub fn begin(&self) -> io::Result<Changing<'_>> {
        // Counted first: whoever ends the lease, and then finds it quiet, has ended it before this.
        let before = self.under_way.fetch_add(OPERATION, Ordering::Acquire);
        let changing = Changing { lease: self };
        if before & ENDED == 0 {
            return Ok(changing);
        }
        changing.end();
        Err(io::Error::other(LeaseLost(self.lost().unwrap_or_default())))
    }

    /// Returns whether every operation that was begun has ended. Once the lease is lost, nothing will happen
    /// to the backing any more then.
    pub fn is_quiet(&self) -> bool {
        self.under_way.load(Ordering::Acquire) < OPERATION
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease(until {} ns)", self.until.load(Ordering::Relaxed))
    }
}

/// An operation that changes the backing. If it is dropped without an end, somebody stopped waiting for it:
/// it may still happen, and counts as under way for ever.
#[must_use = "an operation that is not ended counts as under way for ever"]
pub struct Changing<'a> {
    lease: &'a Lease,
}

impl Changing<'_> {
    /// The operation has ended.
    pub fn end(self) {
        self.lease.under_way.fetch_sub(OPERATION, Ordering::Release);
    }
}
