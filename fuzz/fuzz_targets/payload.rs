//! Payloads of every codec, and dictionaries. The body is the one that `cargo test -p codec --test fuzz`
//! runs.

#![no_main]

#[path = "../../crates/codec/tests/fuzz/payload.rs"]
#[allow(dead_code, reason = "of this module, only the target is used here")]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
