//! A few bytes of log may change much of the map: recovery has a limit.

use crate::common;

use std::sync::Arc;

use common::{create_options, erased, run, spawner};
use drive::{Drive, Error, OpenOptions, Zeroes};
use media::MemoryMedia;

const GIB: u64 = 1 << 30;

/// A drive that was not closed after 256 GiB of zeroes were written: 8,192 records of 16 leaves each.
fn with_ranges() -> Arc<MemoryMedia> {
    let media = Arc::new(MemoryMedia::new(GIB));
    run(Drive::create(&*media, &create_options(GIB, 1024 * GIB))).expect("create");
    let drive = run(Drive::open(erased(media.clone()), OpenOptions::new(1, spawner()))).expect("open");
    for at in 0..64 {
        run(drive.write_zeroes(at * 4 * GIB, 4 * GIB, Zeroes::default())).expect("zeroes");
    }
    run(drive.flush()).expect("flush");
    media
}

fn open(media: &Arc<MemoryMedia>, recovery_bytes_max: u64, accept_damage: bool) -> Result<u64, Error> {
    open_as(media, recovery_bytes_max, (true, accept_damage))
}

fn open_as(
    media: &Arc<MemoryMedia>,
    recovery_bytes_max: u64,
    (read_only, accept_damage): (bool, bool),
) -> Result<u64, Error> {
    let options = OpenOptions {
        read_only,
        accept_damage,
        recovery_bytes_max,
        map_budget_bytes: 64 << 10,
        ..OpenOptions::new(9, spawner())
    };
    run(Drive::open(erased(media.clone()), options)).map(|drive| drive.status().logical_used_bytes)
}

#[test]
fn recovery_within_its_limit() {
    let media = with_ranges();
    // 131,072 leaves of 112 bytes.
    assert_eq!(open(&media, 100 << 20, false), Ok(256 * GIB));
    for accept_damage in [false, true] {
        let refused = open(&media, 10 << 20, accept_damage);
        assert!(matches!(&refused, Err(Error::Memory(why)) if why.contains("10485760 bytes")), "{refused:?}");
    }
    // A drive that is to be used opens all the same.
    assert_eq!(open_as(&media, 10 << 20, (false, false)), Ok(256 * GIB));
}
