//! Memory for request data: a total for the server, and a limit and a reserve for each connection.
//!
//! A connection charges the total only for what it holds beyond its reserve. The common case, small requests
//! at moderate queue depth, therefore touches nothing shared.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use log_limit::LogLimit;
use tokio::sync::Semaphore;

use crate::limits::config::CONNECTION_RESERVE_BYTES;

/// Bytes that one permit represents.
const UNIT_BYTES: usize = 4096;

/// Total memory of a server. Served in the order of requests.
pub(crate) struct Budget {
    units: Semaphore,
    total_units: usize,
    waiting: AtomicUsize,
    stalled: LogLimit,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Self {
            units: Semaphore::new(units),
            total_units: units,
            waiting: AtomicUsize::new(0),
            stalled: LogLimit::new(),
        }
    }

    /// Returns true if connections wait for memory that others hold.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Logs that a client was disconnected that held `held_bytes` and moved no data.
    pub(crate) fn log_stalled(&self, held_bytes: usize) {
        if let Some(held_back) = self.stalled.pass() {
            tracing::warn!(
                held_back,
                held_bytes,
                waiting = self.waiting.load(Ordering::Relaxed),
                "a client held memory for request data that others wait for, and moved nothing: it is disconnected"
            );
        }
    }

    async fn acquire(&self, units: u32) {
        struct Counted<'a>(&'a AtomicUsize);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&self.waiting);
        if let Ok(permit) = self.units.acquire_many(units).await {
            permit.forget();
        }
    }
}

/// Share of the budget that one connection holds. Dropping it returns all of it.
pub(crate) struct Lease<'a> {
    budget: &'a Budget,
    limit_bytes: usize,
    held_bytes: usize,
    charged_units: usize,
    waiting: Option<Waiting<'a>>,
}

/// Pending request for units.
struct Waiting<'a> {
    units: usize,
    acquire: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

fn units_for(held_bytes: usize) -> usize {
    held_bytes.saturating_sub(CONNECTION_RESERVE_BYTES).div_ceil(UNIT_BYTES)
}

impl<'a> Lease<'a> {
    pub(crate) fn new(budget: &'a Budget, limit_bytes: usize) -> Self {
        Self { budget, limit_bytes, held_bytes: 0, charged_units: 0, waiting: None }
    }

    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns true if memory that is not needed at the moment may be kept: it is within the reserve, or half
    /// of the total is free and no connection waits.
    pub(crate) fn is_plenty(&self) -> bool {
        self.held_bytes <= CONNECTION_RESERVE_BYTES
            || !self.budget.is_contended()
                && self.budget.units.available_permits() * 2 >= self.budget.total_units
    }

    /// Takes `bytes`. Pending if this connection is at its limit (poll again after [`Lease::release`]), or if
    /// the total is used up (the task is woken).
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        if self.held_bytes > 0 && self.held_bytes + bytes > self.limit_bytes {
            return Poll::Pending;
        }
        loop {
            if let Some(Waiting { units, acquire }) = &mut self.waiting {
                if acquire.as_mut().poll(cx).is_pending() {
                    // A release in the meantime may have made the wait unnecessary.
                    if units_for(self.held_bytes + bytes) > self.charged_units {
                        return Poll::Pending;
                    }
                } else {
                    self.charged_units += *units;
                }
                self.waiting = None;
            }
            let missing = units_for(self.held_bytes + bytes).saturating_sub(self.charged_units);
            if missing == 0 {
                self.held_bytes += bytes;
                debug_assert!(
                    self.charged_units >= units_for(self.held_bytes),
                    "what is held beyond the reserve is charged"
                );
                return Poll::Ready(());
            }
            let units = u32::try_from(missing).unwrap_or(u32::MAX);
            if let Ok(permit) = self.budget.units.try_acquire_many(units) {
                permit.forget();
                self.charged_units += missing;
            } else {
                let acquire = Box::pin(self.budget.acquire(units));
                self.waiting = Some(Waiting { units: missing, acquire });
            }
        }
    }

    /// Returns `bytes` to the budget.
    pub(crate) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.held_bytes, "only what is held is returned");
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        self.settle();
    }

    fn settle(&mut self) {
        let surplus = self.charged_units.saturating_sub(units_for(self.held_bytes));
        if surplus > 0 {
            self.charged_units -= surplus;
            self.budget.units.add_permits(surplus);
            debug_assert!(
                self.budget.units.available_permits() <= self.budget.total_units,
                "no more is returned than was charged"
            );
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.waiting = None;
        self.held_bytes = 0;
        self.settle();
    }
}
