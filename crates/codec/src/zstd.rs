//! Zstandard through zstd-safe. Frames have no magic number, content size, checksum and dictionary id, so
//! that a 4 KiB block carries 5 bytes of overhead. The record header holds all of that.

use std::ops::Range;
use std::sync::Arc;

use zstd_safe::{
    CCtx, CDict, CParameter, DCtx, DParameter, FrameFormat, ParamSwitch, ResetDirective, Strategy,
    get_error_name,
};

use crate::detect::rest_is_even;
use crate::{CodecError, CodecId, Dictionary};

/// Returns the number of input bytes that [`Encoder`] puts into one zstd block. A strongly compressed frame
/// is cut, so that a reader of its first part does not have to decode the rest
/// ([`Decoder::decompress_prefix`]).
///
/// At least 8 KiB: smaller blocks cost more and gain little (docs/explanation/codec.md). Cutting a frame of
/// 32 KiB into quarters costs 1.0 per cent of ratio and makes a read a fifth faster. Strongly compressed data
/// has ratio to spare, and is read more often than it is written. At low levels the tables of each zstd block
/// cost a tenth of the speed, so those frames are not cut.
fn cut_bytes(frame_bytes: usize, level: i8) -> usize {
    if level < CUT_FROM_LEVEL {
        return BLOCK_BYTES_MAX;
    }
    (frame_bytes / 4).next_multiple_of(4096).max(8192)
}

/// Lowest level at which frames are cut.
const CUT_FROM_LEVEL: i8 = 6;

/// zstd's largest block (`ZSTD_BLOCKSIZE_MAX`).
const BLOCK_BYTES_MAX: usize = 128 << 10;

/// A compression context with its parameters set. `ZSTD_compress2` keeps them between calls and adapts tables
/// and window to the size of each input.
///
/// No other parameters are set, because none improves results at 4 KiB (zstd 1.5.7, level 1). A source size
/// hint, window, hash table or block size for 4 KiB, minimum match 6 and disabling the block splitter are all
/// within noise. Acceleration (target length 1) does not make text faster, because it gives up Huffman coding
/// of literals: the ratio falls from 2.30 to 1.72.
pub(crate) struct Encoder {
    // The first field, so that it is dropped before the tables that it refers to.
    context: CCtx<'static>,
    level: i8,
    /// Cutting of frames (true: they are cut), and the currently set length of zstd blocks.
    cut: bool,
    block_bytes: usize,
    /// Literals are not entropy-coded.
    raw_literals: bool,
    /// The dictionary that `context` refers to, and its tables.
    dictionary: Option<(Dictionary, Arc<CDict<'static>>)>,
}

impl Encoder {
    pub(crate) fn new(level: i8, cut: bool) -> Encoder {
        let mut context = CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(level.into()),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            // This fails only for a parameter out of range, and these are valid constants (the level is
            // clamped before).
            let set = context.set_parameter(parameter);
            debug_assert!(set.is_ok(), "{parameter:?}");
        }
        Encoder { context, level, cut, block_bytes: usize::MAX, raw_literals: false, dictionary: None }
    }

    /// Creates an encoder that finds no matches: its frames hold literals only, entropy-coded or raw.
    pub(crate) fn literals() -> Encoder {
        let mut encoder = Encoder::new(1, false);
        for parameter in [
            CParameter::Strategy(Strategy::ZSTD_fast),
            // The step between two places at which a match is looked for. It leads past the end of any input.
            CParameter::TargetLength(BLOCK_BYTES_MAX as u32),
            CParameter::HashLog(6),
            CParameter::LiteralCompressionMode(ParamSwitch::Enable),
        ] {
            let set = encoder.context.set_parameter(parameter);
            debug_assert!(set.is_ok(), "{parameter:?}");
        }
        encoder
    }

