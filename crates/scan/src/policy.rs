//! Codecs to compare: those of the drive, and DEFLATE, behind one interface.

use std::fmt;
use std::str::FromStr;

use codec::{CodecId, Policy};
use libdeflater::{CompressionLvl, DecompressionError};

/// A way to compress a block or a larger unit.
///
/// As text: what [`codec::Policy`] reads, and `deflate` or `deflate:LEVEL` (raw DEFLATE by libdeflate, levels 1 to 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// As a drive created with `--codec` does it.
    Drive(Policy),
    /// DEFLATE (RFC 1951) at a level from 1 to 12.
    Deflate(u8),
}

/// Level of `deflate` without one: zlib's usual.
const DEFLATE_LEVEL_DEFAULT: u8 = 6;

/// Text that names no codec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown codec {0:?}: expected auto, lz4, zstd, zstd:LEVEL, deflate, deflate:LEVEL (1 to 12) or none"
)]
pub struct ParseCodecError(String);

impl FromStr for Codec {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Codec, ParseCodecError> {
        let error = || ParseCodecError(text.to_string());
        match text.strip_prefix("deflate") {
            Some("") => Ok(Codec::Deflate(DEFLATE_LEVEL_DEFAULT)),
            Some(level) => level
                .strip_prefix(':')
                .and_then(|level| level.parse().ok())
                .filter(|level| (1..=12).contains(level))
                .map(Codec::Deflate)
                .ok_or_else(error),
            None => text.parse().map(Codec::Drive).map_err(|_| error()),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Drive(policy) => policy.fmt(f),
            Codec::Deflate(level) => f.pad(&format!("deflate:{level}")),
        }
    }
}

/// How a payload is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// As it came.
    Raw,
    /// By a codec of the drive.
    Drive(CodecId),
    /// DEFLATE.
    Deflate,
}

/// Compression and decompression state of one thread for one codec.
pub(crate) struct Engine {
    compressor: Compressor,
    decompressor: codec::Decompressor,
    inflater: libdeflater::Decompressor,
}

enum Compressor {
    Drive(codec::Compressor),
    Deflate(libdeflater::Compressor),
}

impl Engine {
    pub(crate) fn new(codec: Codec) -> Engine {
        let compressor = match codec {
            Codec::Drive(policy) => Compressor::Drive(codec::Compressor::uncut(policy)),
            Codec::Deflate(level) => {
                let level = CompressionLvl::new(level.into()).unwrap_or_default();
                Compressor::Deflate(libdeflater::Compressor::new(level))
            }
        };
        let (decompressor, inflater) = (codec::Decompressor::new(), libdeflater::Decompressor::new());
        Engine { compressor, decompressor, inflater }
    }

    /// Compresses `unit` as the drive would: appends the payload to `out`, or nothing where raw is better or the data
    /// looks incompressible.
    pub(crate) fn compress(&mut self, unit: &[u8], out: &mut Vec<u8>) -> Stored {
        match &mut self.compressor {
            Compressor::Drive(compressor) => match compressor.compress(unit, None, out) {
                CodecId::Raw => Stored::Raw,
                id => Stored::Drive(id),
            },
            Compressor::Deflate(compressor) => {
                let limit = unit.len().saturating_sub(codec::UNIT_BYTES);
                if limit == 0 || codec::looks_incompressible(unit) {
                    return Stored::Raw;
                }
                let start = out.len();
                out.resize(start + limit, 0);
                let written = compressor.deflate_compress(unit, &mut out[start..]).unwrap_or(0);
                out.truncate(start + written);
                // It does not fit: zero bytes are no DEFLATE stream.
                if written > 0 { Stored::Deflate } else { Stored::Raw }
            }
        }
    }

    /// Decompresses a payload of [`Engine::compress`] to `out`, of the unit's length. False: it does not come back.
    pub(crate) fn decompress(&mut self, stored: Stored, payload: &[u8], out: &mut [u8]) -> bool {
        match stored {
            Stored::Raw => {
                out.copy_from_slice(payload);
                true
            }
            Stored::Drive(id) => self.decompressor.decompress(id, payload, None, out).is_ok(),
            Stored::Deflate => {
                let inflated: Result<usize, DecompressionError> =
                    self.inflater.deflate_decompress(payload, out);
                inflated == Ok(out.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["auto", "lz4", "zstd:3", "none", "deflate:1", "deflate:12"] {
            assert_eq!(text.parse::<Codec>().expect(text).to_string(), text);
        }
        assert_eq!("deflate".parse(), Ok(Codec::Deflate(6)));
        for text in ["", "deflate:", "deflate:0", "deflate:13", "deflated", "gzip", "zstd:99"] {
            let error = text.parse::<Codec>().expect_err(text).to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn every_codec_gives_back_what_it_took() {
        let mut data = codec::testdata::text_like(1, 64 << 10);
        data.extend(codec::testdata::random(2, 64 << 10));
        for codec in ["auto", "lz4", "zstd:3", "deflate:1", "deflate:6", "none"] {
            let mut engine = Engine::new(codec.parse().expect(codec));
            for unit in data.chunks(4096).chain([&data[..]]) {
                let mut payload = Vec::new();
                let stored = engine.compress(unit, &mut payload);
                assert!(payload.len() + codec::UNIT_BYTES <= unit.len());
                let payload = if stored == Stored::Raw { unit } else { &payload };
                let mut back = vec![0; unit.len()];
                assert!(engine.decompress(stored, payload, &mut back));
                assert_eq!(back, unit);
            }
        }
    }
}
