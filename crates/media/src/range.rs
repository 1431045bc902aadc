//! Check of offsets and lengths, the same for all backings.

use std::io;

use crate::PAGE_BYTES;

/// Refuses a range that does not consist of whole pages or that exceeds the backing.
pub(crate) fn check_range(size_bytes: u64, offset: u64, len: u64) -> io::Result<()> {
    let page = PAGE_BYTES as u64;
    if !offset.is_multiple_of(page) || !len.is_multiple_of(page) {
        return Err(invalid(format!("{len} bytes at offset {offset} are not whole 4 KiB pages")));
    }
    match offset.checked_add(len) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(invalid(format!("{len} bytes at offset {offset} leave a backing of {size_bytes} bytes"))),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_inside_the_backing_pass() {
        assert!(check_range(8192, 0, 8192).is_ok());
        assert!(check_range(8192, 8192, 0).is_ok());
        for (offset, len) in [(4096, 8192), (8192, 4096), (512, 4096), (0, 100), (u64::MAX - 4095, 4096)] {
            let error = check_range(8192, offset, len).expect_err("outside or misaligned");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset} {len}");
        }
    }
}
