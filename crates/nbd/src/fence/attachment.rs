//! Attachment: one client, the bridge of `pumice attach`, has a block device on the export, with a file
//! system perhaps.
//!
//! The bridge keeps what was acknowledged and not flushed, and makes it again after a server was killed. A
//! write of another client to the same place would be undone then. So others may only read, unless the
//! operator [allows](Sharing::shared_writes) them to write. Then each change of others waits until the bridge
//! has heard of it:
//!
//! ```text
//! other client   -- write F ----> server: carried out
//!                                   |  notice F -----------> bridge: flushes what it keeps of that range, forgets it
//!                                   |  <---------- heard F --
//!                <-- acknowledged --
//! ```
//!
//! A private extension of the protocol, for clients over Unix sockets, without TLS, of the server's own user
//! or root:
//!
//! 1. The client sends [`OPT_ATTACH`](crate::protocol::OPT_ATTACH) with one byte, [`RETURNS`] if it had the
//!    export attached before, and the [opening](Sharing::opening) that it expects. The server agrees, and no
//!    other device is an export to this client: its name may have passed to another one meanwhile. Every
//!    connection of a bridge does this. A bridge that sends only the byte expects no opening.
//! 2. The export is refused if other clients have write access. A bridge that returns is not refused: they
//!    are disconnected.
//! 3. The client sends [`CMD_READY`](crate::protocol::CMD_READY) over one of its connections, once it has
//!    made again all that it has to. Changes of others are not carried out before.
//! 4. The server sends [`Changed`](crate::reply::Changed), over any of the connections. The client sends
//!    [`CMD_HEARD`](crate::protocol::CMD_HEARD) with the number of the notice as its cookie. Neither command
//!    has a reply.
//! 5. Before it closes the export, the server sends [`Closing`](crate::reply::Closing), and serves the bridge
//!    for up to its grace period. The client flushes, so that it has nothing to make again, and leaves.
//!
//! A bridge that is away, because its connections were lost or the server was restarted, leaves a
//! [mark](Sharing::mark). As long as there is one, it counts as attached. A bridge that lives and does
//! not answer for [`PATIENCE`] makes changes of others fail, at once from then on, until it answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use device::DeviceError;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::fence::Fence;
use crate::wire::reply::Changed;

/// Data of [`OPT_ATTACH`](crate::protocol::OPT_ATTACH): the export is attached for the first time.
pub const COMES: u8 = 0;
/// Data of [`OPT_ATTACH`](crate::protocol::OPT_ATTACH): the device was there before, and may be in use.
pub const RETURNS: u8 = 1;

/// Longest id of an opening.
pub const OPENING_BYTES_MAX: usize = 64;

/// Longest time that a change of another client waits for the bridge.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Most changes of which the bridge has not heard. Those of clients that have left count too. More wait.
const OPEN_MAX: usize = 1 << 16;
/// Interval of looks whether a bridge that is away lives.
const LOOK: Duration = Duration::from_secs(1);

/// Use of an export by others while it is attached.
#[derive(Clone, Default)]
pub struct Sharing {
    /// Id of the opening of the device, unlike that of any other device, before or after. At most
    /// [`OPENING_BYTES_MAX`] bytes; empty: bridges cannot name it.
    pub opening: String,
    /// Others may write. Nothing coordinates them with what is mounted on the device.
    pub shared_writes: bool,
    /// Returns whether a bridge on this machine has the device attached, connected or not. `None`: bridges
    /// leave no marks.
    pub mark: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Sharing {
    /// Returns whether there is a mark.
    pub(crate) fn is_marked(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark())
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("shared_writes", &self.shared_writes).finish_non_exhaustive()
    }
}

/// Changes of other clients that the bridge has not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    state: Mutex<BridgeState>,
    /// False: no bridge has to hear of anything.
    is_attached: AtomicBool,
    /// Notified when the bridge has connected, disconnected, caught up or acknowledged a change.
    moved: Notify,
}

