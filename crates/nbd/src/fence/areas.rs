//! Areas of FUSE files that connections of a device serve: one connection an area.
//!
//! A keeper that is killed leaves its areas to the server, which goes on serving them. The next keeper gets
//! the descriptors, and brings them again: each new connection then asks the one that serves its area to end,
//! and waits for that. So an area is served at any time, but for that moment, also if the next keeper is
//! killed meanwhile.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use fuse::Share;
use futures::task::AtomicWaker;
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

/// The areas of a device that are served.
#[derive(Debug, Default)]
pub(crate) struct Areas(Mutex<Vec<Served>>);

/// An area that is served.
#[derive(Debug)]
struct Served {
    area: AreaId,
    leave: Arc<Leave>,
    /// Closed when it is not served any more.
    over: watch::Receiver<()>,
    /// What its keeper held, if that was killed.
    left: Option<Share>,
}

/// Whether a connection is to end.
#[derive(Debug, Default)]
struct Leave {
    is_asked: AtomicBool,
    /// Of the task of the connection.
    waker: AtomicWaker,
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
    /// Claims an area.
    ///
    /// # Errors
    /// If it is served: that connection was asked to end. The end of the channel is its end.
    pub(crate) fn claim(self: &Arc<Areas>, area: AreaId) -> Result<AreaClaim, watch::Receiver<()>> {
        let mut all = self.0.lock();
        if let Some(served) = all.iter().find(|served| served.area == area) {
            served.leave.is_asked.store(true, Ordering::Release);
            served.leave.waker.wake();
            return Err(served.over.clone());
        }
        let (over, leave) = (watch::Sender::new(()), Arc::new(Leave::default()));
        all.push(Served { area, leave: leave.clone(), over: over.subscribe(), left: None });
        Ok(AreaClaim { areas: self.clone(), area, leave, _over: over })
    }

    /// Returns what keepers that were killed have left.
    ///
    /// # Errors
    /// If there are too few descriptors.
    pub(crate) fn left(&self) -> io::Result<Vec<Share>> {
        let all = self.0.lock();
        all.iter().filter_map(|served| served.left.as_ref()).map(copy).collect()
    }

    /// Waits until no area is served.
    pub(crate) async fn unserved(&self) {
        loop {
            let Some(mut over) = self.0.lock().first().map(|served| served.over.clone()) else { return };
            // An error: it is over.
            while over.changed().await.is_ok() {}
        }
    }
}

fn copy(share: &Share) -> io::Result<Share> {
    let copy = |descriptor: &OwnedFd| descriptor.try_clone();
    Ok(Share { device: copy(&share.device)?, area: copy(&share.area)? })
}

impl AreaClaim {
    /// The keeper was killed, and has left this. Returns whether it is the first that it leaves.
    pub(crate) fn leave_to_next(&self, share: Share) -> bool {
        let mut all = self.areas.0.lock();
        let is_first = all.iter().all(|served| served.left.is_none());
        if let Some(served) = all.iter_mut().find(|served| served.area == self.area) {
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
}

impl Drop for AreaClaim {
    fn drop(&mut self) {
        self.areas.0.lock().retain(|served| served.area != self.area);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use fuse::Area;
    use futures::FutureExt;

    use super::*;

    #[test]
    fn an_area_is_served_once() {
        let areas = Arc::new(Areas::default());
        let memory = Area::create().expect("an area");
        let id = |memory: &OwnedFd| AreaId::of(memory).expect("a file");
        let first = areas.claim(id(&memory)).expect("free");
        let is_asked =
            |claim: &AreaClaim| claim.poll_leave(&mut Context::from_waker(Waker::noop())).is_ready();
        let other = areas.claim(id(&Area::create().expect("an area"))).expect("another area");
        assert!(!is_asked(&first) && areas.left().expect("none").is_empty());
        let copy = memory.try_clone().expect("a descriptor");
        assert!(first.leave_to_next(Share { device: memory, area: copy }));
        let left = areas.left().expect("descriptors");
        assert_eq!(left.iter().map(|share| id(&share.area)).collect::<Vec<_>>(), [first.area]);
        let mut over = areas.claim(id(&left[0].area)).expect_err("it is served");
        assert!(is_asked(&first) && !is_asked(&other) && over.changed().now_or_never().is_none());
        drop(first);
        assert!(over.changed().now_or_never().is_some_and(|changed| changed.is_err()));
        assert!(areas.left().expect("none").is_empty());
        assert!(areas.unserved().now_or_never().is_none());
        let again = areas.claim(id(&left[0].area)).expect("free");
        assert!(!is_asked(&again));
        drop((again, other));
        assert!(areas.unserved().now_or_never().is_some());
    }
}
