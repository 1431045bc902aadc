//! A toy drive: it keeps everything in memory, with a log for recovery. The simulator itself is tested with
//! it, because it is small enough to be verified by reading, and can be made wrong on purpose.
//!
//! The backing has two halves. One holds a snapshot of the drive and, after it, an entry for each later
//! write. When it is full, a snapshot is written to the other half. [`log`] defines the layout of both.

mod log;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Poll, Waker};

use drive::{Fault, PlantedBug, ReadOnly, Zeroes};
use futures::channel::oneshot;
use futures::lock::Mutex as Gate;
use media::{Media, PAGE_BYTES, SimMedia};
use parking_lot::Mutex;

use crate::executor::yield_now;
use crate::{Bug, Config, Error, Opening, Subject};
use log::{Entry, Kind, pages};
use recovery::{Checksums, Damage};

const PAGE: u64 = PAGE_BYTES as u64;

/// Most data of an entry, in bytes. A write up to this size is one entry and therefore atomic.
const ENTRY_BYTES_MAX: u64 = 256 << 10;

type Blocks = BTreeMap<u64, Box<[u8; PAGE_BYTES]>>;

/// When writes are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteCache {
    /// Before they are durable.
    WriteBack,
    /// Once they are durable.
    WriteThrough,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

/// The toy drive.
#[derive(Clone)]
pub struct Toy(Arc<Inner>);

struct Inner {
    media: Arc<SimMedia>,
    opening: Opening,
    write_cache: WriteCache,
    access: Access,
    logical_bytes: u64,
    /// Held by each change of the drive.
    gate: Gate<()>,
    /// Held during a sync.
    sync_gate: Gate<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blocks: Blocks,
    half: u64,
    generation: u64,
    /// Number of the first entry of this generation.
    first: u64,
    /// Number of the next entry.
    next: u64,
    /// Position of the next entry, in pages from the start of the half.
    tail: u64,
    /// Every entry up to this one is durable.
    durable: u64,
    unwritten: BTreeSet<u64>,
    waiting: Vec<Waker>,
    /// Reason why it accepts no more changes, if any.
    ended: Option<ReadOnly>,
    /// A block as of the last snapshot, for [`PlantedBug::ApplyStaleMove`].
    stale: Option<(u64, Vec<u8>)>,
    snapshots: u64,
}

impl State {
    fn usable(&self) -> Result<(), Error> {
        self.ended.clone().map_or(Ok(()), |why| Err(Error::ReadOnly(why)))
    }

    fn end(&mut self, why: ReadOnly) {
        self.ended.get_or_insert(why);
        self.wake();
    }

    fn poison(&mut self, why: String) {
        self.end(ReadOnly::Poisoned(why));
    }

    fn wake(&mut self) {
        std::mem::take(&mut self.waiting).into_iter().for_each(Waker::wake);
    }

    fn apply(&mut self, offset: u64, data: Option<&[u8]>, len: u64) {
        for at in (offset..offset + len).step_by(512) {
            let block = self.blocks.entry(at / PAGE).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            let target = &mut block[(at % PAGE) as usize..][..512];
            match data {
                Some(data) => target.copy_from_slice(&data[(at - offset) as usize..][..512]),
                None => target.fill(0),
            }
        }
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let held: Vec<u64> =
            self.blocks.range(offset / PAGE..end.div_ceil(PAGE)).map(|(&block, _)| block).collect();
        for block in held {
            let (from, to) = (offset.max(block * PAGE), end.min((block + 1) * PAGE));
            if to - from == PAGE {
                self.blocks.remove(&block);
            } else {
                self.apply(from, None, to - from);
            }
        }
    }

    /// Pages of a snapshot, if the blocks `more` were present too.
    fn snapshot_pages(&self, more: std::ops::Range<u64>) -> u64 {
        let mut numbers: BTreeSet<u64> = self.blocks.keys().copied().collect();
        numbers.extend(more);
        let mut run = (0, 0);
        let mut total = 2;
        for number in numbers {
            if number != run.0 + run.1 || run.1 * PAGE == ENTRY_BYTES_MAX {
                run = (number, 0);
                total += 1;
            }
            run.1 += 1;
            total += 1;
        }
        total
    }
}

impl Inner {
    fn half_pages(&self) -> u64 {
        self.media.size_bytes() / PAGE / 2
    }

    fn has(&self, bug: PlantedBug) -> bool {
        self.opening.bug == Some(Bug::Drive(bug))
    }

