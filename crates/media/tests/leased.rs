//! Changes of a backing whose lease ends after they were queued, and before the kernel is given them.

mod common;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use common::{now, pattern, read};
use media::{Allocation, Direct, FileMedia, Lease, Media, UringReactor};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

const SIZE: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Until when the lease holds in the beginning.
const LEASE: u64 = 10;

struct Bench {
    _dir: tempfile::TempDir,
    file: FileMedia,
    leased: FileMedia,
    lease: Arc<Lease>,
    clock: Arc<AtomicU64>,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = FileMedia::create(dir.path().join("drive"), SIZE, Allocation::Preallocated, Direct::Auto);
        let file = file.expect("created");
        now(file.write(0, Arc::new(old(SIZE)))).expect("written");
        let clock = Arc::new(AtomicU64::new(0));
        let asked = clock.clone();
        let lease = Arc::new(Lease::new(Arc::new(move || asked.load(Ordering::Relaxed))));
        lease.extend(LEASE);
        Bench { _dir: dir, leased: file.leased(lease.clone()), file, lease, clock }
    }

    fn changes(&self) -> Vec<Pin<Box<dyn Future<Output = std::io::Result<()>> + '_>>> {
        vec![
            Box::pin(self.leased.write(0, Arc::new(pattern(0, 2, PAGE as usize)))),
            Box::pin(self.leased.discard(PAGE, PAGE)),
            Box::pin(self.leased.sync()),
        ]
    }

    async fn assert_unchanged(&self) {
        assert_eq!(read(&self.file, 0, SIZE as usize).await[..], old(SIZE)[..]);
    }
}

fn old(len: u64) -> media::IoBuf {
    pattern(7, 1, len as usize)
}

