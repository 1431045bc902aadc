//! Decoding of big-endian fields from the front of a byte slice.

/// Takes `N` bytes off the front. `None` if there are fewer.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// Takes a 16-bit number.
pub(crate) fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    take(bytes).map(u16::from_be_bytes)
}

/// Takes a 32-bit number.
pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_be_bytes)
}

/// Takes a 64-bit number.
pub(crate) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_be_bytes)
}

/// Takes `len` bytes.
pub(crate) fn take_slice<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head)
}
