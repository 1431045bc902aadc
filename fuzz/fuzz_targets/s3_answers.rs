//! Answers of an S3 server to `pumice scan`: pages of a listing, and error documents.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scan::testing::fuzz_s3_answers(data));
