//! A backing in memory that fails, waits and counts on demand, and an executor that polls manually.
#![allow(dead_code, unreachable_pub)]

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use drive::{Drive, OpenOptions, Spawner};
use media::{IoBuf, Media, MemoryMedia};
use parking_lot::Mutex;

use crate::common::{Erased, erased};

pub struct Faulty {
    memory: MemoryMedia,
    pub fail_reads: AtomicBool,
    /// Reads that begin in one of these ranges fail.
    pub unreadable: Mutex<Vec<Range<u64>>>,
    /// Reads that touch one of these ranges fail.
    pub lost: Mutex<Vec<Range<u64>>>,
    /// Pages of these ranges can be read again once they were written, as on most disks.
    pub heals: AtomicBool,
    /// Reads that begin in one of these ranges fail by turns, beginning with the next one if it is set.
    pub flaky: Mutex<Vec<(Range<u64>, bool)>>,
    /// Writes that touch one of these ranges fail.
    pub unwritable: Mutex<Vec<Range<u64>>>,
    /// Ranges of attempted writes, in order.
    pub attempts: Mutex<Vec<Range<u64>>>,
    pub fail_writes: AtomicBool,
    /// Writes fail because the backing is full.
    pub full: AtomicBool,
    pub fail_syncs: AtomicBool,
    pub fail_discards: AtomicBool,
    /// Discards fail because the backing is full.
    pub full_discards: AtomicBool,
    /// Operations of a kind wait while this is set.
    pub hold_writes: AtomicBool,
    pub hold_syncs: AtomicBool,
    pub hold_reads: AtomicBool,
    /// Writes that touch one of these ranges wait.
    pub held: Mutex<Vec<Range<u64>>>,
    pub failed_reads: AtomicU64,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    pub discards: AtomicU64,
}

impl Faulty {
    pub fn new(size_bytes: u64) -> Faulty {
        Faulty {
            memory: MemoryMedia::new(size_bytes),
            fail_reads: AtomicBool::new(false),
            unreadable: Mutex::default(),
            lost: Mutex::default(),
            heals: AtomicBool::new(false),
            flaky: Mutex::default(),
            unwritable: Mutex::default(),
            attempts: Mutex::default(),
            fail_writes: AtomicBool::new(false),
            full: AtomicBool::new(false),
            fail_syncs: AtomicBool::new(false),
            fail_discards: AtomicBool::new(false),
            full_discards: AtomicBool::new(false),
            hold_writes: AtomicBool::new(false),
            hold_syncs: AtomicBool::new(false),
            hold_reads: AtomicBool::new(false),
            held: Mutex::default(),
            failed_reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            discards: AtomicU64::new(0),
        }
    }

    /// A backing with these contents.
    pub fn holding(contents: Vec<u8>) -> Faulty {
        let media = Faulty::new(contents.len() as u64);
        let mut buf = IoBuf::zeroed(contents.len());
        buf.copy_from_slice(&contents);
        crate::common::run(media.memory.write(0, Arc::new(buf))).expect("write");
        media
    }

    /// Bytes that were written and not discarded since, in pieces of 256 KiB.
    pub fn held_bytes(&self) -> u64 {
        self.memory.resident_bytes()
    }

    /// Number of writes attempted so far that touch this part of the backing.
    pub fn attempts_at(&self, part: &Range<u64>) -> usize {
        self.attempts.lock().iter().filter(|range| overlap(range, part)).count()
    }

