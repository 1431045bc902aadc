//! Codec 4: data whose structure zstd does not see. Numbers in arrays, records at a stride and machine code
//! are transformed first, without a change of length, and then compressed by zstd.
//!
//! The ideas are those of byte shuffling (Blosc), of splitting floats into exponents and the rest (ZipNN), of
//! typed streams (OpenZL) and of branch conversion (BCJ of the xz format). docs/explanation/codec.md says
//! what was measured.

mod arm64;
mod choice;
mod columns;
mod decoder;
mod difference;
mod effort;
mod encoder;
mod entropy;
mod gradient;
mod header;
mod look;
mod prefix_sum;
mod row;
mod stride;
mod transform;
mod x86;

pub(crate) use decoder::Decoder;
pub use effort::Effort;
pub(crate) use encoder::Encoder;
