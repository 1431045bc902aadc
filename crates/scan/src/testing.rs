//! Support for fuzzing.

/// Fuzz target: what an S3 server answers. See `fuzz/README.md`.
pub fn fuzz_s3_answers(bytes: &[u8]) {
    crate::source::s3::fuzz_answers(bytes);
}