#[derive(Debug, Default)]
struct BridgeState {
    /// Connections of the bridge.
    connections: usize,
    /// The bridge has replayed all its changes.
    is_ready: bool,
    /// The bridge has not acknowledged a change in time.
    is_silent: bool,
    /// Number of the last change.
    last: u64,
    /// By their numbers.
    open: BTreeMap<u64, Open>,
    /// The tasks of the bridge's connections, by the numbers of those.
    carriers: BTreeMap<u64, Arc<AtomicWaker>>,
}

#[derive(Debug)]
struct Open {
    offset: u64,
    length: u64,
    /// The connection that has carried the notice.
    carrier: Option<u64>,
}

impl BridgeState {
    fn wake(&self) {
        if let Some(waker) = self.carriers.values().next() {
            waker.wake();
        }
    }
}

impl Changes {
    /// Notes that a bridge may live that is not connected.
    pub(crate) fn expect_bridge(&self) {
        self.is_attached.store(true, Ordering::SeqCst);
    }

    pub(crate) fn bridge_came(&self) {
        let mut state = self.state.lock();
        state.connections += 1;
        self.is_attached.store(true, Ordering::SeqCst);
    }

    pub(crate) fn bridge_left(&self) {
        let mut state = self.state.lock();
        state.connections -= 1;
        if state.connections == 0 {
            (state.is_ready, state.is_silent) = (false, false);
        }
        self.moved.notify_waiters();
    }

    fn ready(&self) {
        let mut state = self.state.lock();
        (state.is_ready, state.is_silent) = (true, false);
        state.wake();
        self.moved.notify_waiters();
    }

    fn heard(&self, number: u64) {
        let mut state = self.state.lock();
        if state.open.remove(&number).is_some() {
            state.is_silent = false;
        }
        self.moved.notify_waiters();
    }

    /// Returns whether no bridge lives. A lock is held by the caller, so that none comes meanwhile.
    fn is_gone(&self, state: &BridgeState, sharing: &Sharing) -> bool {
        let is_gone = state.connections == 0 && !sharing.is_marked();
        if is_gone {
            self.is_attached.store(false, Ordering::SeqCst);
        }
        is_gone
    }

    /// Waits until a change may be carried out.
    ///
    /// # Errors
    /// If the bridge does not come back, or does not answer.
    pub(crate) async fn admit(&self, sharing: &Sharing) -> Result<(), DeviceError> {
        let may = |state: &mut BridgeState| match state {
            BridgeState { is_silent: true, .. } => Some(Err(silent())),
            BridgeState { is_ready: true, open, .. } if open.len() < OPEN_MAX => Some(Ok(())),
            state => self.is_gone(state, sharing).then_some(Ok(())),
        };
        self.wait(may).await.unwrap_or_else(|| Err(silent()))
    }

    /// Tells the bridge of a change that was carried out, and waits until it has heard of it.
    ///
    /// # Errors
    /// If it does not answer: it may undo the change.
    pub(crate) async fn tell(
        &self,
        (offset, length): (u64, u64),
        sharing: &Sharing,
    ) -> Result<(), DeviceError> {
        if !self.is_attached.load(Ordering::SeqCst) {
            return Ok(());
        }
        let number = {
            let mut state = self.state.lock();
            state.last += 1;
            let number = state.last;
            state.open.insert(number, Open { offset, length, carrier: None });
            state.wake();
            number
        };
        let is_heard = |state: &mut BridgeState| {
            let is_gone = self.is_gone(state, sharing);
            if is_gone {
                state.open.remove(&number);
            }
            (!state.open.contains_key(&number)).then_some(())
        };
        match self.wait(is_heard).await {
            Some(()) => Ok(()),
            None => {
                tracing::error!(
                    seconds = PATIENCE.as_secs(),
                    "the bridge of the attached drive does not answer: changes by other clients fail until it does"
                );
                self.state.lock().is_silent = true;
                self.moved.notify_waiters();
                Err(silent())
            }
        }
    }