async fn poll_once<T>(mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Queues changes, runs `meanwhile`, and lets the kernel have them. They wait for the lease then.
async fn queue(bench: &Bench, meanwhile: impl AsyncFnOnce()) {
    let mut changes = bench.changes();
    for change in &mut changes {
        assert!(poll_once(change.as_mut()).await.is_pending());
    }
    // The process is stopped until the lease has ended.
    bench.clock.store(LEASE, Ordering::Relaxed);
    meanwhile().await;
    while !bench.lease.is_quiet() {
        for change in &mut changes {
            assert!(poll_once(change.as_mut()).await.is_pending(), "a change without a lease is done");
        }
        tokio::task::yield_now().await;
    }
    bench.assert_unchanged().await;
    bench.lease.extend(LEASE + 1);
    for change in changes {
        change.await.expect("it holds again");
    }
    assert_eq!(read(&bench.file, 0, PAGE as usize).await[..], pattern(0, 2, PAGE as usize)[..]);
    assert!(read(&bench.file, PAGE, PAGE as usize).await.iter().all(|byte| *byte == 0));
}

/// As [`queue`], but the lease is lost.
async fn lose(bench: &Bench, meanwhile: impl AsyncFnOnce()) {
    let mut changes = bench.changes();
    for change in &mut changes {
        assert!(poll_once(change.as_mut()).await.is_pending());
    }
    bench.lease.lose("another host took the drive");
    meanwhile().await;
    for change in changes {
        let error = change.await.expect_err("lost");
        assert!(error.to_string().contains("another host took the drive"), "{error}");
    }
    bench.assert_unchanged().await;
    assert!(bench.lease.is_quiet());
}

/// Runs a test with one blocking thread, and that busy until `meanwhile` is called.
fn with_busy_thread(ring: bool, test: impl AsyncFnOnce(Bench, oneshot::Sender<()>)) {
    let bench = Bench::new();
    let runtime = Builder::new_current_thread().enable_io().max_blocking_threads(1).build().expect("runtime");
    runtime.block_on(async {
        let guard = ring.then(|| UringReactor::install(8));
        if let Some(Err(error)) = &guard {
            eprintln!("skipped: no io_uring here: {error}");
            return;
        }
        let (free, freed) = oneshot::channel();
        Handle::current().spawn_blocking(|| freed.blocking_recv());
        test(bench, free).await;
        drop(guard);
    });
}

#[test]
fn a_change_waits_whose_lease_ends_in_the_queue() {
    for ring in [true, false] {
        with_busy_thread(ring, async |bench, free| {
            queue(&bench, async || free.send(()).expect("it waits")).await;
        });
    }
}

#[test]
fn a_change_fails_whose_lease_is_lost_in_the_queue() {
    for ring in [true, false] {
        with_busy_thread(ring, async |bench, free| {
            lose(&bench, async || free.send(()).expect("it waits")).await;
        });
    }
}

#[test]
fn the_last_write_is_not_made_after_the_end() {
    with_busy_thread(false, async |bench, free| {
        let rest = Arc::new(bench.lease.close("closed").expect("nothing is under way"));
        let mut write = pin!(bench.file.write_while(&rest, 0, Arc::new(pattern(0, 2, PAGE as usize))));
        assert!(poll_once(write.as_mut()).await.is_pending());
        bench.clock.store(LEASE, Ordering::Relaxed);
        free.send(()).expect("it waits");
        write.await.expect_err("the lease has ended");
        bench.assert_unchanged().await;
    });
}

#[test]
fn others_of_a_ring_are_not_held_up() {
    with_busy_thread(true, async |bench, _free| {
        bench.clock.store(LEASE, Ordering::Relaxed);
        let mut held: Vec<_> =
            (0..40).map(|page| Box::pin(bench.leased.write(page * PAGE, Arc::new(old(PAGE))))).collect();
        for write in &mut held {
            assert!(poll_once(write.as_mut()).await.is_pending());
        }
        for page in 40..80 {
            bench.file.write(page * PAGE, Arc::new(pattern(page, 3, PAGE as usize))).await.expect("written");
        }
        bench.lease.extend(LEASE + 1);
        for write in held {
            write.await.expect("it holds again");
        }
    });
}

#[test]
fn a_file_whose_lease_has_ended_does_not_grow() {
    let bench = Bench::new();
    assert_eq!(bench.leased.grow(2 * SIZE, Allocation::Sparse).expect("grown"), 2 * SIZE);
    bench.clock.store(LEASE, Ordering::Relaxed);
    bench.leased.grow(3 * SIZE, Allocation::Sparse).expect_err("the lease has ended");
    bench.lease.lose("another host took the drive");
    let error = bench.leased.grow(3 * SIZE, Allocation::Sparse).expect_err("the lease is lost");
    assert!(error.to_string().contains("another host took the drive"), "{error}");
    assert_eq!(bench.file.metadata().expect("its metadata").len(), 2 * SIZE);
    assert!(bench.lease.is_quiet());
}

#[test]
fn cached_pages_are_forgotten() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = FileMedia::create(dir.path().join("drive"), SIZE, Allocation::Sparse, Direct::Off);
    let file = file.expect("created");
    now(file.write(0, Arc::new(old(SIZE)))).expect("written");
    now(file.sync()).expect("synced");
    let other = file.reopen().expect("opened again");
    let is_cached = || {
        let mut page = [0; PAGE as usize];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(&other, &mut [std::io::IoSliceMut::new(&mut page)], 0, flags)
    };
    if let Err(error) = is_cached() {
        eprintln!("skipped: this file system does not say what is cached: {error}");
        return;
    }
    file.forget_cached().expect("forgotten");
    match is_cached() {
        Err(rustix::io::Errno::AGAIN) => {}
        // Memory is all that it is in.
        Ok(_) if rustix::fs::fstatfs(&other).is_ok_and(|found| found.f_type == 0x0102_1994) => {
            eprintln!("skipped: a tmpfs");
        }
        other => panic!("still cached: {other:?}"),
    }
    assert_eq!(now(read(&file, 0, SIZE as usize))[..], old(SIZE)[..]);
}
