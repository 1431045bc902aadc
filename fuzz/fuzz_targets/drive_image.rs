//! A whole drive with damage, opened read-only. The body is the one that `cargo test -p drive --test fuzz`
//! runs.

#![no_main]

#[path = "../../crates/drive/tests/common/mod.rs"]
mod common;
#[path = "../../crates/drive/tests/fuzz/image.rs"]
mod image;
#[path = "../../crates/drive/tests/common/memory.rs"]
mod memory;
#[path = "../../crates/layout/tests/common/seal.rs"]
mod seal;
#[path = "../../crates/drive/tests/common/sparse.rs"]
mod sparse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| image::target(data));