    /// Appends an entry to the log. Its write is done in the background.
    fn append(self: &Arc<Self>, kind: Kind, offset: u64, len: u64, data: &[u8]) {
        let mut state = self.state.lock();
        let entry = Entry {
            generation: state.generation,
            first: state.first,
            number: state.next,
            durable: state.durable,
            kind,
            offset,
            len,
        };
        let buf = Arc::new(entry.encode(data));
        let position = (state.half * self.half_pages() + state.tail) * PAGE;
        state.tail += pages(data.len() as u64);
        state.next += 1;
        state.unwritten.insert(entry.number);
        let inner = self.clone();
        (self.opening.spawner)(Box::pin(async move {
            let mut result = inner.media.write(position, buf.clone()).await;
            if result.is_err() {
                // One retry: a single failed write must not poison the drive.
                result = inner.media.write(position, buf).await;
            }
            let mut state = inner.state.lock();
            match result {
                Ok(()) => _ = state.unwritten.remove(&entry.number),
                Err(error) => state.poison(format!("a write failed: {error}")),
            }
            state.wake();
        }));
    }

    /// Makes everything appended so far durable.
    async fn sync(self: &Arc<Self>) -> Result<(), Error> {
        let last = self.state.lock().next - 1;
        std::future::poll_fn(|context| {
            let mut state = self.state.lock();
            if state.ended.is_some() || state.unwritten.first().is_none_or(|&first| first > last) {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.state.lock().usable()?;
        // In the background, so that its error is noticed even if the request is given up. One at a time, so
        // that no sync consumes an error that concerns the writes of another.
        let (sender, synced) = oneshot::channel();
        let inner = self.clone();
        (self.opening.spawner)(Box::pin(async move {
            let _gate = inner.sync_gate.lock().await;
            let result = inner.media.sync().await;
            let mut state = inner.state.lock();
            match result {
                Ok(()) if state.ended.is_none() => state.durable = state.durable.max(last),
                Ok(()) => {}
                Err(error) => state.poison(format!("a sync failed: {error}")),
            }
            _ = sender.send(());
        }));
        _ = synced.await;
        self.state.lock().usable()
    }

    /// Writes the whole drive to the other half and continues there. The caller holds the gate.
    async fn snapshot(self: &Arc<Self>) -> Result<(), Error> {
        self.state.lock().usable()?;
        self.sync().await?;
        let (blocks, old_half) = {
            let mut state = self.state.lock();
            let old_half = state.half;
            state.half = 1 - old_half;
            state.generation += 1;
            state.first = state.next;
            state.tail = 0;
            state.snapshots += 1;
            (state.blocks.clone(), old_half)
        };
        if self.has(PlantedBug::ReuseSegmentEarly) {
            let position = old_half * self.half_pages() * PAGE;
            let wiped = self.media.write(position, Arc::new(media::IoBuf::zeroed(PAGE_BYTES))).await;
            wiped.map_err(|error| Error::Io(error.to_string()))?;
        }
        let mut run: Option<(u64, Vec<u8>)> = None;
        for (number, block) in &blocks {
            match &mut run {
                Some((start, data))
                    if *start + (data.len() / PAGE_BYTES) as u64 == *number
                        && (data.len() as u64) < ENTRY_BYTES_MAX =>
                {
                    data.extend_from_slice(&block[..])
                }
                other => {
                    if let Some((start, data)) = other.replace((*number, block.to_vec())) {
                        self.append(Kind::Write, start * PAGE, data.len() as u64, &data);
                    }
                }
            }
        }
        if let Some((start, data)) = run {
            self.append(Kind::Write, start * PAGE, data.len() as u64, &data);
        }
        self.append(Kind::SnapshotEnd, 0, 0, &[]);
        self.state.lock().stale =
            blocks.first_key_value().map(|(&number, block)| (number * PAGE, block.to_vec()));
        self.sync().await
    }

    /// Appends and applies a change, in entries each of which is atomic.
    async fn change(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        fua: bool,
    ) -> Result<(), Error> {
        if offset.checked_add(len).is_none_or(|end| end > self.logical_bytes) {
            return Err(Error::Invalid(format!("{len} bytes at {offset}")));
        }
        yield_now().await;
        {
            let _gate = self.gate.lock().await;
            self.state.lock().usable()?;
            let whole = self.state.lock().snapshot_pages(if data.is_some() {
                offset / PAGE..(offset + len).div_ceil(PAGE)
            } else {
                0..0
            });
            // Space for a snapshot, and after it for the largest entry and a stale one.
            if data.is_some() && whole + 2 * pages(ENTRY_BYTES_MAX) > self.half_pages() {
                return Err(Error::NoSpace);
            }
            let step = if data.is_some() { ENTRY_BYTES_MAX } else { len.max(1) };
            for from in (0..len).step_by(step as usize) {
                let part = step.min(len - from);
                let bytes = data.map(|data| &data[from as usize..(from + part) as usize]);
                self.change_atomically(offset + from, part, bytes).await?;
            }
        }
        yield_now().await;
        if fua || self.write_cache == WriteCache::WriteThrough { self.flush().await } else { Ok(()) }
    }

    async fn change_atomically(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
    ) -> Result<(), Error> {
        let need = pages(data.map_or(0, <[u8]>::len) as u64) + pages(PAGE);
        if self.state.lock().tail + need > self.half_pages() {
            self.snapshot().await?;
        }
        match data {
            Some(data) => {
                self.append(Kind::Write, offset, len, data);
                self.state.lock().apply(offset, Some(data), len);
            }
            None => {
                if !self.has(PlantedBug::DropTrim) {
                    self.append(Kind::Zero, offset, len, &[]);
                }
                self.state.lock().zero(offset, len);
            }
        }
        if self.has(PlantedBug::ApplyStaleMove) {
            let stale = self.state.lock().stale.take_if(|(at, _)| (offset..offset + len).contains(at));
            if let Some((at, data)) = stale {
                self.append(Kind::Write, at, data.len() as u64, &data);
            }
        }
        Ok(())
    }

    async fn flush(self: &Arc<Self>) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly(ReadOnly::Requested));
        }
        self.state.lock().usable()?;
        if self.has(PlantedBug::SkipFlush) { Ok(()) } else { self.sync().await }
    }
}

