use std::fmt;

/// Codec byte of a record. The values are part of the on-disk format: never renumber them.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodecId {
    /// The block unchanged.
    Raw = 0,
    /// One LZ4 block (`lz4_Block_format.md`) without a frame.
    Lz4 = 1,
    /// One Zstandard frame (RFC 8878) without magic number, content size, checksum and dictionary id.
    Zstd = 2,
    /// One DEFLATE stream (RFC 1951) without a zlib or gzip wrapper.
    Deflate = 3,
    /// A transform, and one Zstandard frame as of [`CodecId::Zstd`] of the transformed data
    /// (docs/reference/format.md).
    Structured = 4,
}

/// A codec byte of a newer version, or a corrupt one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown codec {0} (written by a newer version, or corrupt)")]
pub struct UnknownCodec(pub u8);

impl TryFrom<u8> for CodecId {
    type Error = UnknownCodec;

    /// # Errors
    /// For a byte that is not assigned to a codec.
    fn try_from(byte: u8) -> Result<Self, Self::Error> {
        match byte {
            0 => Ok(CodecId::Raw),
            1 => Ok(CodecId::Lz4),
            2 => Ok(CodecId::Zstd),
            3 => Ok(CodecId::Deflate),
            4 => Ok(CodecId::Structured),
            _ => Err(UnknownCodec(byte)),
        }
    }
}

impl From<CodecId> for u8 {
    fn from(id: CodecId) -> u8 {
        id as u8
    }
}

impl fmt::Display for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CodecId::Raw => "raw",
            CodecId::Lz4 => "lz4",
            CodecId::Zstd => "zstd",
            CodecId::Deflate => "deflate",
            CodecId::Structured => "structured",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_its_codec_or_an_error() {
        for byte in 0..=u8::MAX {
            match CodecId::try_from(byte) {
                Ok(id) => assert_eq!(u8::from(id), byte),
                Err(error) => assert_eq!(error, UnknownCodec(byte)),
            }
        }
        // On-disk values: a change here is a change of format.
        let ids = [CodecId::Raw, CodecId::Lz4, CodecId::Zstd, CodecId::Deflate, CodecId::Structured];
        assert_eq!(ids.map(u8::from), [0, 1, 2, 3, 4]);
    }
}
