//! Helpers shared by the tests of the backings.
#![allow(dead_code, reason = "each test file uses its part")]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use media::{IoBuf, Media, PAGE_BYTES};

/// Returns the result of a future that is ready at its first poll.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("not ready at once"),
    }
}

/// Creates a tokio runtime of one thread, like that of a worker.
pub(crate) fn worker_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_io().build().expect("runtime")
}

/// Returns bytes that differ between pages and versions.
pub(crate) fn pattern(page: u64, version: u64, len: usize) -> IoBuf {
    let mut buf = IoBuf::pooled(len);
    let mut state =
        page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version.wrapping_mul(0xd1b5_4a32_d192_ed03) | 1;
    for word in buf.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    buf
}

pub(crate) async fn read(media: &impl Media, offset: u64, len: usize) -> IoBuf {
    let mut buf = IoBuf::pooled(len);
    buf.fill(0x5a);
    let (buf, result) = media.read(offset, buf).await;
    result.expect("read");
    assert_eq!(buf.len(), len);
    buf
}

/// Writes and reads with many sizes, across the ends of any internal chunk, and requests that must be
/// refused.
pub(crate) async fn exercise(media: &impl Media) {
    let size = media.size_bytes();
    assert!(size >= 4 << 20, "room for the test");
    let mut version = 0;
    for len in [PAGE_BYTES, 3 * PAGE_BYTES, 128 << 10, (256 << 10) + PAGE_BYTES, 2 << 20] {
        for offset in [0, PAGE_BYTES as u64, (256 << 10) - PAGE_BYTES as u64, size - len as u64] {
            version += 1;
            let data = Arc::new(pattern(offset, version, len));
            media.write(offset, Arc::clone(&data)).await.expect("write");
            assert_eq!(&read(media, offset, len).await[..], &data[..], "{len} bytes at {offset}");
        }
    }
    media.sync().await.expect("sync");
    assert!(read(media, 0, 0).await.is_empty());

    for (offset, len) in [(size, PAGE_BYTES), (size - PAGE_BYTES as u64, 2 * PAGE_BYTES), (512, PAGE_BYTES)] {
        let (buf, result) = media.read(offset, IoBuf::zeroed(len)).await;
        assert_eq!(buf.len(), len, "the buffer comes back");
        assert_eq!(result.expect_err("read outside").kind(), std::io::ErrorKind::InvalidInput);
        let error = media.write(offset, Arc::new(IoBuf::zeroed(len))).await.expect_err("write outside");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let error = media.discard(offset, len as u64).await.expect_err("discard outside");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

/// Runs all futures concurrently on this task.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
