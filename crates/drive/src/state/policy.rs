//! Codec policies as stored in the superblock.

use crate::error::Error;

/// Returns the codec policy for the numbers in a superblock.
pub(crate) fn policy_of(policy: u8, level: i8) -> Result<codec::Policy, Error> {
    match policy {
        0 => Ok(codec::Policy::Auto),
        1 => Ok(codec::Policy::Lz4),
        2 => Ok(codec::Policy::Zstd(level)),
        3 => Ok(codec::Policy::None),
        4 => Ok(codec::Policy::Deflate(level.unsigned_abs())),
        other => Err(Error::Corrupt(format!("superblock: unknown codec policy {other}"))),
    }
}

/// Returns the numbers of a policy in the superblock: policy and level.
pub(crate) fn policy_numbers(policy: codec::Policy) -> (u8, i8) {
    match policy {
        codec::Policy::Auto => (0, 0),
        codec::Policy::Lz4 => (1, 0),
        codec::Policy::Zstd(level) => (2, level),
        codec::Policy::None => (3, 0),
        codec::Policy::Deflate(level) => (4, level as i8),
    }
}
