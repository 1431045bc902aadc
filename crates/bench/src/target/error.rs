//! Text that names no target.

use codec::ParsePolicyError;

use super::{DISCOVERY_NQN, NQN_MAX_BYTES, NSID_MAX};

/// Reason why text is not an address of NVMe/TCP, S3 or Ceph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It has not the form of an address.
    #[error("{0}")]
    Form(&'static str),
    /// The NVMe Qualified Name has an invalid length, or white space.
    #[error("expected an NQN of 1 to {NQN_MAX_BYTES} bytes without spaces behind HOST/")]
    Nqn,
    /// The NVMe Qualified Name is that of the discovery service.
    #[error("{DISCOVERY_NQN} is the discovery service: expected the NQN of a subsystem")]
    DiscoveryService,
    /// The namespace ID is not in range.
    #[error("expected nsid=N with a number from 1 to {NSID_MAX}")]
    NamespaceId,
}

impl From<&'static str> for AddressError {
    /// The message is that of [`AddressError::Form`].
    fn from(expected: &'static str) -> AddressError {
        AddressError::Form(expected)
    }
}

/// Reason why text is not a target.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Its address cannot be parsed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Its codec cannot be parsed.
    #[error(transparent)]
    Codec(#[from] ParsePolicyError),
    /// It is a target without a codec, and names one.
    #[error("only pumice and pumice:PATH take a codec")]
    CodecOfOther,
    /// It is `pumice` with an option that does not exist.
    #[error("unknown option in {0:?}: expected pumice, or pumice,codec=CODEC")]
    UnknownOption(String),
    /// It is none of the kinds.
    #[error(
        "unknown target {0:?}: expected pumice, pumice:PATH, raw, qcow2, btrfs, attached, raid0, raw-attached, \
        raw-raid0, an address of NBD, NVMe/TCP or S3, rbd:POOL/IMAGE, or a path with a slash"
    )]
    Unknown(String),
}
