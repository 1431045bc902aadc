use crate::{CodecError, CodecId, Dictionary, deflate, lz4, structure, zstd};

/// Decompression state of one thread, for every codec.
pub struct Decompressor {
    zstd: zstd::Decoder,
    deflate: deflate::Decoder,
    structure: structure::Decoder,
}

impl Decompressor {
    /// Creates a decompressor.
    pub fn new() -> Decompressor {
        Decompressor {
            zstd: zstd::Decoder::new(),
            deflate: deflate::Decoder::default(),
            structure: structure::Decoder::default(),
        }
    }

    /// Decompresses `payload` into exactly `out.len()` bytes; [`CodecId::Raw`] copies. `dictionary` is the
    /// one that it was compressed with. LZ4 and DEFLATE ignore it.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] or [`CodecError::Length`] if the payload does not decompress to `out.len()`
    /// bytes, however malformed it is. The contents of `out` are unspecified then. With a dictionary other
    /// than the one used for compression, the result is an error or wrong bytes.
    pub fn decompress(
        &mut self,
        id: CodecId,
        payload: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let expected_bytes = out.len();
        let actual_bytes = match id {
            CodecId::Raw if payload.len() == expected_bytes => {
                out.copy_from_slice(payload);
                expected_bytes
            }
            CodecId::Raw => payload.len(),
            CodecId::Lz4 => lz4::decompress(payload, out)?,
            CodecId::Zstd => self.zstd.decompress(payload, dictionary, out)?,
            CodecId::Deflate => self.deflate.decompress(payload, out)?,
            CodecId::Structured => {
                self.structure.decompress(&mut self.zstd, payload, dictionary, out, expected_bytes)?
            }
        };
        if actual_bytes != expected_bytes {
            return Err(CodecError::Length { codec: id, expected_bytes, actual_bytes });
        }
        Ok(())
    }

    /// Decompresses the first `wanted_bytes` of a frame, or little more. These bytes are valid on return, and
    /// the rest of `out` is unspecified. `out` has the length of the whole frame. A larger `wanted_bytes`
    /// means the whole frame.
    ///
    /// # Errors
    /// As [`Decompressor::decompress`], except that damage after the wanted bytes and a frame that is longer
    /// than `out` may not be detected.
    pub fn decompress_prefix(
        &mut self,
        id: CodecId,
        payload: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
        wanted_bytes: usize,
    ) -> Result<(), CodecError> {
        if wanted_bytes >= out.len() {
            return self.decompress(id, payload, dictionary, out);
        }
        let expected_bytes = out.len();
        let actual_bytes = match id {
            CodecId::Raw if payload.len() == expected_bytes => {
                out[..wanted_bytes].copy_from_slice(&payload[..wanted_bytes]);
                return Ok(());
            }
            CodecId::Raw => {
                return Err(CodecError::Length { codec: id, expected_bytes, actual_bytes: payload.len() });
            }
            CodecId::Lz4 => lz4::decompress_prefix(payload, out, wanted_bytes)?,
            // libdeflate decodes all or nothing.
            CodecId::Deflate => self.deflate.decompress(payload, out)?,
            CodecId::Zstd => self.zstd.decompress_prefix(payload, dictionary, out, wanted_bytes)?,
            CodecId::Structured => {
                self.structure.decompress(&mut self.zstd, payload, dictionary, out, wanted_bytes)?
            }
        };
        if actual_bytes < wanted_bytes {
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
