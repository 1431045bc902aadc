//! An index of parity. The body is the one that `cargo test -p layout --test fuzz` runs.

#![no_main]

#[path = "../../crates/layout/tests/common/seal.rs"]
mod seal;
#[path = "../../crates/layout/tests/fuzz/parity.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
