//! DEFLATE (RFC 1951) without any wrapper, through libdeflate: what hardware compresses to.

use libdeflater::{CompressionLvl, DecompressionError};

use crate::{CodecError, CodecId};

/// Compression state.
pub(crate) struct Encoder {
    compressor: libdeflater::Compressor,
}

impl Encoder {
    /// Levels from 1 to 12; one out of range is zlib's usual, 6.
    pub(crate) fn new(level: u8) -> Encoder {
        let level = CompressionLvl::new(level.into()).unwrap_or_default();
        Encoder { compressor: libdeflater::Compressor::new(level) }
    }

    /// Bytes written to `out`, or `None` if they do not fit.
    pub(crate) fn compress(&mut self, block: &[u8], out: &mut [u8]) -> Option<usize> {
        self.compressor.deflate_compress(block, out).ok().filter(|&bytes| bytes > 0)
    }
}

/// Decompression state, made when first used: few drives hold any DEFLATE.
#[derive(Default)]
pub(crate) struct Decoder {
    decompressor: Option<libdeflater::Decompressor>,
}

impl Decoder {
    /// Bytes written to `out`.
    pub(crate) fn decompress(&mut self, payload: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        let decompressor = self.decompressor.get_or_insert_with(libdeflater::Decompressor::new);
        decompressor.deflate_decompress(payload, out).map_err(|error| CodecError::Corrupt {
            codec: CodecId::Deflate,
            payload_bytes: payload.len(),
            reason: match error {
                DecompressionError::BadData => "not a sound DEFLATE stream",
                DecompressionError::InsufficientSpace => "it holds more than expected",
            },
        })
    }
}
