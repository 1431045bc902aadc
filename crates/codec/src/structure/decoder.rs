//! Reading of payloads.

use crate::{CodecError, CodecId, Dictionary, zstd};

use super::header;
use super::transform::Transform;

/// Decompression state.
#[derive(Default)]
pub(crate) struct Decoder {
    /// Columns, before they become rows.
    columns: Vec<u8>,
}

impl Decoder {
    /// Decompresses `payload` into `out`, or as many of its first bytes as are needed for `wanted_bytes`.
    /// Returns the number of bytes restored.
    pub(crate) fn decompress(
        &mut self,
        zstd: &mut zstd::Decoder,
        payload: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
        wanted_bytes: usize,
    ) -> Result<usize, CodecError> {
        let corrupt =
            |reason| CodecError::Corrupt { codec: CodecId::Structured, payload_bytes: payload.len(), reason };
        let Some((transform, header_bytes)) = header::decode(payload) else {
            return Err(corrupt("it names no known transform"));
        };
        let frame = &payload[header_bytes..];
        let ours = |error| match error {
            CodecError::Corrupt { reason, .. } => corrupt(reason),
            other => other,
        };
        let expected_bytes = out.len();
        let too_short =
            |actual_bytes| CodecError::Length { codec: CodecId::Structured, expected_bytes, actual_bytes };
        if let Transform::Columns(columns) = transform {
            if self.columns.len() < out.len() {
                self.columns.resize(out.len(), 0);
            }
            let stored = &mut self.columns[..out.len()];
            let bytes = zstd.decompress(frame, dictionary, stored).map_err(ours)?;
            if bytes < expected_bytes {
                return Err(too_short(bytes));
            }
            columns.restore(stored, out);
            return Ok(bytes);
        }
        let needed_bytes = transform.needed_bytes(wanted_bytes.min(expected_bytes)).min(expected_bytes);
        let bytes = if needed_bytes < expected_bytes {
            zstd.decompress_prefix(frame, dictionary, out, needed_bytes)
        } else {
            zstd.decompress(frame, dictionary, out)
        }
        .map_err(ours)?;
        if bytes < needed_bytes {
            return Err(too_short(bytes));
        }
        transform.restore(&mut out[..bytes]);
        Ok(bytes)
    }
}
