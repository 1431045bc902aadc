//! Branch conversion for x86-64. A call stores the distance to its target, so two calls of one function
//! differ. With the position added they are the same bytes.
//!
//! An operand is converted by the bytes before it alone, whatever its value, and big-endian, so that the part
//! that calls share comes first. Bytes of an operand are not examined. So both directions find the same
//! operands.

/// Bytes behind the first of an instruction that is converted, and it: at most 3 before the operand, 4 of it,
/// and one.
const INSTRUCTION_BYTES_MAX: usize = 8;

/// Returns the number of first bytes that must be known to restore `wanted_bytes`.
pub(super) fn needed_bytes(wanted_bytes: usize) -> usize {
    (wanted_bytes.saturating_add(INSTRUCTION_BYTES_MAX))
        .min(wanted_bytes.saturating_add(PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES)
}

/// Each piece of this length is converted by itself, so that a reader of the first ones does not need the
/// others.
const PIECE_BYTES: usize = 4096;

/// Replaces relative operands by absolute ones, with position 0 at the beginning of `data`.
pub(super) fn to_absolute(data: &mut [u8]) {
    convert(data, |operand, next| u32::from_le_bytes(operand).wrapping_add(next).to_be_bytes());
}

/// The inverse of [`to_absolute`].
pub(super) fn to_relative(data: &mut [u8]) {
    convert(data, |operand, next| u32::from_be_bytes(operand).wrapping_sub(next).to_le_bytes());
}

/// Bytes examined together, so that the compiler does it with vectors.
const STEP: usize = 32;

fn convert(data: &mut [u8], operand: impl Fn([u8; 4], u32) -> [u8; 4]) {
    for (number, piece) in (0_u32..).zip(data.chunks_mut(PIECE_BYTES)) {
        let first = number.wrapping_mul(PIECE_BYTES as u32);
        convert_piece(piece, |bytes, next| operand(bytes, next.wrapping_add(first)));
    }
}

fn convert_piece(data: &mut [u8], operand: impl Fn([u8; 4], u32) -> [u8; 4]) {
    let mut at = 0;
    while at + STEP + INSTRUCTION_BYTES_MAX <= data.len() {
        at += convert_step(&mut data[at..], at as u32, u32::MAX, &operand);
    }
    // The last bytes are left as they are: there, an instruction would need the bytes behind the piece.
    let last = &mut data[at..];
    if last.len() >= INSTRUCTION_BYTES_MAX {
        let places = last.len() - INSTRUCTION_BYTES_MAX + 1;
        let mut window = [0; STEP + INSTRUCTION_BYTES_MAX];
        window[..last.len()].copy_from_slice(last);
        convert_step(&mut window, at as u32, u32::MAX >> (STEP - places), &operand);
        last.copy_from_slice(&window[..last.len()]);
    }
}

/// Converts the instructions that begin in the first [`STEP`] bytes of `data` at a place for which `places`
/// has a bit. Returns the number of bytes that need no further look. `at` is the position of `data`.
#[inline]
fn convert_step(data: &mut [u8], at: u32, places: u32, operand: impl Fn([u8; 4], u32) -> [u8; 4]) -> usize {
    let Some(window) = data.first_chunk_mut::<{ STEP + INSTRUCTION_BYTES_MAX }>() else { return STEP };
    let mut left = marks(window) & places;
    let mut end = STEP;
    while left != 0 {
        let start = left.trailing_zeros() as usize;
        let first = start + opcode_bytes(window[start]);
        end = first + 4;
        if let Some(bytes) = window.get_mut(first..).and_then(|window| window.first_chunk_mut::<4>()) {
            *bytes = operand(*bytes, at.wrapping_add(end as u32));
        }
        // What begins within the operand is none.
        left &= u32::MAX.checked_shl(end as u32).unwrap_or(0);
    }
    end.max(STEP)
}

/// Length of a converted instruction before its operand, by its first byte.
fn opcode_bytes(first: u8) -> usize {
    1 + usize::from(first == 0x0f) + 2 * usize::from(first & 0xf8 == 0x48)
}

/// Returns a bit for each of the first [`STEP`] bytes that is the first of an instruction with a relative
/// operand: `call`, `jmp`, `jcc`; `mov`, `lea` and `cmp` with a REX prefix and an operand relative to the
/// instruction pointer.
fn marks(window: &[u8; STEP + INSTRUCTION_BYTES_MAX]) -> u32 {
    let mut found = [0_u8; STEP];
    for at in 0..STEP {
        let (first, second, third) = (window[at], window[at + 1], window[at + 2]);
        let call = first & 0xfe == 0xe8;
        let jump = (first == 0x0f) & (second & 0xf0 == 0x80);
        let addressed = (first & 0xf8 == 0x48)
            & (third & 0xc7 == 0x05)
            & ((second & 0xfd == 0x89) | (second == 0x8d) | (second & 0xfd == 0x39));
        found[at] = u8::from(call | jump | addressed);
    }
    let mut bits = 0;
    for (number, eight) in found.as_chunks::<8>().0.iter().enumerate() {
        // The multiplication moves the lowest bit of each byte to a place of its own in the highest byte.
        let eight = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= (eight as u32) << (number * 8);
    }
    bits
}

/// Counts the instructions in data that [`to_absolute`] would convert and whose operand is a distance of less
/// than 16 MiB, as nearly all are in code and few are elsewhere.
pub(super) fn plausible(data: &[u8]) -> usize {
    let mut found = 0;
    for at in (0..data.len().saturating_sub(STEP + INSTRUCTION_BYTES_MAX - 1)).step_by(STEP) {
        let Some(window) = data[at..].first_chunk::<{ STEP + INSTRUCTION_BYTES_MAX }>() else { break };
        let mut left = marks(window);
        while left != 0 {
            let start = left.trailing_zeros() as usize;
            left &= left - 1;
            let first = start + opcode_bytes(window[start]);
            found += usize::from(matches!(window[first + 3], 0 | 0xff) && window[first] != 0);
        }
    }
    found
}
