//! Writes through io_uring where a limit leaves the kernel no worker for them. A program of its own: it is
//! the limit of the process. Without a ring the test prints one line and passes.

mod common;

use std::sync::Arc;

use common::{all, pattern, worker_runtime};
use media::{Allocation, Direct, FileMedia, IoBuf, Media, UringReactor};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::set_thread_res_uid;

const WRITES: u64 = 64;
const LEN: usize = 128 << 10;

#[test]
fn writes_that_the_kernel_has_no_worker_for_are_performed() {
    let dir = tempfile::tempdir().expect("a directory");
    let size = WRITES * LEN as u64;
    let made = FileMedia::create(dir.path().join("drive"), size, Allocation::Sparse, Direct::Off);
    let media = made.expect("create");
    worker_runtime().block_on(async {
        let limit = getrlimit(Resource::Nproc);
        // The limit is not root's. Only this thread changes its user, and the kernel's workers with it.
        let nobody = Uid::from_raw(65534);
        // A test without root is such a user already.
        let _ = set_thread_res_uid(nobody, nobody, nobody);
        // Before the ring: it keeps the limit that it finds.
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), maximum: limit.maximum }).expect("a limit");
        let guard = UringReactor::install(64);
        let _guard = match guard {
            Ok(guard) => guard,
            Err(error) => return eprintln!("skipped: no io_uring here: {error}"),
        };
        let write = async |at: u64| media.write(at * LEN as u64, Arc::new(pattern(at, 1, LEN))).await;
        for (at, result) in (0..).zip(all((0..WRITES).map(write)).await) {
            result.unwrap_or_else(|error| panic!("write {at}: {error}"));
        }
        media.sync().await.expect("sync");
        for at in 0..WRITES {
            let (read, result) = media.read(at * LEN as u64, IoBuf::zeroed(LEN)).await;
            result.expect("read");
            assert!(*read == *pattern(at, 1, LEN), "write {at}");
        }
    });
}
