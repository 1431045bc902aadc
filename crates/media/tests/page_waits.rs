//! Buffered reads through io_uring that wait for the same page of a FUSE file system. Without FUSE or a ring
//! the test prints one line and passes.

mod common;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use fuser::{
    Config, Errno, FopenFlags, KernelConfig, OpenFlags, ReplyData, ReplyEmpty, ReplyWrite, spawn_mount,
};
use media::{Direct, FileMedia, IoBuf, Media, UringReactor};
use one_file::{Attributes, Contents, FILE_NAME, OneFile};
use rustix::fs::FallocateFlags;

/// Reads that wait at once: more than twice as many as the kernel retries in one call.
const READS: usize = 60;
/// Time after which a read is taken as lost.
const LIMIT: Duration = Duration::from_secs(60);

/// Requests with their sizes.
type Requests = Vec<(u32, ReplyData)>;

/// Zeros, which are read once it is opened.
#[derive(Clone, Default)]
struct Gate {
    /// Requests that wait. `None`: it is open.
    waiting: Arc<Mutex<Option<Requests>>>,
}

impl Gate {
    fn closed() -> Gate {
        Gate { waiting: Arc::new(Mutex::new(Some(Vec::new()))) }
    }

    fn open(&self) {
        let waiting = self.waiting.lock().expect("no panic").take();
        waiting.into_iter().flatten().for_each(|(size, reply)| reply.data(&vec![0; size as usize]));
    }
}

impl Contents for Gate {
    fn size_bytes(&self) -> u64 {
        4096
    }

    fn init(&mut self, _config: &mut KernelConfig) -> io::Result<()> {
        Ok(())
    }

    fn opened(&self) -> FopenFlags {
        FopenFlags::FOPEN_KEEP_CACHE
    }

    fn read(&self, _id: u64, _offset: u64, size: u32, _flags: OpenFlags, reply: ReplyData) {
        match &mut *self.waiting.lock().expect("no panic") {
            Some(waiting) => waiting.push((size, reply)),
            None => reply.data(&vec![0; size as usize]),
        }
    }

    fn write(&self, _offset: u64, _data: &[u8], reply: ReplyWrite) {
        reply.error(Errno::EROFS);
    }

    fn sync(&self, reply: ReplyEmpty) {
        reply.ok();
    }

    fn allocate(&self, _offset: u64, _length: u64, _mode: FallocateFlags, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }
}

/// Polls each read once, so that all are in the kernel before one is done.
async fn begin(reads: &mut [Pin<Box<impl Future>>]) {
    std::future::poll_fn(|cx| {
        for read in &mut *reads {
            assert!(read.as_mut().poll(cx).is_pending(), "the page was there already");
        }
        Poll::Ready(())
    })
    .await;
    tokio::task::yield_now().await;
}

/// The kernel retries such reads, some in each call. A call that completes none signals nothing of the rest.
#[test]
fn reads_that_wait_for_one_page_are_all_reported() {
    let folder = tempfile::tempdir().expect("a directory");
    let gate = Gate::closed();
    let attributes =
        Attributes { mode: 0o600, owner: (0, 0), block_bytes: 4096, may_grow: false, is_free: true };
    let mounted = match spawn_mount(OneFile::new(attributes, gate.clone()), folder.path(), &Config::default())
    {
        Ok(mounted) => mounted,
        Err(error) => return eprintln!("skipped: no FUSE here: {error}"),
    };
    let media = FileMedia::open(folder.path().join(FILE_NAME), true, Direct::Off).expect("opened");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let _guard = match UringReactor::install(64) {
            Ok(guard) => guard,
            Err(error) => return eprintln!("skipped: no io_uring here: {error}"),
        };
        let mut reads: Vec<_> = (0..READS).map(|_| Box::pin(media.read(0, IoBuf::pooled(4096)))).collect();
        begin(&mut reads).await;
        // The pump sleeps by then, with whatever the kernel has left to do.
        tokio::time::sleep(Duration::from_millis(50)).await;
        gate.open();
        let all = async {
            for read in reads {
                read.await.1.expect("a page");
            }
        };
        tokio::time::timeout(LIMIT, all).await.expect("all reads are reported");
    });
    drop(media);
    mounted.umount_and_join().expect("unmounted");
}
