//! A whole NBD connection, from the greeting on or after a negotiation, on any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::testing::fuzz_session(data));
