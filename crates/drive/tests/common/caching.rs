//! A backing behind a cache, like a file in a page cache or a loop device. Reads return what was written, but
//! only a sync makes it durable. A failed sync loses the data it should have made durable: reads still return
//! it, and no later sync writes it, unless it is written again. After a power cut only the durable content is
//! left.
#![allow(dead_code, unreachable_pub)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use media::{IoBuf, Media, PAGE_BYTES};
use parking_lot::Mutex;

/// Content of each page. `None`: zeros.
type Pages = Vec<Option<Arc<[u8]>>>;

#[derive(Clone)]
struct State {
    /// Content that reads return.
    shown: Pages,
    /// Content of the medium.
    durable: Pages,
    /// Pages written since the last sync.
    dirty: Vec<bool>,
}

pub struct Caching {
    state: Mutex<State>,
    pub syncs: AtomicU64,
    /// Number of the sync that fails, counted from 0.
    pub failing_sync: AtomicU64,
    /// Writes and syncs until the power is cut.
    pub steps_left: AtomicU64,
    /// Writes until the backing is full. As on a copy-on-write file system, overwrites count too.
    pub room: AtomicU64,
    /// Writes that touch this page fail, also after a power cut.
    pub unwritable: Option<usize>,
}

impl Caching {
    pub fn new(size_bytes: u64) -> Caching {
        let pages = size_bytes as usize / PAGE_BYTES;
        let state = State { shown: vec![None; pages], durable: vec![None; pages], dirty: vec![false; pages] };
        Caching::of(state, None)
    }

    fn of(state: State, unwritable: Option<usize>) -> Caching {
        Caching {
            unwritable,
            state: Mutex::new(state),
            syncs: AtomicU64::new(0),
            failing_sync: AtomicU64::new(u64::MAX),
            steps_left: AtomicU64::new(u64::MAX),
            room: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns a copy of the backing in its current state, including the cache.
    pub fn fork(&self) -> Arc<Caching> {
        self.fork_unwritable(self.unwritable)
    }

    /// The same, with a page that accepts no writes from now on.
    pub fn fork_unwritable(&self, page: Option<usize>) -> Arc<Caching> {
        Arc::new(Caching::of(self.state.lock().clone(), page))
    }

    /// Pages that would have other content after a power cut.
    pub fn at_risk(&self) -> Vec<usize> {
        let state = self.state.lock();
        (0..state.shown.len()).filter(|page| state.shown[*page] != state.durable[*page]).collect()
    }

    /// Returns the backing after a power cut: the durable content, and those cached pages for which `reaches`
    /// returns true.
    pub fn cut(&self, reaches: impl Fn(usize) -> bool) -> Arc<Caching> {
        let mut state = self.state.lock().clone();
        for page in 0..state.dirty.len() {
            if state.dirty[page] && reaches(page) {
                state.durable[page] = state.shown[page].clone();
            }
        }
        state.shown = state.durable.clone();
        state.dirty.fill(false);
        Arc::new(Caching::of(state, self.unwritable))
    }

    fn take_step(&self) -> io::Result<()> {
        let taken = self.steps_left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        taken.map(drop).map_err(|_| io::Error::other("the power is cut"))
    }
}

impl Media for Caching {
    fn size_bytes(&self) -> u64 {
        (self.state.lock().shown.len() * PAGE_BYTES) as u64
    }

    async fn read(&self, offset: u64, mut buf: IoBuf) -> (IoBuf, io::Result<()>) {
        let state = self.state.lock();
        for (page, out) in (offset as usize / PAGE_BYTES..).zip(buf.chunks_mut(PAGE_BYTES)) {
            match &state.shown[page] {
                Some(bytes) => out.copy_from_slice(bytes),
                None => out.fill(0),
            }
        }
        drop(state);
        (buf, Ok(()))
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.take_step()?;
        if self.room.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let first = offset as usize / PAGE_BYTES;
        if self.unwritable.is_some_and(|page| (first..first + buf.len().div_ceil(PAGE_BYTES)).contains(&page))
        {
            return Err(io::Error::other("injected"));
        }
        let mut state = self.state.lock();
        for (page, bytes) in (offset as usize / PAGE_BYTES..).zip(buf.chunks(PAGE_BYTES)) {
            state.shown[page] = Some(bytes.into());
            state.dirty[page] = true;
        }
        Ok(())
    }

    async fn sync(&self) -> io::Result<()> {
        self.take_step()?;
        let mut state = self.state.lock();
        let State { shown, durable, dirty } = &mut *state;
        let fails = self.syncs.fetch_add(1, SeqCst) == self.failing_sync.load(SeqCst);
        for page in (0..dirty.len()).filter(|page| dirty[*page] && !fails) {
            durable[page] = shown[page].clone();
        }
        dirty.fill(false);
        if fails { Err(io::Error::other("injected")) } else { Ok(()) }
    }

    async fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
