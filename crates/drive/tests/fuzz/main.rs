//! The fuzz target of `fuzz/` for whole drives, run briefly. See `fuzz/README.md`. One test: the memory of
//! the process is counted.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../layout/tests/fuzz/harness.rs"]
mod harness;
mod image;
#[path = "../common/memory.rs"]
mod memory;
#[path = "../../../layout/tests/common/seal.rs"]
mod seal;
#[path = "../common/sparse.rs"]
mod sparse;

/// Drives with no change, and with one of each kind.
fn inputs() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for number in 0..image::IMAGES_COUNT {
        for accept in [0, 0x40, 0x80] {
            inputs.push(vec![number | accept]);
            for what in 0..8_u8 {
                let place = u32::from(number).wrapping_mul(0x9e37_79b9) ^ u32::from(what) << 20;
                let mut input = vec![number | accept, what];
                input.extend(place.to_le_bytes());
                input.extend([1, 0, 0, 0, 0, 0, 0, 0, what]);
                // So that a few more are made of what follows.
                let again = input[1..].to_vec();
                inputs.push([input, again.clone(), again].concat());
            }
        }
    }
    inputs
}

#[test]
fn drive_image_target() {
    harness::fuzz("drive_image_target", &inputs(), image::target);
}

/// See fuzz/README.md.
#[test]
#[ignore = "prepares longer runs: see fuzz/README.md"]
fn write_corpus() {
    harness::write_corpus("drive_image", &inputs());
}
