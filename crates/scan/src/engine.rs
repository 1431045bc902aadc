//! Compression of units as the drive or a rival layout does it.

use codec::{CodecId, Compressor, Decompressor, Effort, Policy, looks_incompressible};

/// Compression and decompression state of one thread for one codec.
pub(crate) struct Engine {
    compressor: Compressor,
    /// Frames that see structure, as a drive makes them.
    structured: bool,
    decompressor: Decompressor,
}

impl Engine {
    /// For single blocks of a drive.
    pub(crate) fn of_drive(codec: Policy) -> Engine {
        Engine { compressor: Compressor::new(codec), structured: true, decompressor: Decompressor::new() }
    }

    pub(crate) fn of_rival(codec: Policy) -> Engine {
        // Rival layouts always read whole units, so partial reads need no support.
        Engine { compressor: Compressor::uncut(codec), structured: false, decompressor: Decompressor::new() }
    }

    /// Compresses `unit` and appends the payload to `out`. Appends nothing if the data looks incompressible
    /// or is stored better raw.
    pub(crate) fn compress(&mut self, unit: &[u8], out: &mut Vec<u8>) -> CodecId {
        match self.structured {
            true if looks_incompressible(unit) => CodecId::Raw,
            true => self.compressor.compress_structured(unit, None, Effort::Foreground, out).id,
            false => self.compressor.compress(unit, None, out),
        }
    }

    /// Decompresses a payload of [`Engine::compress`] to `out`, which has the length of the unit. Returns
    /// false if that fails.
    pub(crate) fn decompress(&mut self, stored: CodecId, payload: &[u8], out: &mut [u8]) -> bool {
        self.decompressor.decompress(stored, payload, None, out).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_gives_back_what_it_took() {
        let mut data = codec::testdata::text_like(1, 64 << 10);
        data.extend(codec::testdata::random(2, 64 << 10));
        data.extend(codec::testdata::bfloat16(3, 64 << 10));
        for codec in ["auto", "lz4", "zstd:3", "deflate:1", "deflate:6", "none"] {
            let codec = codec.parse().expect(codec);
            let mut engines = [Engine::of_drive(codec), Engine::of_rival(codec)];
            for (number, unit) in data.chunks(4096).chain([&data[..]]).enumerate() {
                let engine = &mut engines[number % 2];
                let mut payload = Vec::new();
                let stored = engine.compress(unit, &mut payload);
                assert!(payload.len() + codec::UNIT_BYTES <= unit.len());
                let payload = if stored == CodecId::Raw { unit } else { &payload };
                let mut back = vec![0; unit.len()];
                assert!(engine.decompress(stored, payload, &mut back));
                assert_eq!(back, unit);
            }
        }
    }
}
