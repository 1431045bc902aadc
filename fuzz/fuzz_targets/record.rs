//! A record and its payload. The body is the one that `cargo test -p layout --test fuzz` runs.

#![no_main]

#[path = "../../crates/layout/tests/fuzz/node.rs"]
#[allow(dead_code, reason = "of this module, only the checks are used here")]
mod node;
#[path = "../../crates/layout/tests/common/seal.rs"]
mod seal;
#[path = "../../crates/layout/tests/fuzz/record.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