impl Subject for Toy {
    async fn create(media: &SimMedia, _config: &Config) -> Result<(), Error> {
        recovery::format(media).await
    }

    async fn open(media: Arc<SimMedia>, config: &Config, opening: Opening) -> Result<Self, Error> {
        let on_damage = if opening.rescue { Damage::Accept } else { Damage::Refuse };
        let checksums = match opening.bug {
            Some(Bug::Drive(PlantedBug::IgnoreTornPack)) => Checksums::Ignore,
            _ => Checksums::Verify,
        };
        let state = recovery::recover(&media, on_damage, checksums).await?;
        let is_read_only = opening.rescue || opening.read_only;
        let inner = Arc::new(Inner {
            media,
            write_cache: if config.write_cache { WriteCache::WriteBack } else { WriteCache::WriteThrough },
            access: if is_read_only { Access::ReadOnly } else { Access::ReadWrite },
            logical_bytes: config.capacity_bytes(),
            opening,
            gate: Gate::new(()),
            sync_gate: Gate::new(()),
            state: Mutex::new(state),
        });
        if inner.access == Access::ReadOnly {
            inner.state.lock().end(ReadOnly::Requested);
        } else {
            // Entries after the last valid one must never become valid again.
            inner.snapshot().await?;
        }
        Ok(Toy(inner))
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        for (at, out) in (offset..).step_by(512).zip(buf.chunks_exact_mut(512)) {
            if at % (64 << 10) == 0 {
                yield_now().await;
            }
            match self.0.state.lock().blocks.get(&(at / PAGE)) {
                Some(block) => out.copy_from_slice(&block[(at % PAGE) as usize..][..512]),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        self.0.change(offset, data.len() as u64, Some(data), fua).await
    }

    async fn flush(&self) -> Result<(), Error> {
        self.0.flush().await
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        self.0.change(offset, len, None, fua).await
    }

    async fn write_zeroes(&self, offset: u64, len: u64, zeroes: Zeroes) -> Result<(), Error> {
        self.0.change(offset, len, None, zeroes.fua).await
    }

    async fn maintain(&self) -> Result<bool, Error> {
        Ok(false)
    }

    async fn clean(&self) -> Result<bool, Error> {
        let _gate = self.0.gate.lock().await;
        self.0.snapshot().await.map(|()| true)
    }

    async fn checkpoint(&self) -> Result<(), Error> {
        self.0.flush().await
    }

    fn tick(&self) {}

    async fn close(&self) -> Result<(), Error> {
        let _gate = self.0.gate.lock().await;
        if self.0.access == Access::ReadWrite {
            self.0.flush().await?;
        }
        self.0.state.lock().end(ReadOnly::Closed);
        Ok(())
    }

    async fn check(&self, _deep: bool) -> Result<Vec<Fault>, Error> {
        Ok(Vec::new())
    }

    fn waiting_memory_bytes(&self) -> u64 {
        0
    }

    fn bugs() -> Vec<Bug> {
        use PlantedBug::{ApplyStaleMove, DropTrim, IgnoreTornPack, ReuseSegmentEarly, SkipFlush};
        [SkipFlush, ApplyStaleMove, ReuseSegmentEarly, IgnoreTornPack, DropTrim].map(Bug::Drive).into()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("toy: snapshot", self.0.state.lock().snapshots)]
    }
}
