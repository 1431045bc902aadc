//! Areas of FUSE files that connections of a device serve: one connection an area.
//!
//! A keeper that is killed leaves its areas to the server, which goes on serving them. The next keeper gets
//! the descriptors, and brings them again: each new connection then asks the one that serves its area to end,
//! and waits for that. So an area is served at any time, but for that moment, also if the next keeper is
//! killed meanwhile. What was left is not known in that moment: whoever asks has to ask again.
//!
//! Of several connections that wait for one area the last one gets it: the keeper of an earlier one is gone.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use fuse::Share;
use futures::task::AtomicWaker;
use log_limit::LogLimit;
use parking_lot::Mutex;
use rustix::fs::fstat;
use tokio::sync::watch;

/// An area: file system and number of its memory. All descriptors of it have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaId(u64, u64);

impl AreaId {
    /// Returns that of a memory.
    ///
    /// # Errors
    /// If the descriptor is none of a file.
    pub(crate) fn of(memory: &impl AsFd) -> io::Result<AreaId> {
        let found = fstat(memory)?;
        Ok(AreaId(found.st_dev, found.st_ino))
    }
}

/// The areas of a device that are served, or waited for.
#[derive(Debug, Default)]
pub(crate) struct Areas {
    state: Mutex<State>,
    failures: LogLimit,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last connection that came for an area.
    came: u64,
    served: Vec<Served>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

/// An area that is served.
#[derive(Debug)]
struct Served {
    area: AreaId,
    /// Number of the connection.
    number: u64,
    leave: Arc<Leave>,
    /// Closed when it is not served any more.
    over: watch::Receiver<()>,
    /// What its keeper held, if that was killed.
    left: Option<Arc<Share>>,
}

/// A connection that waits for an area.
#[derive(Debug)]
struct Waiting {
    area: AreaId,
    number: u64,
    /// Closed when it does not wait any more.
    over: watch::Receiver<()>,
}

/// Whether a connection is to end.
#[derive(Debug, Default)]
struct Leave {
    is_asked: AtomicBool,
    /// Of the task of the connection.
    waker: AtomicWaker,
}

/// A connection that has come for an area, and waits for it as long as this lives.
#[derive(Debug)]
pub(crate) struct Heir {
    areas: Arc<Areas>,
    area: AreaId,
    number: u64,
    /// Dropped last: who waits for the end finds that nobody waits.
    _over: watch::Sender<()>,
}

/// Result of [`Heir::claim`].
#[derive(Debug)]
pub(crate) enum Claimed {
    /// The area is that of the connection now.
    Claim(AreaClaim),
    /// It is served. That connection was asked to end: the end of the channel is its end.
    Served(watch::Receiver<()>),
    /// Another connection has come for it since, and serves it or waits for it.
    Overtaken,
}

/// The right to serve an area. To be kept until nothing of this process uses the area any more.
#[derive(Debug)]
pub(crate) struct AreaClaim {
    areas: Arc<Areas>,
    area: AreaId,
    leave: Arc<Leave>,
    /// Dropped last: who waits for the end finds the area free.
    _over: watch::Sender<()>,
}

impl Areas {
    /// Waits for an area, in the list of those that do.
    pub(crate) fn wait_for(self: &Arc<Areas>, area: AreaId) -> Heir {
        let mut state = self.state.lock();
        state.came += 1;
        let (number, over) = (state.came, watch::Sender::new(()));
        state.waiting.push(Waiting { area, number, over: over.subscribe() });
        Heir { areas: self.clone(), area, number, _over: over }
    }

    /// Returns what keepers that were killed have left. `None`: an area is between two connections, or its
    /// keeper is there, as far as its connection knows.
    pub(crate) fn left(&self) -> Option<Vec<Arc<Share>>> {
        let state = self.state.lock();
        let is_served = |waiting: &Waiting| state.served.iter().any(|served| served.area == waiting.area);
        if !state.waiting.iter().all(is_served) {
            return None;
        }
        state.served.iter().map(|served| served.left.clone()).collect()
    }

    /// Waits until no area is served, or waited for.
    pub(crate) async fn unserved(&self) {
        loop {
            let over = {
                let state = self.state.lock();
                let served = state.served.first().map(|served| served.over.clone());
                served.or_else(|| state.waiting.first().map(|waiting| waiting.over.clone()))
            };
            let Some(mut over) = over else { return };
            // An error: it is over.
            while over.changed().await.is_ok() {}
        }
    }
}

impl Heir {
    /// Claims the area. The connection waits for it until this is dropped, too.
    pub(crate) fn claim(&self) -> Claimed {
        let mut state = self.areas.state.lock();
        let is_later = |area, number| area == self.area && number > self.number;
        if state.waiting.iter().any(|waiting| is_later(waiting.area, waiting.number))
            || state.served.iter().any(|served| is_later(served.area, served.number))
        {
            return Claimed::Overtaken;
        }
        if let Some(served) = state.served.iter().find(|served| served.area == self.area) {
            served.leave.is_asked.store(true, Ordering::Release);
            served.leave.waker.wake();
            return Claimed::Served(served.over.clone());
        }
        let (areas, area, number) = (self.areas.clone(), self.area, self.number);
        let (over, leave) = (watch::Sender::new(()), Arc::new(Leave::default()));
        state.served.push(Served { area, number, leave: leave.clone(), over: over.subscribe(), left: None });
        Claimed::Claim(AreaClaim { areas, area, leave, _over: over })
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        self.areas.state.lock().waiting.retain(|waiting| waiting.number != self.number);
    }
}

impl AreaClaim {
    /// The keeper was killed, and has left this. Returns whether it is the first that it leaves.
    pub(crate) fn leave_to_next(&self, share: Arc<Share>) -> bool {
        let mut state = self.areas.state.lock();
        let is_first = state.served.iter().all(|served| served.left.is_none());
        if let Some(served) = state.served.iter_mut().find(|served| served.area == self.area) {
            served.left = Some(share);
        }
        is_first
    }

