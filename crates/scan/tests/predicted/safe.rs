//! The capacity of a drive that is created without one: any data fits, whatever its order.

use std::sync::Arc;

use codec::{Policy, testdata};
use drive::{CreateOptions, Drive, OpenOptions};
use media::MemoryMedia;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use scan::plan::safe_capacity_bytes;

use crate::common::{create_options, erased, run, spawner};

const BLOCK: u64 = 4096;

/// Fills a drive with data that does not compress, in single blocks or in pieces, in random order, and
/// overwrites half of it.
fn fill(physical_mib: u64, blocks: u64) {
    let physical = physical_mib << 20;
    let geometry = layout::Geometry::new(physical, None).expect("a drive");
    let capacity = safe_capacity_bytes(&geometry);
    let media = Arc::new(MemoryMedia::new(physical));
    let options =
        CreateOptions { codec: Policy::Auto, segment_bytes: None, ..create_options(physical, capacity) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = run(Drive::open(erased(media), OpenOptions::new(1, spawner()))).expect("open");
    let status = drive.status();
    let limit = status.physical_size_bytes - status.physical_reserve_bytes - status.physical_fixed_bytes;
    assert_eq!(
        limit,
        scan::limit_bytes(&geometry, scan::MapNeeds::default()),
        "the model is that of the drive"
    );
    let data = testdata::random(physical_mib, 8 << 20);
    let mut rng = StdRng::seed_from_u64(physical_mib);
    let pieces = capacity / BLOCK / blocks;
    let mut order: Vec<u64> = (0..pieces).collect();
    for share in [1, 2] {
        order.shuffle(&mut rng);
        for (count, at) in order.iter().take((pieces / share) as usize).enumerate() {
            let from = rng.random_range(0..(data.len() as u64 / BLOCK - blocks)) * BLOCK;
            let bytes = &data[from as usize..][..(blocks * BLOCK) as usize];
            let result = run(drive.write(at * blocks * BLOCK, bytes, false));
            assert_eq!(result, Ok(()), "{count} of {pieces}: {:?}", drive.status());
            if count % 64 == 0 {
                while run(drive.maintain()).expect("maintain") {}
            }
        }
    }
    run(drive.flush()).expect("flush");
}

#[test]
fn any_data_fits_into_the_default_capacity() {
    for physical_mib in [32, 48, 80, 300] {
        for blocks in [1, 32] {
            fill(physical_mib, blocks);
        }
    }
}
