//! Holds writes that do not fit until there is room or a configured time limit is over, as thin pools do.
//!
//! A held write is retried when something was trimmed, the drive has grown, or the space in use fell. One at
//! a time is retried, in the order of arrival. A new write is tried before it is held, so that one that needs
//! no room, such as an overwrite, passes.
//!
//! A held write is dropped as soon as the connection of its client ends. Before each retry it checks that the
//! client is still there: another client may have written the same range meanwhile.
//!
//! Held writes keep their data. Their number, and their bytes in all drives of a server, are bounded. Writes
//! beyond that are refused at once, so that reads, TRIM and flushes always find memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use device::{DeviceError, Requester, Stay};
use drive::Error;
use parking_lot::Mutex;
use status::EventKind;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Most writes of a drive that are held: half the requests that a connection may have in flight.
const WRITES_MAX: u64 = 128;
/// Most bytes of all held writes of a server: three quarters of what a connection may hold.
const BYTES_MAX: usize = 48 << 20;
/// Interval of checks of free space, for room that was not announced.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of trying again on a backing that was full.
const LOOK_BELOW: Duration = Duration::from_millis(500);
/// Writes held again within this time are not a new event.
const QUIET: Duration = Duration::from_secs(10);
/// Assumed highest compression ratio of a write.
const RATIO: u64 = 4;

/// Handling of a write that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It fails at once.
    #[default]
    Error,
    /// It is held for this time, then it fails.
    Wait(Duration),
}

/// Reports an event, with its message.
type Announce = Box<dyn Fn(EventKind, String) + Send + Sync>;

/// Bytes of the held writes of all drives of a server.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes(AtomicUsize);

/// Held writes of a drive.
pub(crate) struct Held {
    when_full: WhenFull,
    bytes: Arc<HeldBytes>,
    writes: AtomicU64,
    held_total: AtomicU64,
    /// Grows when there may be more room.
    rooms: AtomicU64,
    room_made: Notify,
    /// Held by the write that is being retried.
    turn: tokio::sync::Mutex<()>,
    over: AtomicBool,
    last: Mutex<Option<Instant>>,
    events: Announce,
}

/// Keeps a write counted.
struct Counted<'a> {
    held: &'a Held,
    bytes: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.held.bytes.0.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.held.writes.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.held.last.lock() = Some(Instant::now());
        }
    }
}

/// Returns whether a write failed for lack of room.
fn lacks_room(error: &Error) -> bool {
    matches!(error, Error::NoSpace | Error::BackingFull)
}

impl Held {
    pub(crate) fn new(when_full: WhenFull, bytes: Arc<HeldBytes>, events: Announce) -> Held {
        Held {
            when_full,
            bytes,
            writes: AtomicU64::new(0),
            held_total: AtomicU64::new(0),
            rooms: AtomicU64::new(0),
            room_made: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
            over: AtomicBool::new(false),
            last: Mutex::new(None),
            events,
        }
    }

