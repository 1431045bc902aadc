//! A backing behind a cache, like a file in a page cache. Reads show what was written; only a sync brings it to the medium. A sync
//! that fails loses what it should have brought: reads go on showing it, and no later sync brings it, unless it is written again. A
//! power cut leaves what reached the medium.
#![allow(dead_code, unreachable_pub)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use media::{IoBuf, Media, PAGE_BYTES};
use parking_lot::Mutex;

/// Contents of each page; `None`: zeros.
type Pages = Vec<Option<Arc<[u8]>>>;

#[derive(Clone)]
struct State {
    /// What reads show.
    shown: Pages,
    /// What is on the medium.
    durable: Pages,
    /// Pages written that no sync has seen.
    dirty: Vec<bool>,
}

pub struct Caching {
    state: Mutex<State>,
    pub syncs: AtomicU64,
    /// The sync of this number, counted from 0, fails.
    pub failing_sync: AtomicU64,
    /// Writes and syncs until the power fails.
    pub steps_left: AtomicU64,
    /// Writes until there is no room left: a copy-on-write file system takes some for overwriting, too.
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

    /// Another that is as this one is now, cache and all.
    pub fn fork(&self) -> Arc<Caching> {
        self.fork_unwritable(self.unwritable)
    }

    /// The same, with a page that takes no write from now on.
    pub fn fork_unwritable(&self, page: Option<usize>) -> Arc<Caching> {
        Arc::new(Caching::of(self.state.lock().clone(), page))
    }

    /// Pages of which a power cut would leave something else than what is shown.
    pub fn at_risk(&self) -> Vec<usize> {
        let state = self.state.lock();
        (0..state.shown.len()).filter(|page| state.shown[*page] != state.durable[*page]).collect()
    }

    /// The medium after a power cut: what reached it, and of what is in the cache those pages that `reaches` says.
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

    fn may_show_unsynced(&self) -> bool {
        true
    }

    async fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
