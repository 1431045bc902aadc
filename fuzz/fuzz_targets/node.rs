//! The payload of a map node or an overlay. The body is the one that `cargo test -p layout --test fuzz` runs.

#![no_main]

#[path = "../../crates/layout/tests/fuzz/node.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