    /// Ready when another connection waits for the area.
    pub(crate) fn poll_leave(&self, cx: &mut Context<'_>) -> Poll<()> {
        // First: a question after the look below wakes the task.
        self.leave.waker.register(cx.waker());
        if self.leave.is_asked.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Limit on the log of failures to serve an area of the device.
    pub(crate) fn failures(&self) -> &LogLimit {
        &self.areas.failures
    }
}

impl Drop for AreaClaim {
    fn drop(&mut self) {
        self.areas.state.lock().served.retain(|served| served.area != self.area);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::task::Waker;

    use fuse::Area;
    use futures::FutureExt;

    use super::*;

    fn memory() -> OwnedFd {
        Area::create().expect("an area")
    }

    fn id(memory: &OwnedFd) -> AreaId {
        AreaId::of(memory).expect("a file")
    }

    /// Any descriptor stands for the device.
    fn share(memory: &OwnedFd) -> Arc<Share> {
        let copy = || memory.try_clone().expect("a descriptor");
        Arc::new(Share { device: copy(), area: copy() })
    }

    fn claimed(heir: &Heir) -> AreaClaim {
        match heir.claim() {
            Claimed::Claim(claim) => claim,
            other => panic!("{other:?}"),
        }
    }

    /// Comes for a free area.
    fn come(areas: &Arc<Areas>, area: AreaId) -> AreaClaim {
        claimed(&areas.wait_for(area))
    }

    fn is_asked(claim: &AreaClaim) -> bool {
        claim.poll_leave(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn count(areas: &Areas) -> Option<usize> {
        areas.left().map(|left| left.len())
    }

    #[test]
    fn an_area_is_served_once() {
        let areas = Arc::new(Areas::default());
        let memory = memory();
        let first = come(&areas, id(&memory));
        let other = come(&areas, id(&self::memory()));
        assert!(!is_asked(&first));
        assert!(first.leave_to_next(share(&memory)));
        let heir = areas.wait_for(id(&memory));
        let Claimed::Served(mut over) = heir.claim() else { panic!("it is free") };
        assert!(is_asked(&first) && !is_asked(&other) && over.changed().now_or_never().is_none());
        drop(first);
        assert!(over.changed().now_or_never().is_some_and(|changed| changed.is_err()));
        let again = claimed(&heir);
        assert!(!is_asked(&again));
        drop(other);
        assert!(areas.unserved().now_or_never().is_none());
        drop(again);
        assert!(areas.unserved().now_or_never().is_none(), "another connection waits for it");
        drop(heir);
        assert!(areas.unserved().now_or_never().is_some());
    }

    #[test]
    fn what_is_left_is_known_while_no_area_is_between_two_connections() {
        let areas = Arc::new(Areas::default());
        assert_eq!(count(&areas), Some(0));
        let (one, other) = (memory(), memory());
        let (first, second) = (come(&areas, id(&one)), come(&areas, id(&other)));
        assert_eq!(count(&areas), None, "the keeper is there");
        assert!(first.leave_to_next(share(&one)));
        assert_eq!(count(&areas), None, "the other connection does not know yet");
        assert!(!second.leave_to_next(share(&other)));
        let left = areas.left().expect("known");
        assert_eq!(left.iter().map(|share| id(&share.area)).collect::<Vec<_>>(), [id(&one), id(&other)]);
        drop(left);
        // A keeper that is killed while its connection waits.
        let heir = areas.wait_for(id(&one));
        assert!(matches!(heir.claim(), Claimed::Served(_)));
        assert_eq!(count(&areas), Some(2), "both are served");
        drop((first, second));
        assert_eq!(count(&areas), None, "it is about to be claimed");
        let claim = claimed(&heir);
        drop(heir);
        assert_eq!(count(&areas), None, "it is not known whether the keeper is there");
        claim.leave_to_next(share(&one));
        assert_eq!(count(&areas), Some(1));
        drop(claim);
        assert_eq!(count(&areas), Some(0));
    }

    #[test]
    fn the_last_that_came_gets_an_area() {
        let areas = Arc::new(Areas::default());
        let area = id(&memory());
        let (early, late) = (areas.wait_for(area), areas.wait_for(area));
        let elsewhere = areas.wait_for(id(&memory()));
        assert!(matches!(early.claim(), Claimed::Overtaken));
        let claim = claimed(&late);
        drop(late);
        assert!(matches!(early.claim(), Claimed::Overtaken));
        assert!(!is_asked(&claim), "one that came earlier does not ask it to end");
        drop(claim);
        drop(claimed(&early));
        drop(claimed(&elsewhere));
    }
}
