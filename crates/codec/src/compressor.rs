use crate::sizes::UNIT_BYTES;
use crate::structure::{self, Effort};
use crate::{CodecId, Dictionary, Policy, deflate, looks_incompressible, lz4, zstd};

/// One part in so many is compressed to judge whether all of it gains, if it has the least length.
const JUDGED_PART: usize = 8;
const JUDGED_BYTES_MIN: usize = 2048;
/// Least distance at which data that is judged by a part is examined for repeats.
const REPEATS_FROM_BYTES: usize = 512;
/// Words compared at each distance, and how many are equal if data repeats.
const REPEATS_WORDS: usize = 8;
const REPEATS_MIN: usize = 3;
/// Saving less than one byte in so many is little.
const LITTLE: usize = 8;

/// Compression state of one thread. It allocates nothing after the first call.
pub struct Compressor {
    engine: Engine,
    /// Target of the codec before the payload is appended. Its length is the limit at which the codec gives
    /// up.
    scratch: Vec<u8>,
    structure: structure::Encoder,
}

/// Result of [`Compressor::compress_structured`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded {
    /// The codec.
    pub id: CodecId,
    /// The payload was compressed with the dictionary, which is needed to decompress it.
    pub dictionary: bool,
}

enum Engine {
    None,
    Lz4(lz4::Encoder),
    Zstd(zstd::Encoder),
    Deflate(deflate::Encoder),
}

/// Returns whether data has equal words at a distance that is a power of two, as equal blocks have. A part of
/// it need not show that.
fn repeats_in_steps(data: &[u8]) -> bool {
    let distances = std::iter::successors(Some(REPEATS_FROM_BYTES), |distance| Some(distance * 2));
    distances.take_while(|distance| *distance <= data.len() / 2).any(|distance| {
        let span = data.len() - distance;
        let equal = |number: &usize| {
            let at = span / REPEATS_WORDS * number + number * 24;
            let word = |at: usize| data.get(at..at + 8);
            word(at).is_some_and(|one| one != [one[0]; 8]) && word(at) == word(at + distance)
        };
        (0..REPEATS_WORDS).filter(equal).count() >= REPEATS_MIN
    })
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
        Compressor { engine, scratch: Vec::new(), structure: structure::Encoder::default() }
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

    /// Returns whether compression of a frame of [`Kind::Doubtful`](crate::Kind::Doubtful) blocks by zstd
    /// would probably save less than an eighth, judged by a part of it, with the structure that can be seen
    /// in it. False for short data, which is compressed as quickly as judged.
    pub fn gains_little(&mut self, input: &[u8], dictionary: Option<&Dictionary>) -> bool {
        let Engine::Zstd(encoder) = &mut self.engine else { return false };
        let part_bytes = input.len() / JUDGED_PART;
        if part_bytes < JUDGED_BYTES_MIN || repeats_in_steps(input) {
            return false;
        }
        let part = &input[input.len() / 2..][..part_bytes];
        let most = part_bytes - part_bytes / LITTLE;
        if self.scratch.len() < part_bytes {
            self.scratch.resize(part_bytes, 0);
        }
        let scratch = &mut self.scratch[..most];
        self.structure.compress(encoder, part, dictionary, Effort::Foreground, scratch).is_none()
    }

    /// As [`Compressor::compress_tested`]. With a policy of zstd it also uses [`CodecId::Structured`] where
    /// that is smaller, judged with the given effort. Other policies do as before.
    pub fn compress_structured(
        &mut self,
        input: &[u8],
        dictionary: Option<&Dictionary>,
        effort: Effort,
        out: &mut Vec<u8>,
    ) -> Coded {
        let Engine::Zstd(encoder) = &mut self.engine else {
            return Coded { id: self.compress_tested(input, dictionary, out), dictionary: false };
        };
        let raw = Coded { id: CodecId::Raw, dictionary: false };
        let limit = input.len().saturating_sub(UNIT_BYTES);
        if limit == 0 {
            return raw;
        }
        if self.scratch.len() < limit {
            self.scratch.resize(limit, 0);
        }
        let scratch = &mut self.scratch[..limit];
        let Some(written) = self.structure.compress(encoder, input, dictionary, effort, scratch) else {
            return raw;
        };
        out.extend_from_slice(&scratch[..written.bytes]);
        let id = if written.transformed { CodecId::Structured } else { CodecId::Zstd };
        Coded { id, dictionary: written.dictionary }
    }
}
