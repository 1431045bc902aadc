use crate::{CodecError, CodecId, lz4, zstd};

/// Decompression state of one thread, for every codec.
pub struct Decompressor {
    zstd: zstd::Decoder,
}

impl Decompressor {
    /// A decompressor.
    pub fn new() -> Decompressor {
        Decompressor { zstd: zstd::Decoder::new() }
    }

    /// Decompresses `payload` into exactly `out.len()` bytes; [`CodecId::Raw`] copies.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] or [`CodecError::Length`] if the payload is anything but a compressed
    /// `out.len()` bytes, however malformed; the contents of `out` are unspecified then.
    pub fn decompress(&mut self, id: CodecId, payload: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let expected_bytes = out.len();
        let actual_bytes = match id {
            CodecId::Raw if payload.len() == expected_bytes => {
                out.copy_from_slice(payload);
                expected_bytes
            }
            CodecId::Raw => payload.len(),
            CodecId::Lz4 => lz4::decompress(payload, out)?,
            CodecId::Zstd => self.zstd.decompress(payload, out)?,
        };
        if actual_bytes != expected_bytes {
            return Err(CodecError::Length { codec: id, expected_bytes, actual_bytes });
        }
        Ok(())
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Decompressor::new()
    }
}
