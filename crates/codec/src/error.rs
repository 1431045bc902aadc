use crate::CodecId;

/// Reason why a payload could not be decompressed. The payload does not hold what its record's header states,
/// and reading it again is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The codec refused the payload.
    #[error("{codec} payload of {payload_bytes} bytes is corrupt: {reason}")]
    Corrupt {
        /// The codec named by the record.
        codec: CodecId,
        /// Length of the payload.
        payload_bytes: usize,
        /// The codec's own message.
        reason: &'static str,
    },
    /// The payload is valid but holds a different number of bytes.
    #[error("{codec} payload holds {actual_bytes} bytes where {expected_bytes} were expected")]
    Length {
        /// The codec named by the record.
        codec: CodecId,
        /// Length of the buffer to fill.
        expected_bytes: usize,
        /// Number of bytes that the payload decompresses to.
        actual_bytes: usize,
    },
}
