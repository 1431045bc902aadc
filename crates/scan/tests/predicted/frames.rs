//! Frames follow the rule of the drive: data written to a real drive takes exactly the predicted number of
//! bytes.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use codec::{Policy, testdata};
use drive::{CreateOptions, Drive, OpenOptions};
use media::MemoryMedia;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use scan::{Options, Population, WalkOptions};

use crate::common::{create_options, open, run, spawner};

const BLOCK: u64 = 4096;

/// Generates blocks of varying kinds. Most have the same kind as the one before.
fn blocks(rng: &mut StdRng, count: u64) -> Vec<u8> {
    let mut kind = 0;
    let mut bytes = Vec::new();
    for _ in 0..count {
        if rng.random_bool(0.2) {
            kind = rng.random_range(0..6);
        }
        let seed = rng.random();
        bytes.extend(match kind {
            0 | 1 => testdata::text_like(seed, 4096),
            2 => testdata::random(seed, 4096),
            3 => testdata::fio_like(seed, 4096, rng.random_range(1..100)),
            4 => {
                let mut block = vec![0; 4096];
                codec::fill(&mut block, rng.random_range(0..3));
                block
            }
            // Random data with a compressible end. It compresses by a few bytes, or just not.
            _ => {
                let mut block = testdata::random(seed, 4096);
                let from = 4096 - rng.random_range(1..120);
                block[from..].fill(7);
                block
            }
        });
    }
    bytes
}

#[test]
fn records_and_map_to_the_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = StdRng::seed_from_u64(11);
    for case in 0..40 {
        let codec = [Policy::Auto, Policy::Lz4, Policy::Zstd(5), Policy::None, Policy::Deflate(1)][case % 5];
        // Runs with holes between them that begin and end at any block.
        let (mut at, mut runs) = (0, Vec::new());
        while at < 1500 {
            at += rng.random_range(1..40);
            let count = rng.random_range(1..65);
            runs.push((at * BLOCK, blocks(&mut rng, count)));
            at += count;
        }
        let path = folder.path().join(format!("image{case}"));
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(2048 * BLOCK).expect("grown");
        let media = Arc::new(MemoryMedia::new(64 << 20));
        let create = CreateOptions { codec, ..create_options(64 << 20, 2048 * BLOCK) };
        run(Drive::create(&*media, &create)).expect("create");
        let drive = open(&media, 1);
        for (offset, bytes) in &runs {
            file.write_all_at(bytes, *offset).expect("written");
            run(drive.write(*offset, bytes, false)).expect("written");
        }
        run(drive.close()).expect("close");
        let mut all = Population::new();
        all.add_path(&path, WalkOptions::default(), &|_| ()).expect("listed");
        let options =
            Options { codec, compare: Vec::new(), unit_precision: None, full: true, ..Options::default() };
        let report = scan::scan(&all, &options, &|_| ()).expect("scanned");
        let told = report.predicted_drive.expect("there is data");
        assert_eq!(
            told.physical_used_bytes.estimate.round() as u64,
            drive.status().physical_used_bytes,
            "case {case}, {codec}"
        );
    }
}

#[test]
fn the_size_of_frames_is_the_default_of_drives() {
    let options = OpenOptions::new(1, spawner());
    assert_eq!(options.frame_blocks, scan::GROUP_BLOCKS);
}
