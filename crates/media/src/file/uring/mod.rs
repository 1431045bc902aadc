//! The io_uring back end: one ring per worker thread, shared by all drives of that thread.
//!
//! ```text
//! Media::read ── push ──> queue ──(a tick's worth)──> submission queue ── io_uring_enter ──> kernel
//!      │                    │                                                                  │
//!   Ticket <── slot <── operation table  <────────────  completion queue  <────────────────────┘
//! ```
//!
//! The ring of a thread is in a thread-local, and a *pump* task on the thread's runtime drives it. The first
//! request of a tick wakes the pump. It runs after the tasks that are ready by then, so that their requests
//! go to the kernel together, four at a time. The pump also waits, with tokio, for the ring's descriptor to
//! signal completions.
//!
//! The kernel reads and writes a request's buffer until its completion. The operation table therefore owns
//! the buffer until then, whether or not the [`Ticket`] is still polled.

mod pump;
mod ring;
mod ticket;

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::AbortHandle;

use super::backing::Order;
use pump::Pump;
use ring::{Finished, Ring};
pub(super) use ticket::Ticket;

/// The ring of a thread and its connection to a runtime.
struct Installed {
    id: u64,
    runtime: tokio::runtime::Id,
    ring: Ring,
    pump: Option<Waker>,
    /// True if the pump has been woken since it last ran.
    pump_woken: bool,
}

thread_local! {
    static INSTALLED: RefCell<Option<Installed>> = const { RefCell::new(None) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Installs io_uring as the I/O back end of a thread.
#[derive(Debug)]
pub struct UringReactor;

impl UringReactor {
    /// Creates a ring for about `entries` requests in flight (further ones wait) and drives it from the
    /// current tokio runtime until the guard is dropped. From then on every [`crate::FileMedia`] used in that
    /// runtime on this thread does its reads, writes and syncs through the ring. The runtime must stay on
    /// this thread while the guard lives.
    ///
    /// # Errors
    /// `Unsupported` outside a tokio runtime of the `current_thread` flavour, `AlreadyExists` if the thread
    /// has a ring, and the error of the kernel if io_uring is missing or forbidden (`ENOSYS`, `EPERM`). In
    /// all these cases the plain back end is used.
    ///
    /// # Panics
    /// If the runtime's I/O driver is not enabled.
    pub fn install(entries: u32) -> io::Result<UringGuard> {
        let runtime =
            Handle::try_current().ok().filter(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        let Some(runtime) = runtime else {
            let message = "io_uring wants a current_thread tokio runtime around it";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        };
        if UringReactor::installed() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "this thread has an io_uring already"));
        }
        let mut ring = Ring::new(entries)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let pump = Pump::new(id, ring.descriptor()?)?;
        let installed = Installed { id, runtime: runtime.id(), ring, pump: None, pump_woken: true };
        INSTALLED.set(Some(installed));
        let pump = runtime.spawn(pump).abort_handle();
        Ok(UringGuard { id, pump, not_send: PhantomData })
    }

    /// Returns whether this thread has a ring.
    pub fn installed() -> bool {
        INSTALLED.with_borrow(Option::is_some)
    }
}

/// Guard of a thread's ring. Dropping it, on the same thread, waits for requests in flight, and the thread
/// falls back to the plain back end.
#[derive(Debug)]
#[must_use = "dropping the guard removes the ring"]
pub struct UringGuard {
    id: u64,
    pump: AbortHandle,
    not_send: PhantomData<*const ()>,
}

impl Drop for UringGuard {
    fn drop(&mut self) {
        uninstall(self.id);
        self.pump.abort();
    }
}

/// Removes the ring `id` from this thread, if it still has it, once its requests are done.
fn uninstall(id: u64) {
    // Fails only while the thread ends; the drop of the thread-local then removes the ring.
    let removed = INSTALLED.try_with(|installed| {
        let mut installed = installed.borrow_mut();
        if installed.as_ref().is_some_and(|it| it.id == id) { installed.take() } else { None }
    });
    if let Ok(Some(mut removed)) = removed {
        ring::finish(removed.ring.drain());
    }
}

/// Passes a request to this thread's ring. Returns it if there is no ring that would be driven.
pub(super) fn submit(order: Order) -> Result<Ticket, Order> {
    let mut order = Some(order);
    let pushed = INSTALLED.try_with(|installed| {
        let mut installed = installed.borrow_mut();
        let installed = installed.as_mut().filter(|it| !it.ring.broken())?;
        // Outside its runtime nothing would drive the ring.
        if Handle::try_current().ok()?.id() != installed.runtime {
            return None;
        }
        let ticket = installed.ring.push(order.take()?);
        let finished = match installed.ring.full() {
            true => installed.ring.drive(),
            false => Vec::new(),
        };
        if !installed.pump_woken
            && let Some(pump) = &installed.pump
        {
            installed.pump_woken = true;
            pump.wake_by_ref();
        }
        Some((ticket, finished))
    });
    match (pushed, order) {
        (Ok(Some((ticket, finished))), _) => {
            ring::finish(finished);
            Ok(ticket)
        }
        (_, Some(order)) => Err(order),
        (_, None) => unreachable!("a request that was taken has a ticket"),
    }
}

/// One step of the pump of ring `id`: submits queued requests and collects completions. Returns `None` if the
/// ring is gone, and `Some(true)` if the step must be repeated although nothing will be signalled.
fn step(id: u64, waker: &Waker) -> Option<bool> {
    let (finished, again) = INSTALLED
        .try_with(|installed| {
            let mut installed = installed.borrow_mut();
            let installed = installed.as_mut().filter(|it| it.id == id)?;
            match &mut installed.pump {
                Some(pump) => pump.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
            installed.pump_woken = false;
            let finished: Finished = installed.ring.drive();
            Some((finished, installed.ring.starved()))
        })
        .ok()??;
    // Outside the borrow, because wakers run foreign code.
    ring::finish(finished);
    Some(again)
}
