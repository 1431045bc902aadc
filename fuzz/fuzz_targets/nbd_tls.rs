//! A connection to an NBD server that requires TLS: bytes of a client in place of the TLS handshake, or
//! within TLS.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nbd::testing::fuzz_tls(data));