    /// Writes held at present, and since the drive was opened.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.writes.load(Ordering::Relaxed), self.held_total.load(Ordering::Relaxed))
    }

    /// Announces that there may be more room.
    pub(crate) fn room_made(&self) {
        self.rooms.fetch_add(1, Ordering::SeqCst);
        self.room_made.notify_waiters();
    }

    /// Holds no more writes, and fails those that are held.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.room_made();
    }

    /// Counts a write of `bytes`, if there is memory for it.
    fn hold(&self, bytes: usize) -> Option<Counted<'_>> {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed);
        let all = self.bytes.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let counted = Counted { held: self, bytes };
        if writes >= WRITES_MAX || all > BYTES_MAX {
            return None;
        }
        self.held_total.fetch_add(1, Ordering::Relaxed);
        let is_new = writes == 0 && self.last.lock().is_none_or(|last| last.elapsed() >= QUIET);
        if let (true, WhenFull::Wait(longest)) = (is_new, self.when_full) {
            let message = format!(
                "out of physical space: writes are held for up to {} s; delete and trim data, or grow the drive by \
                 `pumice set-size` (docs/how-to/full-drive.md)",
                longest.as_secs()
            );
            (self.events)(EventKind::WritesHeld, message);
        }
        Some(counted)
    }

    /// Performs a write of `bytes`. If there is no room for it, holds it until there is room or its time is
    /// over. `space` returns used space and limit.
    ///
    /// # Errors
    /// [`DeviceError::Shutdown`] if the connection of its client ended while it was held. It has changed
    /// nothing.
    pub(crate) async fn make<F: Future<Output = Result<(), Error>>>(
        &self,
        bytes: usize,
        requester: &Requester,
        space: impl Fn() -> (u64, u64),
        mut write: impl FnMut() -> F,
    ) -> Result<Result<(), Error>, DeviceError> {
        let WhenFull::Wait(longest) = self.when_full else { return Ok(write().await) };
        let mut seen = self.rooms.load(Ordering::SeqCst);
        let mut error = match write().await {
            Err(error) if lacks_room(&error) => error,
            result => return Ok(result),
        };
        let Some(_counted) = self.hold(bytes) else { return Ok(Err(error)) };
        let (end, left) = (tokio::time::sleep(longest), requester.ends());
        tokio::pin!(end, left);
        let _turn = tokio::select! {
            biased;
            () = &mut left => return Err(DeviceError::Shutdown),
            () = &mut end => return Ok(Err(error)),
            turn = self.turn.lock() => turn,
        };
        loop {
            tokio::select! {
                biased;
                () = &mut left => return Err(DeviceError::Shutdown),
                () = &mut end => return Ok(Err(error)),
                () = self.may_fit(seen, bytes, &error, &space) => {}
            }
            if self.over.load(Ordering::SeqCst) {
                return Ok(Err(error));
            }
            // Its connection may not have noticed yet.
            tokio::select! {
                biased;
                () = &mut end => return Ok(Err(error)),
                stay = requester.ask() => match stay {
                    Stay::Here => {}
                    Stay::Ending | Stay::Left => return Err(DeviceError::Shutdown),
                },
            }
            seen = self.rooms.load(Ordering::SeqCst);
            match write().await {
                Err(again) if lacks_room(&again) => error = again,
                result => {
                    // The next one may fit, too.
                    self.room_made();
                    return Ok(result);
                }
            }
        }
    }

    /// Waits until there may be room for a write of `bytes` that was refused when `seen` was counted.
    async fn may_fit(&self, seen: u64, bytes: usize, error: &Error, space: impl Fn() -> (u64, u64)) {
        let room = || {
            let (used, limit) = space();
            limit.saturating_sub(used)
        };
        let wanted = room() + (bytes as u64 / RATIO).max(layout::BLOCK_BYTES as u64);
        let is_below = matches!(error, Error::BackingFull);
        loop {
            // Before the count is read, so that no announcement is missed.
            let made = self.room_made.notified();
            if self.rooms.load(Ordering::SeqCst) != seen {
                return;
            }
            let look = if is_below { LOOK_BELOW } else { LOOK };
            let made = tokio::time::timeout(look, made).await.is_ok();
            if made || is_below || room() >= wanted {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    use device::Connection;

    /// A drive with room for so many writes.
    struct Full {
        room: AtomicU64,
        tried: AtomicU32,
        held: Held,
        events: Arc<AtomicU32>,
    }

    fn full(when_full: WhenFull) -> Full {
        let events = Arc::new(AtomicU32::new(0));
        let sink = events.clone();
        let count = move |_, _| {
            sink.fetch_add(1, Ordering::Relaxed);
        };
        let held = Held::new(when_full, Arc::default(), Box::new(count));
        Full { room: AtomicU64::new(0), tried: AtomicU32::new(0), held, events }
    }

    impl Full {
        async fn write(&self, bytes: usize) -> Result<(), Error> {
            self.write_for(bytes, &Requester::default()).await.expect("nobody leaves")
        }

        async fn write_for(
            &self,
            bytes: usize,
            requester: &Requester,
        ) -> Result<Result<(), Error>, DeviceError> {
            let write = || async {
                self.tried.fetch_add(1, Ordering::Relaxed);
                let taken =
                    self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1));
                taken.map(drop).map_err(|_| Error::NoSpace)
            };
            let space = || (1 << 20, (1 << 20) + self.room.load(Ordering::Relaxed) * (4 << 20));
            self.held.make(bytes, requester, space, write).await
        }

        fn trim(&self, writes: u64) {
            self.room.fetch_add(writes, Ordering::Relaxed);
            self.held.room_made();
        }
    }

    const WAIT: WhenFull = WhenFull::Wait(Duration::from_secs(60));

    async fn after(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_at_once_unless_it_is_to_wait() {
        let drive = full(WhenFull::Error);
        let start = Instant::now();
        assert_eq!(drive.write(4096).await, Err(Error::NoSpace));
        assert_eq!((start.elapsed(), drive.held.counts()), (Duration::ZERO, (0, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn held_writes_go_on_as_soon_as_there_is_room() {
        let drive = full(WAIT);
        let start = Instant::now();
        let room = async {
            after(5).await;
            assert_eq!(drive.held.counts(), (3, 3));
            drive.trim(2);
            after(1).await;
            assert_eq!(drive.held.counts(), (1, 3), "what is trimmed is had at once");
            // Not announced.
            drive.room.fetch_add(1, Ordering::Relaxed);
        };
        let (a, b, c, ()) = tokio::join!(drive.write(4096), drive.write(4096), drive.write(4096), room);
        assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
        assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
        assert_eq!((drive.held.counts(), drive.events.load(Ordering::Relaxed)), ((0, 3), 1));
        // They do not retry in vain.
        assert!(drive.tried.load(Ordering::Relaxed) <= 10, "{:?}", drive.tried);
    }

    #[tokio::test(start_paused = true)]
    async fn each_write_fails_when_its_time_is_over() {
        let drive = full(WAIT);
        let start = Instant::now();
        let second = async {
            after(10).await;
            let result = drive.write(4096).await;
            (result, start.elapsed().as_secs())
        };
        let first = async { (drive.write(4096).await, start.elapsed().as_secs()) };
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first, second), ((Err(Error::NoSpace), 60), (Err(Error::NoSpace), 70)));
        assert_eq!(drive.tried.load(Ordering::Relaxed), 2, "without room nothing is tried");
        assert_eq!(drive.held.counts(), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_of_a_connection_that_ends_is_given_up_at_once() {
        for stay in [Stay::Ending, Stay::Left] {
            let (drive, start) = (full(WAIT), Instant::now());
            let connection = Connection::new();
            let requester = connection.requester();
            let end = async {
                after(1).await;
                connection.answer(|| stay);
            };
            // The second waits for its turn.
            let other = Requester::default();
            let another = async {
                after(2).await;
                assert_eq!(drive.held.counts(), (1, 3));
                drive.trim(1);
            };
            let (one, two, kept, ..) = tokio::join!(
                drive.write_for(4096, &requester),
                drive.write_for(4096, &requester),
                drive.write_for(4096, &other),
                end,
                another
            );
            let gone = Err(DeviceError::Shutdown);
            assert_eq!((one, two, kept), (gone.clone(), gone, Ok(Ok(()))), "{stay:?}");
            assert_eq!(start.elapsed().as_secs(), 2, "{stay:?}");
        }
    }

    /// The connection may not have noticed yet that its client has left when there is room.
    #[tokio::test(start_paused = true)]
    async fn a_held_write_is_not_tried_before_its_client_is_known_to_be_there() {
        for (stay, tried) in [(Stay::Here, 2), (Stay::Left, 1)] {
            let drive = full(WAIT);
            let connection = Connection::new();
            let requester = connection.requester();
            let room = async {
                after(1).await;
                drive.trim(1);
                after(1).await;
                assert_eq!(drive.tried.load(Ordering::Relaxed), 1);
                connection.answer(|| stay);
            };
            let (result, ()) = tokio::join!(drive.write_for(4096, &requester), room);
            let expected = if stay == Stay::Here { Ok(Ok(())) } else { Err(DeviceError::Shutdown) };
            assert_eq!((result, drive.tried.load(Ordering::Relaxed)), (expected, tried));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn held_writes_take_bounded_memory() {
        let drive = full(WAIT);
        let large = async { tokio::join!(drive.write(32 << 20), drive.write(16 << 20)) };
        let small = async {
            after(1).await;
            let start = Instant::now();
            assert_eq!(drive.write(4096).await, Err(Error::NoSpace), "no memory is left");
            assert_eq!(start.elapsed(), Duration::ZERO);
            drive.trim(2);
        };
        assert_eq!(tokio::join!(large, small).0, (Ok(()), Ok(())));
        assert_eq!(drive.held.bytes.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_given_up_leaves_its_place() {
        let drive = full(WAIT);
        let gone = tokio::time::timeout(Duration::from_secs(1), drive.write(4096)).await;
        assert!(gone.is_err());
        assert_eq!(drive.held.counts(), (0, 1));
        let stop = async {
            after(1).await;
            drive.held.stop();
        };
        let start = Instant::now();
        assert_eq!(tokio::join!(drive.write(4096), stop).0, Err(Error::NoSpace));
        assert_eq!(start.elapsed().as_secs(), 1, "a drive that is closed waits for nobody");
    }
}
