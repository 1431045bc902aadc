//! Behaviour of a file backing that does not depend on its I/O back end: opening, locking, discarding.

mod common;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use common::{exercise, now, pattern, read, worker_runtime};
use media::{Allocation, AnyMedia, Direct, FileMedia, IoBuf, Media, MediaError};

const SIZE: u64 = 8 << 20;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn new_file(dir: &tempfile::TempDir, allocation: Allocation) -> FileMedia {
    FileMedia::create(dir.path().join("drive"), SIZE, allocation, Direct::Auto).expect("create")
}

#[test]
fn plain_back_end_inline_and_in_a_runtime() {
    let dir = scratch();
    let media = AnyMedia::from(new_file(&dir, Allocation::Sparse));
    now(exercise(&media));
    worker_runtime().block_on(exercise(&media));
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("runtime");
    threads.block_on(exercise(&media));
}

#[test]
fn buffered_and_direct_see_the_same_bytes() {
    let dir = scratch();
    let path = dir.path().join("drive");
    let media = FileMedia::create(&path, SIZE, Allocation::Preallocated, Direct::Off).expect("create");
    assert!(!media.direct());
    now(exercise(&media));
    now(media.write(0, Arc::new(pattern(0, 7, 65536)))).expect("write");
    drop(media);
    let media = FileMedia::open(&path, true, Direct::Auto).expect("open");
    assert_eq!(now(read(&media, 0, 65536))[..], pattern(0, 7, 65536)[..]);
}

#[test]
fn the_size_is_the_files_length_in_whole_pages() {
    let dir = scratch();
    let path = dir.path().join("drive");
    std::fs::write(&path, vec![1; 3 * 4096 + 100]).expect("write");
    let media = FileMedia::open(&path, false, Direct::Auto).expect("open");
    assert_eq!(media.size_bytes(), 3 * 4096);
    assert!(now(media.read(3 * 4096, IoBuf::zeroed(4096))).1.is_err());
}

#[test]
fn a_growth_that_fails_takes_nothing_from_another_one() {
    const STEPS: u64 = 200;
    let dir = scratch();
    let media = new_file(&dir, Allocation::Sparse);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                media.grow(1 << 62, Allocation::Preallocated).expect_err("more than there is");
            }
        });
        let mut lost = None;
        for size in (1..=STEPS).map(|step| SIZE + step * 4096) {
            assert_eq!(media.grow(size, Allocation::Sparse).expect("grow"), size);
            // Lets the other thread run.
            std::thread::yield_now();
            let found = std::fs::metadata(media.path()).expect("metadata").len();
            lost = lost.or((found < size).then_some((found, size)));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(lost, None, "the file is shorter than what was promised");
    });
}

#[test]
fn a_file_grows_under_its_server_and_never_shrinks() {
    let dir = scratch();
    let media = new_file(&dir, Allocation::Sparse);
    let before = media.size_bytes();
    let write = |offset| now(media.write(offset, Arc::new(IoBuf::zeroed(4096))));
    write(before).expect_err("beyond the end");
    for allocation in [Allocation::Sparse, Allocation::Preallocated] {
        let wanted = media.size_bytes() + (1 << 20);
        assert_eq!(media.grow(wanted + 100, allocation).expect("grow"), wanted);
        assert_eq!(media.size_bytes(), wanted);
        write(wanted - 4096).expect("the new last page");
    }
    let grown = media.size_bytes();
    assert_eq!(media.grow(4096, Allocation::Sparse).expect("nothing to do"), grown);
    assert_eq!(std::fs::metadata(media.path()).expect("metadata").len(), grown);
    let error = media.grow(1 << 62, Allocation::Preallocated).expect_err("more than there is");
    assert!(error.to_string().contains("drive"), "{error}");
    assert_eq!(std::fs::metadata(media.path()).expect("metadata").len(), grown);
}

#[test]
fn a_second_writer_is_kept_out_and_readers_share() {
    let dir = scratch();
    let media = new_file(&dir, Allocation::Sparse);
    let path = media.path().to_path_buf();
    for read_only in [false, true] {
        let error = FileMedia::open(&path, read_only, Direct::Auto).expect_err("locked");
        assert!(matches!(error, MediaError::InUse { .. }), "{error}");
        assert!(!error.to_string().contains('\n'));
    }
    drop(media);
    let first = FileMedia::open(&path, true, Direct::Auto).expect("reader");
    let second = FileMedia::open(&path, true, Direct::Auto).expect("second reader");
    assert!(matches!(FileMedia::open(&path, false, Direct::Auto), Err(MediaError::InUse { .. })));
    drop((first, second));
    FileMedia::open(&path, false, Direct::Auto).expect("free again");
}

#[test]
fn read_only_refuses_changes() {
    let dir = scratch();
    let path = new_file(&dir, Allocation::Sparse).path().to_path_buf();
    let media = FileMedia::open(&path, true, Direct::Auto).expect("open");
    assert!(media.read_only());
    let error = now(media.write(0, Arc::new(IoBuf::zeroed(4096)))).expect_err("write");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    let error = now(media.discard(0, 4096)).expect_err("discard");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    now(media.sync()).expect("sync");
    now(read(&media, 0, 4096));
}

#[test]
fn discard_gives_blocks_back_to_the_file_system() {
    let dir = scratch();
    let media = new_file(&dir, Allocation::Preallocated);
    let allocated = || std::fs::metadata(media.path()).expect("metadata").blocks() * 512;
    let before = allocated();
    assert!(before >= SIZE);
    match now(media.discard(1 << 20, 4 << 20)) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            eprintln!("skipped: the temporary directory's file system punches no holes");
            let again = now(media.discard(0, 4096)).expect_err("remembered");
            assert_eq!(again.kind(), std::io::ErrorKind::Unsupported);
        }
        result => {
            result.expect("discard");
            assert!(allocated() <= before - (4 << 20));
            assert_eq!(std::fs::metadata(media.path()).expect("metadata").len(), SIZE);
        }
    }
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    let dir = scratch();
    let path = dir.path().join("drive");
    let open = |path: &std::path::Path| FileMedia::open(path, false, Direct::Auto).expect_err("refused");
    assert!(matches!(open(&path), MediaError::NotFound { .. }));
    assert!(matches!(open(dir.path()), MediaError::NotStorage { found: "a directory", .. }));
    assert!(matches!(open("/dev/null".as_ref()), MediaError::NotStorage { .. }));
    std::fs::write(&path, b"short").expect("write");
    assert!(matches!(open(&path), MediaError::TooSmall { size_bytes: 5, .. }));
    let create = || FileMedia::create(&path, SIZE, Allocation::Sparse, Direct::Auto).expect_err("refused");
    assert!(matches!(create(), MediaError::AlreadyExists { .. }));
    assert_eq!(std::fs::read(&path).expect("read"), b"short", "left as it was");
    let huge = dir.path().join("huge");
    let error =
        FileMedia::create(&huge, 1 << 60, Allocation::Preallocated, Direct::Auto).expect_err("no room");
    assert!(error.to_string().starts_with(&huge.display().to_string()), "{error}");
    assert!(!huge.exists(), "a file that could not be made is removed");
}
