//! The NBD client of `pumice scan` against a server that sends any bytes, from the greeting on or after a
//! negotiation.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::testing::fuzz_client(data));
