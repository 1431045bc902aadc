//! Zstandard through zstd-safe: frames without magic number, content size, checksum and dictionary id, so
//! that a 4 KiB block carries 5 bytes of overhead. The record header has all of that.

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, get_error_name};

use crate::{CodecError, CodecId};

/// A compression context with its parameters set; `ZSTD_compress2` keeps them from call to call and adapts
/// tables and window to the size of each input.
///
/// Nothing else is set because nothing else pays at 4 KiB (zstd 1.5.7, level 1): a source size hint, window,
/// hash table or block size for 4 KiB, minimum match 6 and the block splitter off are all within noise;
/// acceleration (target length 1) makes text no faster, since it gives up Huffman coding of literals: the
/// ratio falls from 2.30 to 1.72.
pub(crate) struct Encoder {
    context: CCtx<'static>,
}

impl Encoder {
    pub(crate) fn new(level: i8) -> Encoder {
        let mut context = CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(level.into()),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            // Only a parameter out of range fails, and these are constants within it (the level is clamped
            // before).
            let set = context.set_parameter(parameter);
            debug_assert!(set.is_ok(), "{parameter:?}");
        }
        Encoder { context }
    }

    /// Bytes written to `out`, or `None` if they do not fit.
    pub(crate) fn compress(&mut self, block: &[u8], out: &mut [u8]) -> Option<usize> {
        self.context.compress2(out, block).ok()
    }
}

/// A decompression context.
pub(crate) struct Decoder {
    context: DCtx<'static>,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        let mut context = DCtx::create();
        let set = context.set_parameter(DParameter::Format(FrameFormat::Magicless));
        debug_assert!(set.is_ok());
        Decoder { context }
    }

    /// Bytes written to `out`.
    pub(crate) fn decompress(&mut self, payload: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        self.context.decompress(out, payload).map_err(|code| CodecError::Corrupt {
            codec: CodecId::Zstd,
            payload_bytes: payload.len(),
            reason: get_error_name(code),
        })
    }
}
