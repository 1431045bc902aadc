//! First bytes of a payload: the transform. A zstd frame follows. docs/reference/format.md describes them.

use super::columns::{Change, Columns, ROTATED_LOG_MAX, STRIDE_MAX};
use super::difference::Difference;
use super::gradient::Gradient;
use super::transform::Transform;

/// Longest header in bytes: kind, stride, changes of all columns.
pub(super) const HEADER_BYTES_MAX: usize = 3 + STRIDE_MAX / 4;

const DIFFERENCE: u8 = 0;
const COLUMNS: u8 = 1;
const X86: u8 = 2;
const ARM64: u8 = 3;
const GRADIENT: u8 = 4;

/// In the high four bits of columns: one byte of changes serves all columns.
const UNIFORM: u8 = 4;

/// Writes the header of a transform to the beginning of `out`, and returns its length. `None`: there is no
/// room.
pub(super) fn encode(transform: &Transform, out: &mut [u8]) -> Option<usize> {
    let mut header = [0; HEADER_BYTES_MAX];
    let bytes = match transform {
        Transform::Difference(difference) => {
            header[0] = DIFFERENCE | difference.width_log << 4;
            header[1..3].copy_from_slice(&difference.distance.to_le_bytes());
            3
        }
        Transform::Columns(columns) => {
            let change = columns.change(0);
            let uniform = (1..columns.stride()).all(|column| columns.change(column) == change);
            header[0] = COLUMNS | columns.rotated_log() << 4 | if uniform { UNIFORM << 4 } else { 0 };
            header[1..3].copy_from_slice(&(columns.stride() as u16).to_le_bytes());
            if uniform {
                header[3] = change as u8;
                4
            } else {
                let changes = columns.changes();
                header[3..3 + changes.len()].copy_from_slice(changes);
                3 + changes.len()
            }
        }
        Transform::Gradient(gradient) => {
            header[0] = GRADIENT;
            header[1..3].copy_from_slice(&gradient.row_bytes().to_le_bytes());
            3
        }
        Transform::X86 => {
            header[0] = X86;
            1
        }
        Transform::Arm64 => {
            header[0] = ARM64;
            1
        }
    };
    out.get_mut(..bytes)?.copy_from_slice(&header[..bytes]);
    Some(bytes)
}

/// Returns the transform of a payload and the length of its header. `None`: there is no such transform.
pub(super) fn decode(payload: &[u8]) -> Option<(Transform, usize)> {
    let (&first, rest) = payload.split_first()?;
    let (kind, more) = (first & 15, first >> 4);
    match (kind, more) {
        (DIFFERENCE, _) => {
            let distance = u16::from_le_bytes(*rest.first_chunk()?);
            Some((Transform::Difference(Difference::new(more, distance)?), 3))
        }
        (COLUMNS, _) => {
            let stride = usize::from(u16::from_le_bytes(*rest.first_chunk()?));
            let mut columns = Columns::new(stride, more & ROTATED_LOG_MAX)?;
            let uniform = more & UNIFORM != 0;
            if more & !(UNIFORM | ROTATED_LOG_MAX) != 0 {
                return None;
            }
            let changes = rest.get(2..)?.get(..if uniform { 1 } else { stride.div_ceil(4) })?;
            let unused =
                if uniform { 0 } else { changes[changes.len() - 1] as u32 >> ((stride - 1) % 4 * 2 + 2) };
            if unused != 0 {
                return None;
            }
            for column in 0..stride {
                let bits = if uniform { changes[0] } else { changes[column / 4] >> (column % 4 * 2) & 3 };
                columns.set_change(
                    column,
                    match bits {
                        0 => Change::None,
                        1 => Change::Difference,
                        2 => Change::Xor,
                        _ => return None,
                    },
                );
            }
            Some((Transform::Columns(columns), 3 + changes.len()))
        }
        (GRADIENT, 0) => {
            let row_bytes = u16::from_le_bytes(*rest.first_chunk()?);
            Some((Transform::Gradient(Gradient::new(row_bytes)?), 3))
        }
        (X86, 0) => Some((Transform::X86, 1)),
        (ARM64, 0) => Some((Transform::Arm64, 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::transform::tests::transforms;

    #[test]
    fn headers_and_back() {
        for transform in transforms() {
            let mut header = [0xee; HEADER_BYTES_MAX];
            let bytes = encode(&transform, &mut header).expect("room");
            assert_eq!(decode(&header), Some((transform, bytes)));
            assert_eq!(decode(&header[..bytes]), Some((transform, bytes)));
            assert_eq!(decode(&header[..bytes - 1]), None, "{transform:?} without the end of its header");
            assert_eq!(encode(&transform, &mut header[..bytes - 1]), None);
        }
    }

    /// A reader refuses what this version does not define, so that a later one may define it.
    #[test]
    fn what_is_not_defined_is_refused() {
        let known = |header: &[u8]| decode(&[header, &[0; HEADER_BYTES_MAX]].concat()).is_some();
        for kind in 0..=u8::MAX {
            let header = [kind, 8, 0, 0];
            // Differences of bytes and of two bytes; columns of 8 bytes, or of floats of 8 bytes, with the
            // changes of each or of all; the two kinds of branches; rows of a picture.
            let expected = [0x00, 0x10, 0x01, 0x31, 0x41, 0x71, 0x02, 0x03, 0x04].contains(&kind);
            assert_eq!(known(&header), expected, "kind {kind:#x}");
        }
        assert!(known(&[0x10, 2, 0]) && !known(&[0x10, 3, 0]), "a distance of one element and a half");
        assert!(!known(&[0x00, 0, 0]), "no distance");
        assert!(known(&[0x04, 2, 0]) && !known(&[0x04, 1, 0]) && !known(&[0x04, 0, 0]), "no rows");
        assert!(
            !known(&[0x41, 1, 0, 0]) && !known(&[0x41, 0, 0, 0]) && !known(&[0x41, 1, 2, 0]),
            "513 columns"
        );
        assert!(known(&[0x41, 0, 2, 2]) && !known(&[0x41, 0, 2, 3]), "a fourth change");
        assert!(known(&[0x41, 8, 0, 1]) && !known(&[0x41, 8, 0, 4]), "further bits of a change");
        assert!(known(&[0x11, 2, 0, 0]) && !known(&[0x11, 4, 0, 0]), "floats of another size");
        assert!(
            known(&[0x01, 3, 0, 0x2a]) && !known(&[0x01, 3, 0, 0xaa]),
            "a change of a column that is none"
        );
    }
}
