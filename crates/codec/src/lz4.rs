//! LZ4 blocks through lz4-sys.
//!
//! `LZ4_compress_fast_extState` clears its 16 KiB table on each call. The `_fastReset` variant would gain
//! nothing: from 4 KiB of input on it clears the table as well (`LZ4_prepareTable` of lz4 1.10).

use std::ffi::{c_char, c_int, c_void};

use lz4_sys::LZ4_decompress_safe;

use crate::{CodecError, CodecId};

/// 1 gives the best ratio of the fast compressor.
const ACCELERATION: c_int = 1;

// Part of liblz4's stable interface (lz4.h, "Advanced Functions"), which lz4-sys builds and links but does
// not declare.
unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        source: *const c_char,
        destination: *mut c_char,
        source_bytes: c_int,
        destination_bytes: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_partial(
        source: *const c_char,
        destination: *mut c_char,
        source_bytes: c_int,
        wanted_bytes: c_int,
        destination_bytes: c_int,
    ) -> c_int;
}

/// Compression state. Words, because liblz4 requires an alignment of 8 bytes.
pub(crate) struct Encoder {
    state: Box<[u64]>,
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        // SAFETY: takes no arguments and returns a constant.
        let state_bytes = unsafe { LZ4_sizeofState() };
        Encoder { state: vec![0; (state_bytes as usize).div_ceil(8)].into_boxed_slice() }
    }

    /// Compresses `block`. Returns the number of bytes written to `out`, or `None` if they do not fit.
    pub(crate) fn compress(&mut self, block: &[u8], out: &mut [u8]) -> Option<usize> {
        let source_bytes = c_int::try_from(block.len()).ok()?;
        let destination_bytes = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: `state` has LZ4_sizeofState() bytes aligned to 8, as liblz4 requires, and is initialised by
        // the call itself. Source and destination are live slices that cannot overlap, each passed with at
        // most its own length, and liblz4 writes no byte beyond the destination length given.
        let written = unsafe {
            LZ4_compress_fast_extState(
                self.state.as_mut_ptr().cast(),
                block.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                source_bytes,
                destination_bytes,
                ACCELERATION,
            )
        };
        // Zero means "does not fit".
        usize::try_from(written).ok().filter(|&bytes| bytes > 0)
    }
}

/// Decompresses `payload`. Returns the number of bytes written to `out`.
pub(crate) fn decompress(payload: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
    let (source_bytes, destination_bytes) = lengths(payload, out)?;
    // SAFETY: both are live slices that cannot overlap, each passed with at most its own length.
    // LZ4_decompress_safe is made for hostile input: it neither reads beyond the source length nor writes
    // beyond the destination length.
    let written = unsafe {
        LZ4_decompress_safe(payload.as_ptr().cast(), out.as_mut_ptr().cast(), source_bytes, destination_bytes)
    };
    usize::try_from(written).map_err(|_| corrupt(payload, "not a sound LZ4 block of the expected size"))
}

/// Decompresses the first `wanted_bytes` of `payload`, or all of it if it holds less. Returns the number of
/// bytes written to `out`.
pub(crate) fn decompress_prefix(
    payload: &[u8],
    out: &mut [u8],
    wanted_bytes: usize,
) -> Result<usize, CodecError> {
    let (source_bytes, destination_bytes) = lengths(payload, out)?;
    let wanted_bytes = c_int::try_from(wanted_bytes).unwrap_or(c_int::MAX).min(destination_bytes);
    // A hostile payload may have a match at distance 0. Unlike LZ4_decompress_safe, this function then leaves
    // what was there before, which may be of another drive.
    out[..wanted_bytes as usize].fill(0);
    // SAFETY: as in `decompress`; `wanted_bytes` is at most the destination's length.
    let written = unsafe {
        LZ4_decompress_safe_partial(
            payload.as_ptr().cast(),
            out.as_mut_ptr().cast(),
            source_bytes,
            wanted_bytes,
            destination_bytes,
        )
    };
    usize::try_from(written).map_err(|_| corrupt(payload, "not a sound LZ4 block"))
}

fn lengths(payload: &[u8], out: &[u8]) -> Result<(c_int, c_int), CodecError> {
    let source_bytes = c_int::try_from(payload.len()).map_err(|_| corrupt(payload, "too long for LZ4"))?;
    Ok((source_bytes, c_int::try_from(out.len()).unwrap_or(c_int::MAX)))
}

fn corrupt(payload: &[u8], reason: &'static str) -> CodecError {
    CodecError::Corrupt { codec: CodecId::Lz4, payload_bytes: payload.len(), reason }
}