    /// Compresses `block`. Returns the number of bytes written to `out`, or `None` if they do not fit.
    pub(crate) fn compress(
        &mut self,
        block: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Option<usize> {
        let is_even = self.is_fast() && rest_is_even(block);
        self.compress_known(block, is_even, dictionary, out)
    }

    /// As [`Encoder::compress`]. `is_even` says whether [`rest_is_even`].
    pub(crate) fn compress_known(
        &mut self,
        block: &[u8],
        is_even: bool,
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Option<usize> {
        // zstd would find out by coding them, in more time than all the rest takes.
        let raw_literals = is_even && self.is_fast();
        self.compress_as(block, self.block_bytes_for(block.len()), raw_literals, dictionary, out)
    }

    /// Returns whether speed counts.
    fn is_fast(&self) -> bool {
        self.cut && self.level < CUT_FROM_LEVEL
    }

    /// Returns the length of zstd blocks for an input of so many bytes.
    pub(crate) fn block_bytes_for(&self, input_bytes: usize) -> usize {
        if self.cut { cut_bytes(input_bytes, self.level) } else { BLOCK_BYTES_MAX }
    }

    /// As [`Encoder::compress`], with zstd blocks of at least 1 KiB and at most `block_bytes`.
    pub(crate) fn compress_in_blocks(
        &mut self,
        block: &[u8],
        block_bytes: usize,
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Option<usize> {
        self.compress_as(block, block_bytes, false, dictionary, out)
    }

    fn compress_as(
        &mut self,
        block: &[u8],
        block_bytes: usize,
        raw_literals: bool,
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Option<usize> {
        let block_bytes = block_bytes.min(BLOCK_BYTES_MAX);
        let same = match (dictionary, &self.dictionary) {
            (None, None) => true,
            (Some(new), Some((old, _))) => new.is(old),
            _ => false,
        };
        if !same {
            self.refer_to(dictionary)?;
        }
        if self.block_bytes != block_bytes {
            self.reset()?;
            self.context.set_parameter(CParameter::MaxBlockSize(block_bytes as u32)).ok()?;
            self.block_bytes = block_bytes;
        }
        if self.raw_literals != raw_literals {
            self.reset()?;
            let mode = if raw_literals { ParamSwitch::Disable } else { ParamSwitch::Auto };
            self.context.set_parameter(CParameter::LiteralCompressionMode(mode)).ok()?;
            self.raw_literals = raw_literals;
        }
        self.context.compress2(out, block).ok()
    }

    /// Ends a compression that failed for lack of space in the output. Parameters cannot be changed before.
    fn reset(&mut self) -> Option<()> {
        self.context.reset(ResetDirective::SessionOnly).ok().map(|_| ())
    }

    /// Makes `context` use a dictionary, or none, from now on.
    fn refer_to(&mut self, dictionary: Option<&Dictionary>) -> Option<()> {
        self.reset()?;
        self.context.disable_dictionary().ok()?;
        self.dictionary = None;
        if let Some(dictionary) = dictionary {
            let tables = dictionary.writing(self.level)?;
            // SAFETY: if `context` takes the tables, their Arc is kept in `self.dictionary` and outlives that
            // reference. It is released only above, after `context` was made to forget them, or with the
            // encoder itself, whose fields are dropped in order, `context` first.
            let lasting: &'static CDict<'static> = unsafe { &*Arc::as_ptr(&tables) };
            self.context.ref_cdict(lasting).ok()?;
            self.dictionary = Some((dictionary.clone(), tables));
        }
        Some(())
    }
}

/// A decompression context.
pub(crate) struct Decoder {
    context: DCtx<'static>,
    /// Beginning of a payload, whose last block is marked as the last one.
    prefix: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        let mut context = DCtx::create();
        let set = context.set_parameter(DParameter::Format(FrameFormat::Magicless));
        debug_assert!(set.is_ok());
        Decoder { context, prefix: Vec::new() }
    }

    /// Decompresses `payload`. Returns the number of bytes written to `out`.
    pub(crate) fn decompress(
        &mut self,
        payload: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Result<usize, CodecError> {
        run(&mut self.context, payload, dictionary, out)
    }

    /// Decompresses at least the first `wanted_bytes` of `payload`, if it holds as many, and stops at the end
    /// of a zstd block. Returns the number of bytes written to `out`.
    pub(crate) fn decompress_prefix(
        &mut self,
        payload: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
        wanted_bytes: usize,
    ) -> Result<usize, CodecError> {
        // Assumes that all zstd blocks have the same length. If that yields too little, the whole frame is
        // decoded.
        let cut_bytes = out.len().div_ceil(blocks_count(payload).max(1)).max(1);
        if let Some(last) = last_block(payload, wanted_bytes.div_ceil(cut_bytes)) {
            self.prefix.clear();
            self.prefix.extend_from_slice(&payload[..last.end]);
            self.prefix[last.start] |= LAST_BLOCK;
            let bytes = run(&mut self.context, &self.prefix, dictionary, out)?;
            if bytes >= wanted_bytes {
                return Ok(bytes);
            }
        }
        run(&mut self.context, payload, dictionary, out)
    }
}

fn run(
    context: &mut DCtx<'static>,
    payload: &[u8],
    dictionary: Option<&Dictionary>,
    out: &mut [u8],
) -> Result<usize, CodecError> {
    match dictionary {
        None => context.decompress(out, payload),
        Some(dictionary) => context.decompress_using_ddict(out, payload, dictionary.reading()),
    }
    .map_err(|code| CodecError::Corrupt {
        codec: CodecId::Zstd,
        payload_bytes: payload.len(),
        reason: get_error_name(code),
    })
}

/// Bit of a block header that marks the last block (RFC 8878, 3.1.1.2).
const LAST_BLOCK: u8 = 1;

/// Range of the block with this number (from 1) in a frame, including its header. `None` if it is the last
/// block or does not exist, or if the frame header differs from the one that [`Encoder`] produces.
fn last_block(payload: &[u8], number: usize) -> Option<Range<usize>> {
    blocks(payload).nth(number.max(1) - 1).filter(|(_, last)| !last).map(|(range, _)| range)
}

/// Number of zstd blocks in a frame. Only frames as [`Encoder`] produces them are recognised.
fn blocks_count(payload: &[u8]) -> usize {
    blocks(payload).count()
}

/// The blocks of a frame, including their headers, and whether each is the last.
fn blocks(payload: &[u8]) -> impl Iterator<Item = (Range<usize>, bool)> {
    // Frame header: a descriptor that announces only a window descriptor, and the window descriptor.
    let known = payload.split_first_chunk::<2>().is_some_and(|(&[descriptor, _window], _)| descriptor == 0);
    let mut next = known.then_some(2);
    std::iter::from_fn(move || {
        let start = next.take()?;
        let &[low, middle, high] = payload.get(start..)?.first_chunk::<3>()?;
        let header = u32::from_le_bytes([low, middle, high, 0]);
        // A block of one repeated byte (type 1) stores only that byte. All others store as many bytes as
        // their header states.
        let bytes = if header >> 1 & 3 == 1 { 1 } else { (header >> 3) as usize };
        let end = start + 3 + bytes;
        if end > payload.len() {
            return None;
        }
        let last = low & LAST_BLOCK != 0;
        next = (!last).then_some(end);
        Some((start..end, last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    #[test]
    fn literals_that_are_not_coded_cost_next_to_nothing() {
        let mut encoder = Encoder::new(1, true);
        let mut out = vec![0; 1 << 17];
        // One byte in so many has only 16 values: of the rest, entropy coding saves more or less.
        for one_in in [1, 2, 4, 8, 16, 32, usize::MAX] {
            for percent in [0, 20, 40, 60, 80, 90] {
                for len in [4096, 32_768] {
                    let (mut coded, mut chosen) = (0, 0);
                    for seed in 0..20 {
                        let mut data = testdata::fio_like(seed, len, percent);
                        data.iter_mut().step_by(one_in).for_each(|byte| *byte &= 15);
                        let bytes = encoder.compress_in_blocks(&data, BLOCK_BYTES_MAX, None, &mut out);
                        coded += bytes.expect("room");
                        chosen += encoder.compress(&data, None, &mut out).expect("room");
                    }
                    assert!(chosen * 100 <= coded * 102, "{one_in} {percent} {len}: {chosen} for {coded}");
                }
            }
        }
    }
}
