//! The disk as a file, with the kernel's page cache above it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use media::SimRng;
use powercut::disk::{Disk, PAGE_BYTES, Pace, Stale};
use powercut::mount::{Cache, Mounted};
use powercut::why_not;

type Outcome = Result<(), Box<dyn std::error::Error>>;

const SEEDS: u64 = 12;

/// Returns a folder to mount at. If mounting is impossible, prints the reason and returns `None`.
fn folder() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    match why_not(folder.path(), false) {
        None => Some(folder),
        Some(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

/// Content of the first page.
fn read(file: &File) -> std::io::Result<Vec<u8>> {
    let mut page = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut page, 0).map(|()| page)
}

/// Returns the content of the first page after a failed sync, read through a new file handle, and its content
/// after a power cut.
fn after_failed_sync(
    cache: Cache,
    seed: u64,
    folder: &std::path::Path,
) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let disk = Arc::new(Disk::new(1 << 20, Pace::default(), Stale::Hidden, SimRng::new(seed)));
    let mounted = Mounted::new(disk.clone(), cache, folder)?;
    let open = |mounted: &Mounted| File::options().read(true).write(true).open(mounted.file());
    let file = open(&mounted)?;
    file.write_all_at(&[7; PAGE_BYTES], 0)?;
    disk.fail_sync(0);
    assert!(file.sync_data().is_err());
    drop(file);
    let shown = read(&open(&mounted)?)?;
    open(&mounted)?.sync_data()?;
    disk.cut();
    mounted.unmount()?;
    disk.restart();
    let mounted = Mounted::new(disk, cache, folder)?;
    let there = read(&open(&mounted)?)?;
    mounted.unmount()?;
    Ok((shown, there))
}

#[test]
fn the_page_cache_shows_what_a_failed_sync_lost_until_the_power_is_cut() -> Outcome {
    let Some(folder) = folder() else { return Ok(()) };
    for cache in [Cache::WriteThrough, Cache::WriteBack] {
        let mut lost = 0;
        for seed in 0..SEEDS {
            let (shown, there) = after_failed_sync(cache, seed, folder.path())?;
            assert_eq!(shown, vec![7; PAGE_BYTES], "{cache:?}, seed {seed}");
            lost += usize::from(there != shown);
        }
        assert!(lost > 0, "{cache:?}");
    }
    Ok(())
}

#[test]
fn direct_io_shows_what_is_there() -> Outcome {
    let Some(folder) = folder() else { return Ok(()) };
    for seed in 0..SEEDS {
        let (shown, there) = after_failed_sync(Cache::None, seed, folder.path())?;
        assert_eq!(shown, there, "seed {seed}");
    }
    Ok(())
}
