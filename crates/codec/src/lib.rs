//! Compression codecs behind one interface.
//!
//! A [`Compressor`] turns a block (4096 bytes) or a frame of adjacent blocks (up to [`FRAME_BYTES_MAX`]) into
//! a payload and returns its [`CodecId`]. A [`Decompressor`] restores the data. Both keep their contexts:
//! keep one per thread, or use [`with_compressor`] and [`with_decompressor`]. This crate does not know
//! headers, addresses or checksums.
//!
//! ```
//! use codec::{CodecId, Compressor, Decompressor, Policy, testdata};
//!
//! let block = testdata::text_like(1, 4096);
//! let mut payload = Vec::new();
//! let id = Compressor::new(Policy::Auto).compress(&block, None, &mut payload);
//! assert_eq!(id, CodecId::Zstd);
//!
//! let mut back = vec![0; block.len()];
//! Decompressor::new().decompress(id, &payload, None, &mut back)?;
//! assert_eq!(back, block);
//! # Ok::<(), codec::CodecError>(())
//! ```

#![deny(unsafe_code)]

mod choose;
mod compressor;
mod decompressor;
mod deflate;
mod detect;
mod dictionary;
mod error;
mod fill;
mod filter;
mod frames;
mod id;
#[allow(unsafe_code, reason = "lz4-sys is a plain C binding")]
mod lz4;
mod policy;
mod promise;
mod several;
mod sizes;
mod structure;
pub mod testdata;
mod thread;
#[allow(unsafe_code, reason = "zstd's trainer is a plain C binding")]
mod train;
#[allow(unsafe_code, reason = "a context refers to a dictionary that is kept beside it")]
mod zstd;

pub use choose::choose;
pub use compressor::{Coded, Compressor};
pub use decompressor::Decompressor;
pub use detect::looks_incompressible;
pub use dictionary::{DICTIONARY_BYTES_MAX, Dictionary, DictionaryError};
pub use error::CodecError;
pub use fill::{fill, fill_word};
pub use frames::{Kind, frame_blocks};
pub use id::{CodecId, UnknownCodec};
pub use policy::{ParsePolicyError, Policy};
pub use promise::promise;
pub use several::train_several;
pub use sizes::{FRAME_BYTES_MAX, UNIT_BYTES};
pub use structure::Effort;
pub use thread::{with_compressor, with_decompressor};
pub use train::{TrainError, gain, gain_of_several, train};
