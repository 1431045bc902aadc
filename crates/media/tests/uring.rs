//! The io_uring back end. If the kernel does not provide a ring, each test prints one line and passes.

mod common;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use common::{all, exercise, now, pattern, read, worker_runtime};
use media::{Allocation, AnyMedia, Direct, FileMedia, IoBuf, Media, UringReactor};

const SIZE: u64 = 8 << 20;

fn new_file(dir: &tempfile::TempDir, direct: Direct) -> FileMedia {
    FileMedia::create(dir.path().join("drive"), SIZE, Allocation::Sparse, direct).expect("create")
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

/// Runs `test` on a worker thread's runtime with a ring of `entries`. Returns `false` if no ring is
/// available.
fn with_ring(entries: u32, test: impl Future<Output = ()>) -> bool {
    worker_runtime().block_on(async {
        match UringReactor::install(entries) {
            Ok(_guard) => test.await,
            Err(error) => {
                eprintln!("skipped: no io_uring here: {error}");
                return false;
            }
        }
        true
    })
}

/// Polls a future once.
async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[test]
fn reads_back_what_it_writes_direct_and_buffered() {
    for direct in [Direct::Auto, Direct::Off] {
        let dir = scratch();
        let media = AnyMedia::from(new_file(&dir, direct));
        with_ring(64, exercise(&media));
    }
}

#[test]
fn many_more_requests_than_entries_all_complete() {
    let dir = scratch();
    let media = new_file(&dir, Direct::Auto);
    with_ring(4, async {
        let pages = SIZE / 4096;
        let written =
            all((0..pages).map(|page| media.write(page * 4096, Arc::new(pattern(page, 3, 4096))))).await;
        written.into_iter().for_each(|result| result.expect("write"));
        media.sync().await.expect("sync");
        let found = all((0..pages).map(|page| media.read(page * 4096, IoBuf::pooled(4096)))).await;
        for (page, (buf, result)) in found.into_iter().enumerate() {
            result.expect("read");
            assert_eq!(buf[..], pattern(page as u64, 3, 4096)[..], "page {page}");
        }
    });
}

#[test]
fn dropped_futures_leave_memory_alone() {
    let dir = scratch();
    let media = new_file(&dir, Direct::Auto);
    let ring = with_ring(16, async {
        media.write(0, Arc::new(pattern(0, 9, SIZE as usize))).await.expect("fill");
        let whole = pattern(0, 9, SIZE as usize);
        for round in 0..300u64 {
            // Started by one poll, then dropped while the kernel writes to its buffer.
            for lane in 0..8 {
                let len = 4096 << (lane % 5);
                let mut dropped = pin!(media.read(round % 64 * 4096, IoBuf::pooled(len)));
                let _ = poll_once(dropped.as_mut()).await;
            }
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            // If a buffer of those were already freed, these would share its memory with the kernel.
            let ours: Vec<_> = (0..40).map(|id| (id, pattern(id, round, 4096 << (id % 5)))).collect();
            assert_eq!(read(&media, 1 << 20, 65536).await[..], whole[1 << 20..(1 << 20) + 65536]);
            for (id, buf) in ours {
                assert_eq!(buf[..], pattern(id, round, buf.len())[..], "round {round}");
            }
        }
        // Dropped writes complete as a whole.
        for page in 0..64 {
            let mut dropped = pin!(media.write(page * 4096, Arc::new(pattern(page, 4, 4096))));
            let _ = poll_once(dropped.as_mut()).await;
        }
    });
    if ring {
        // The guard is dropped, so every request has finished. The plain back end reads the results.
        for page in 0..64 {
            assert_eq!(now(read(&media, page * 4096, 4096))[..], pattern(page, 4, 4096)[..], "page {page}");
        }
    }
}

#[test]
fn several_threads_share_a_drive() {
    let dir = scratch();
    let media = Arc::new(new_file(&dir, Direct::Auto));
    let threads: Vec<_> = (0..4u64)
        .map(|id| {
            let media = Arc::clone(&media);
            std::thread::spawn(move || {
                with_ring(32, async {
                    for round in 0..20 {
                        let place = |lane: u64| (id * 512 + (lane * 7 + round) % 512) * 4096;
                        let lanes = 0..48u64;
                        let data = |lane| pattern(id * 100 + lane, round, 4096);
                        let written =
                            all(lanes.clone().map(|lane| media.write(place(lane), Arc::new(data(lane)))))
                                .await;
                        written.into_iter().for_each(|result| result.expect("write"));
                        media.sync().await.expect("sync");
                        let found = all(lanes.map(|lane| media.read(place(lane), IoBuf::pooled(4096)))).await;
                        for (lane, (buf, result)) in found.into_iter().enumerate() {
                            result.expect("read");
                            assert_eq!(
                                buf[..],
                                data(lane as u64)[..],
                                "thread {id} round {round} lane {lane}"
                            );
                        }
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("thread");
    }
}

#[test]
fn a_future_may_move_to_another_thread_after_its_first_poll() {
    let dir = scratch();
    let media = Arc::new(new_file(&dir, Direct::Auto));
    now(media.write(0, Arc::new(pattern(0, 1, 4096)))).expect("write");
    with_ring(8, async {
        let moving = Arc::clone(&media);
        let mut future = Box::pin(async move { read(&*moving, 0, 4096).await });
        assert!(poll_once(future.as_mut()).await.is_pending(), "a read that is not submitted yet");
        let (done, result) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            done.send(worker_runtime().block_on(future)[..] == pattern(0, 1, 4096)[..])
        });
        assert!(result.await.expect("the other thread"));
    });
}

#[test]
fn errors_come_back_with_the_buffer() {
    let dir = scratch();
    let media = new_file(&dir, Direct::Auto);
    let path = media.path().to_path_buf();
    with_ring(8, async {
        // Truncated while the drive is open: reading past the end of the file is an error and does not return
        // zeros.
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(4096))
            .expect("truncate");
        let (buf, result) = media.read(0, IoBuf::zeroed(65536)).await;
        assert_eq!(buf.len(), 65536);
        assert_eq!(result.expect_err("short").kind(), std::io::ErrorKind::UnexpectedEof);
        let (_, result) = media.read(1 << 20, IoBuf::zeroed(4096)).await;
        assert_eq!(result.expect_err("short").kind(), std::io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn one_ring_a_thread_and_only_where_it_is_driven() {
    assert_eq!(UringReactor::install(8).expect_err("no runtime").kind(), std::io::ErrorKind::Unsupported);
    let dir = scratch();
    let media = new_file(&dir, Direct::Auto);
    let runtime = worker_runtime();
    let guard = runtime.block_on(async {
        let guard = UringReactor::install(8).ok()?;
        let again = UringReactor::install(8).expect_err("a second ring");
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
        exercise(&media).await;
        Some(guard)
    });
    let Some(guard) = guard else { return eprintln!("skipped: no io_uring here") };
    // Outside the ring's runtime, and in another runtime, the plain back end is used.
    now(exercise(&media));
    worker_runtime().block_on(exercise(&media));
    runtime.block_on(exercise(&media));
    assert!(UringReactor::installed());
    drop(guard);
    assert!(!UringReactor::installed());
    runtime.block_on(async {
        exercise(&media).await;
        let second = UringReactor::install(8).expect("after the first");
        exercise(&media).await;
        // The runtime is dropped before the guard. Nothing would drive the ring then, so it is removed too.
        std::mem::forget(second);
    });
    drop(runtime);
    assert!(!UringReactor::installed());
}