    /// Waits for a result. `None` if there is none within [`PATIENCE`].
    async fn wait<T>(&self, mut result: impl FnMut(&mut BridgeState) -> Option<T>) -> Option<T> {
        let since = Instant::now();
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            // Registered before the check below, so that no change is missed.
            moved.as_mut().enable();
            if let Some(result) = result(&mut self.state.lock()) {
                return Some(result);
            }
            let left = PATIENCE.checked_sub(since.elapsed()).filter(|left| !left.is_zero())?;
            let _ = timeout(left.min(LOOK), moved).await;
        }
    }
}

fn silent() -> DeviceError {
    DeviceError::Io(format!(
        "the drive is attached, and its bridge has not answered for {} seconds",
        PATIENCE.as_secs()
    ))
}

/// Changes of a client that is not the bridge, where such clients may write.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    pub(crate) fence: Arc<Fence>,
    pub(crate) sharing: Sharing,
}

impl Foreign {
    /// As [`Changes::admit`].
    pub(crate) async fn admit(&self) -> Result<(), DeviceError> {
        let changes = self.fence.changes();
        match changes.is_attached.load(Ordering::SeqCst) {
            true => changes.admit(&self.sharing).await,
            false => Ok(()),
        }
    }

    /// As [`Changes::tell`].
    pub(crate) async fn tell(&self, range: (u64, u64)) -> Result<(), DeviceError> {
        self.fence.changes().tell(range, &self.sharing).await
    }
}

/// Notices to the bridge over one of its connections, and its answers.
pub(crate) struct Carrier {
    fence: Arc<Fence>,
    number: u64,
    waker: Arc<AtomicWaker>,
}

impl Carrier {
    /// Of the connection with this number.
    pub(crate) fn new(fence: &Arc<Fence>, number: u64) -> Carrier {
        let waker = Arc::new(AtomicWaker::new());
        fence.changes().state.lock().carriers.insert(number, Arc::clone(&waker));
        Carrier { fence: Arc::clone(fence), number, waker }
    }

    /// The bridge has replayed all its changes.
    pub(crate) fn ready(&self) {
        self.fence.changes().ready();
    }

    /// The bridge has heard of the change with this number.
    pub(crate) fn heard(&self, number: u64) {
        self.fence.changes().heard(number);
    }

