//! Compression of units as the drive or a rival layout does it.

use codec::{CodecId, Compressor, Decompressor, Policy};

/// Compression and decompression state of one thread for one codec.
pub(crate) struct Engine {
    compressor: Compressor,
    decompressor: Decompressor,
}

impl Engine {
    pub(crate) fn new(codec: Policy) -> Engine {
        // Rival layouts always read whole units, so partial reads need no support.
        Engine { compressor: Compressor::uncut(codec), decompressor: Decompressor::new() }
    }

    /// Compresses `unit` as the drive does and appends the payload to `out`. Appends nothing if the data looks
    /// incompressible or is stored better raw.
    pub(crate) fn compress(&mut self, unit: &[u8], out: &mut Vec<u8>) -> CodecId {
        self.compressor.compress(unit, None, out)
    }

    /// Decompresses a payload of [`Engine::compress`] to `out`, which has the length of the unit. Returns false if that
    /// fails.
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
        for codec in ["auto", "lz4", "zstd:3", "deflate:1", "deflate:6", "none"] {
            let mut engine = Engine::new(codec.parse().expect(codec));
            for unit in data.chunks(4096).chain([&data[..]]) {
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
