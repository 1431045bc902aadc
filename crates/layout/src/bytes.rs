//! Little-endian fields at fixed offsets.

pub(crate) fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&b[at..at + 4]);
    u32::from_le_bytes(raw)
}

pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// A 40-bit field.
pub(crate) fn u40_at(b: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw[..5].copy_from_slice(&b[at..at + 5]);
    u64::from_le_bytes(raw)
}

pub(crate) fn put(b: &mut [u8], at: usize, value: &[u8]) {
    b[at..at + value.len()].copy_from_slice(value);
}
