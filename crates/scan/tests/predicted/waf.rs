//! The model of write amplification compared with the engine: uniform random overwrites of 4 KiB until the
//! drive is in steady state.

use std::sync::Arc;

use codec::{Policy, testdata};
use drive::{CreateOptions, Drive, OpenOptions};
use media::MemoryMedia;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use scan::plan::{live_share_of_victims, occupied_segments};

use crate::common::{create_options, erased, run, spawner};

const MIB: u64 = 1 << 20;

/// Returns the measured and the modelled amount of cleaning: bytes moved per byte of records that the host
/// writes. The drive has a size of `physical_mib` MiB, of which `share` is live.
fn measured(physical_mib: u64, share: f64) -> (f64, f64) {
    let physical = physical_mib * MIB;
    let media = Arc::new(MemoryMedia::new(physical));
    let options = CreateOptions {
        codec: Policy::Lz4,
        segment_bytes: Some(512 << 10),
        ..create_options(physical, physical * 4)
    };
    run(Drive::create(&*media, &options)).expect("create");
    let mut with = OpenOptions::new(1, spawner());
    with.checkpoint_bytes = 8 << 20;
    let drive = run(Drive::open(erased(media), with)).expect("open");
    let data = testdata::fio_like(1, 4 << 20, 60);
    let block = |i: u64| &data[(i % 1024) as usize * 4096..][..4096];
    // 40 % of 4096, plus a header.
    let record = 1660.0;
    let blocks = (physical as f64 * share / record) as u64;
    let write = |at: u64, i: u64| {
        run(drive.write(at * 4096, block(i), false)).expect("write");
        if i.is_multiple_of(64) {
            while run(drive.maintain()).expect("maintain") {}
        }
    };
    (0..blocks).for_each(|at| write(at, at));
    let mut rng = StdRng::seed_from_u64(7);
    let mut overwrite = |count: u64| (0..count).for_each(|i| write(rng.random_range(0..blocks), i));
    overwrite(blocks * 2);
    let before = drive.status();
    overwrite(blocks * 2);
    let after = drive.status();
    let host = (after.counters.host_written_bytes - before.counters.host_written_bytes) as f64;
    let cleaned = (after.counters.cleaning_written_bytes - before.counters.cleaning_written_bytes) as f64;
    let live = after.physical_used_bytes as f64;
    let geometry = layout::Geometry::new(physical, Some(512 << 10)).expect("a drive");
    let space = f64::from(occupied_segments(&geometry, live)) * f64::from(geometry.segment_bytes);
    let u = live_share_of_victims(live / space);
    (cleaned / (host / 4096.0 * record), u / (1.0 - u))
}

#[test]
fn cleaning_is_what_the_model_says() {
    for share in [0.4, 0.55, 0.7] {
        let (measured, model) = measured(96, share);
        eprintln!("{share}: measured {measured:.3}, model {model:.3}");
        // Logs are short, segments small, and free segments are counted as a whole: a deviation of a third is
        // accepted, a factor of two is not.
        assert!(
            (measured - model).abs() < 0.1 + 0.33 * model,
            "at {share}: measured {measured}, model {model}"
        );
    }
}
