//! Drives, servers and clients for tests of the real program. Every wait has a limit.
#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

pub(crate) mod mounts;
pub(crate) mod opening;
#[path = "../../../report/tests/readable/mod.rs"]
pub(crate) mod readable;
pub(crate) mod run;
pub(crate) mod server;

pub(crate) use run::{Run, fails, fails_with, in_time, needs, pumice, succeed};
pub(crate) use server::{Drive, Server};

/// Result type of all tests.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Returns bytes that differ from place to place and compress about two to one. The same seed gives the same
/// bytes.
pub(crate) fn sample(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
        bytes.extend_from_slice(b"pumice! ");
    }
    bytes.truncate(len);
    bytes
}
