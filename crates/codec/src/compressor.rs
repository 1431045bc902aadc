use crate::{CodecId, Dictionary, Policy, deflate, looks_incompressible, lz4, zstd};

/// Longest input of [`Compressor::compress`], in bytes: a frame of 16 blocks.
pub const FRAME_BYTES_MAX: usize = 65536;

/// Granularity of records in bytes. A payload that does not save one unit is not worth decompressing.
pub const UNIT_BYTES: usize = 16;

/// Compression state of one thread. It allocates nothing after the first call.
pub struct Compressor {
    engine: Engine,
    /// Target of the codec before the payload is appended. Its length is the limit at which the codec gives
    /// up.
    scratch: Vec<u8>,
}

enum Engine {
    None,
    Lz4(lz4::Encoder),
    Zstd(zstd::Encoder),
    Deflate(deflate::Encoder),
}

impl Compressor {
    /// Creates a compressor for one policy.
    pub fn new(policy: Policy) -> Compressor {
        Compressor::make(policy, true)
    }

    /// As [`Compressor::new`], but zstd cuts the input into as few blocks as it chooses. This shows what
    /// programs achieve on large units that they do not read in parts.
    pub fn uncut(policy: Policy) -> Compressor {
        Compressor::make(policy, false)
    }

    fn make(policy: Policy, cut: bool) -> Compressor {
        let engine = match policy.resolve() {
            Policy::Lz4 => Engine::Lz4(lz4::Encoder::new()),
            Policy::Zstd(level) => Engine::Zstd(zstd::Encoder::new(level, cut)),
            Policy::Deflate(level) => Engine::Deflate(deflate::Encoder::new(level)),
            Policy::None | Policy::Auto => Engine::None,
        };
        Compressor { engine, scratch: Vec::new() }
    }

    /// Compresses `input` (one block, or a frame up to [`FRAME_BYTES_MAX`]) and appends the payload to `out`.
    /// zstd uses the dictionary, if one is given; the same dictionary is needed to decompress. The other
    /// codecs ignore it.
    ///
    /// Returns [`CodecId::Raw`] and appends nothing if the input should be stored unchanged: it is
    /// incompressible, or compression saves less than [`UNIT_BYTES`]. A payload is therefore at most
    /// `input.len() - UNIT_BYTES` bytes long.
    ///
    /// The compressor keeps a reference to the dictionary that it used last.
    pub fn compress(&mut self, input: &[u8], dictionary: Option<&Dictionary>, out: &mut Vec<u8>) -> CodecId {
        if matches!(self.engine, Engine::None) || looks_incompressible(input) {
            return CodecId::Raw;
        }
        self.compress_tested(input, dictionary, out)
    }

    /// As [`Compressor::compress`], for data that is known not to [look
    /// incompressible](looks_incompressible), because each block was tested when the frame was composed.
    pub fn compress_tested(
        &mut self,
        input: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut Vec<u8>,
    ) -> CodecId {
        let limit = input.len().saturating_sub(UNIT_BYTES);
        if limit == 0 {
            return CodecId::Raw;
        }
        if self.scratch.len() < limit {
            self.scratch.resize(limit, 0);
        }
        let scratch = &mut self.scratch[..limit];
        let (id, written) = match &mut self.engine {
            Engine::None => return CodecId::Raw,
            Engine::Lz4(encoder) => (CodecId::Lz4, encoder.compress(input, scratch)),
            Engine::Deflate(encoder) => (CodecId::Deflate, encoder.compress(input, scratch)),
            Engine::Zstd(encoder) => (CodecId::Zstd, encoder.compress(input, dictionary, scratch)),
        };
        let Some(bytes) = written else {
            return CodecId::Raw;
        };
        out.extend_from_slice(&scratch[..bytes]);
        id
    }
}
