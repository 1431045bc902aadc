//! DEFLATE (RFC 1951) without a wrapper, through libdeflate. This is the format of compression hardware.

use libdeflater::{CompressionLvl, DecompressionError};

use crate::{CodecError, CodecId};

/// Compression state.
pub(crate) struct Encoder {
    compressor: libdeflater::Compressor,
}

impl Encoder {
    /// Creates a compressor for a level from 1 to 12. A level out of range becomes zlib's default, 6.
    pub(crate) fn new(level: u8) -> Encoder {
        let level = CompressionLvl::new(level.into()).unwrap_or_default();
        Encoder { compressor: libdeflater::Compressor::new(level) }
    }

    /// Compresses `block`. Returns the number of bytes written to `out`, or `None` if they do not fit.
    pub(crate) fn compress(&mut self, block: &[u8], out: &mut [u8]) -> Option<usize> {
        self.compressor.deflate_compress(block, out).ok().filter(|&bytes| bytes > 0)
    }
}

/// Decompression state, created on first use: few drives hold DEFLATE data.
#[derive(Default)]
pub(crate) struct Decoder {
    decompressor: Option<libdeflater::Decompressor>,
}

impl Decoder {
    /// Decompresses `payload`. Returns the number of bytes written to `out`.
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