    /// Takes the notices that no connection has carried. The task is woken when there are more.
    pub(crate) fn take(&self, cx: &mut Context<'_>) -> Vec<Changed> {
        // First: what comes after the look below wakes the task.
        self.waker.register(cx.waker());
        let mut state = self.fence.changes().state.lock();
        if !state.is_ready {
            return Vec::new();
        }
        let unsent = state.open.iter_mut().filter(|(_, open)| open.carrier.is_none());
        unsent
            .map(|(number, open)| {
                open.carrier = Some(self.number);
                Changed { number: *number, offset: open.offset, length: open.length }
            })
            .collect()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let mut state = self.fence.changes().state.lock();
        state.carriers.remove(&self.number);
        for open in state.open.values_mut().filter(|open| open.carrier == Some(self.number)) {
            // It may not have arrived. Another connection carries it again.
            open.carrier = None;
        }
        state.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::fence::BridgeArrival;

    fn shared_writes() -> Sharing {
        Sharing { shared_writes: true, ..Sharing::default() }
    }

    fn marked(is_marked: &Arc<AtomicBool>) -> Sharing {
        let is_marked = Arc::clone(is_marked);
        Sharing {
            shared_writes: true,
            opening: String::new(),
            mark: Some(Arc::new(move || is_marked.load(Ordering::Relaxed))),
        }
    }

    fn take(carrier: &Carrier) -> Vec<u64> {
        let notices = carrier.take(&mut Context::from_waker(Waker::noop()));
        notices.iter().map(|notice| notice.number).collect()
    }

    struct Fixture {
        fence: Arc<Fence>,
        foreign: Foreign,
        is_marked: Arc<AtomicBool>,
    }

    fn fixture() -> Fixture {
        let (fence, is_marked) = (Arc::new(Fence::default()), Arc::new(AtomicBool::new(true)));
        let foreign = Foreign { fence: Arc::clone(&fence), sharing: marked(&is_marked) };
        fence.changes().expect_bridge();
        Fixture { fence, foreign, is_marked }
    }

    /// Result of a future within a time in which nothing else happens.
    async fn within<T>(seconds: u64, future: impl Future<Output = T>) -> Option<T> {
        timeout(Duration::from_secs(seconds), future).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_wait_until_the_bridge_is_back_and_has_caught_up() {
        let Fixture { fence, foreign, is_marked } = fixture();
        assert!(within(10, foreign.admit()).await.is_none(), "it is away");
        let attached = fence.attach(BridgeArrival::New, &shared_writes()).expect("nobody else");
        let carrier = Carrier::new(&fence, 1);
        assert!(within(10, foreign.admit()).await.is_none(), "it makes changes again");
        carrier.ready();
        assert_eq!(within(1, foreign.admit()).await, Some(Ok(())));
        drop((carrier, attached));
        assert!(within(10, foreign.admit()).await.is_none());
        assert_eq!(foreign.admit().await, Err(silent()), "it does not come back");
        is_marked.store(false, Ordering::Relaxed);
        assert_eq!(within(1, foreign.admit()).await, Some(Ok(())), "it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_complete_when_the_bridge_has_heard_of_it() {
        let Fixture { fence, foreign, is_marked } = fixture();
        let attached = fence.attach(BridgeArrival::New, &shared_writes()).expect("nobody else");
        let carriers = [1, 2].map(|number| Carrier::new(&fence, number));
        let mut telling = std::pin::pin!(foreign.tell((4096, 512)));
        assert!(within(1, telling.as_mut()).await.is_none());
        assert_eq!(take(&carriers[0]), [0; 0], "not before it has caught up");
        carriers[0].ready();
        assert_eq!(take(&carriers[0]), [1]);
        assert_eq!(take(&carriers[1]), [0; 0], "once");
        let [first, second] = carriers;
        drop(first);
        assert_eq!(take(&second), [1], "it may not have arrived");
        assert!(within(1, telling.as_mut()).await.is_none());
        second.heard(1);
        assert_eq!(within(1, telling.as_mut()).await, Some(Ok(())));
        // The bridge is killed.
        let mut telling = std::pin::pin!(foreign.tell((4096, 512)));
        assert!(within(1, telling.as_mut()).await.is_none());
        drop((second, attached));
        assert!(within(1, telling.as_mut()).await.is_none(), "it may have lost its connections only");
        is_marked.store(false, Ordering::Relaxed);
        assert_eq!(within(2, telling.as_mut()).await, Some(Ok(())));
        assert_eq!(within(0, foreign.tell((0, 512))).await, Some(Ok(())), "nobody has to hear of anything");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_clients_that_leave_are_bounded() {
        let Fixture { fence, foreign, .. } = fixture();
        let _attached = fence.attach(BridgeArrival::New, &shared_writes()).expect("nobody else");
        let carrier = Carrier::new(&fence, 1);
        carrier.ready();
        for _ in 0..OPEN_MAX {
            assert_eq!(within(0, foreign.admit()).await, Some(Ok(())));
            // The client leaves before the bridge has heard of its change.
            assert!(futures::FutureExt::now_or_never(foreign.tell((0, 512))).is_none());
        }
        assert!(within(1, foreign.admit()).await.is_none(), "no more are taken");
        carrier.heard(1);
        assert_eq!(within(1, foreign.admit()).await, Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bridge_that_hangs_holds_nobody_for_ever() {
        let Fixture { fence, foreign, .. } = fixture();
        let _attached = fence.attach(BridgeArrival::New, &shared_writes()).expect("nobody else");
        let carrier = Carrier::new(&fence, 1);
        carrier.ready();
        assert_eq!(foreign.tell((0, 512)).await, Err(silent()));
        assert_eq!(take(&carrier), [1]);
        assert_eq!(within(0, foreign.admit()).await, Some(Err(silent())), "at once from now on");
        carrier.heard(1);
        assert_eq!(within(0, foreign.admit()).await, Some(Ok(())));
    }
}
