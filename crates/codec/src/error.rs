use crate::CodecId;

/// Why a payload could not be decompressed. The payload does not hold what its record's header says; reading
/// on is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A codec byte of a newer version, or garbage.
    #[error("unknown codec {0} (written by a newer version, or corrupt)")]
    UnknownCodec(u8),
    /// The codec refused the payload.
    #[error("{codec} payload of {payload_bytes} bytes is corrupt: {reason}")]
    Corrupt {
        /// The codec the payload claims.
        codec: CodecId,
        /// Length of the payload.
        payload_bytes: usize,
        /// The codec's own words.
        reason: &'static str,
    },
    /// The payload is sound but holds another number of bytes.
    #[error("{codec} payload holds {actual_bytes} bytes where {expected_bytes} were expected")]
    Length {
        /// The codec the payload claims.
        codec: CodecId,
        /// Length of the buffer to fill.
        expected_bytes: usize,
        /// What the payload decompresses to.
        actual_bytes: usize,
    },
}