    /// Bytes of all writes attempted so far.
    pub fn attempted_bytes(&self) -> u64 {
        self.attempts.lock().iter().map(|range| range.end - range.start).sum()
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Waits while a switch is set. It wakes nothing, because everything here is polled manually.
async fn held(switch: &AtomicBool) {
    std::future::poll_fn(|_| if switch.load(SeqCst) { Poll::Pending } else { Poll::Ready(()) }).await;
}

fn fails(switch: &AtomicBool) -> io::Result<()> {
    if switch.load(SeqCst) { Err(io::Error::other("injected")) } else { Ok(()) }
}

fn is_outside(ranges: &Mutex<Vec<Range<u64>>>, touched: Range<u64>) -> io::Result<()> {
    let inside = ranges.lock().iter().any(|range| overlap(range, &touched));
    if inside { Err(io::Error::other("injected")) } else { Ok(()) }
}

fn by_turns(ranges: &Mutex<Vec<(Range<u64>, bool)>>, offset: u64) -> io::Result<()> {
    let mut ranges = ranges.lock();
    let Some((_, fails)) = ranges.iter_mut().find(|(range, _)| range.contains(&offset)) else {
        return Ok(());
    };
    *fails = !*fails;
    if *fails { Ok(()) } else { Err(io::Error::other("injected")) }
}

impl Media for Faulty {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        held(&self.hold_reads).await;
        let readable = || {
            is_outside(&self.lost, offset..offset + buf.len() as u64)
                .and_then(|()| is_outside(&self.unreadable, offset..offset + 1))
        };
        match fails(&self.fail_reads).and_then(|()| readable()).and_then(|()| by_turns(&self.flaky, offset)) {
            Ok(()) => self.memory.read(offset, buf).await,
            Err(error) => {
                self.failed_reads.fetch_add(1, SeqCst);
                (buf, Err(error))
            }
        }
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.writes.fetch_add(1, SeqCst);
        let range = offset..offset + buf.len() as u64;
        self.attempts.lock().push(range.clone());
        held(&self.hold_writes).await;
        std::future::poll_fn(|_| match is_outside(&self.held, range.clone()) {
            Ok(()) => Poll::Ready(()),
            Err(_) => Poll::Pending,
        })
        .await;
        fails(&self.fail_writes)?;
        if self.full.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        is_outside(&self.unwritable, range.clone())?;
        if self.heals.load(SeqCst) {
            let mut lost = self.lost.lock();
            let rest = lost
                .iter()
                .flat_map(|it| [it.start..it.end.min(range.start), it.start.max(range.end)..it.end]);
            *lost = rest.filter(|rest| !rest.is_empty()).collect();
        }
        self.memory.write(offset, buf).await
    }

    async fn sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, SeqCst);
        held(&self.hold_syncs).await;
        fails(&self.fail_syncs)
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.discards.fetch_add(1, SeqCst);
        if self.fail_discards.load(SeqCst) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.full_discards.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.memory.discard(offset, len).await
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Spawned tasks that have not ended.
#[derive(Clone, Default)]
pub struct Tasks(Arc<Mutex<Vec<Task>>>);

impl Tasks {
    pub fn spawner(&self) -> Spawner {
        let tasks = self.0.clone();
        Arc::new(move |task| tasks.lock().push(task))
    }

    /// Polls every task once.
    pub fn turn(&self) {
        let tasks = std::mem::take(&mut *self.0.lock());
        for mut task in tasks {
            if poll(task.as_mut()).is_none() {
                self.0.lock().push(task);
            }
        }
    }

    /// Polls a future and the tasks in turn until the future ends.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        for _ in 0..1_000_000 {
            if let Some(answer) = poll(future.as_mut()) {
                return answer;
            }
            self.turn();
        }
        panic!("the future waits for something that never comes");
    }

    /// Polls a future and the tasks at most `polls` times, then drops the future. Returns its result if it
    /// was ready.
    pub fn give_up<T>(&self, future: impl Future<Output = T>, polls: usize) -> Option<T> {
        let mut future = std::pin::pin!(future);
        for _ in 0..polls {
            if let Some(answer) = poll(future.as_mut()) {
                return Some(answer);
            }
            self.turn();
        }
        None
    }

    pub fn open(&self, media: &Arc<Faulty>, options: impl FnOnce(&mut OpenOptions)) -> Drive<Erased> {
        let mut with = OpenOptions::new(media.writes.load(SeqCst), self.spawner());
        options(&mut with);
        self.run(Drive::open(erased(media.clone()), with)).expect("open")
    }
}

/// Polls once.
pub fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
