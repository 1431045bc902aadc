//! The transforms. Each has an inverse for data of every length, and none changes the length.

use super::columns::Columns;
use super::difference::Difference;
use super::gradient::Gradient;
use super::{arm64, x86};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transform {
    /// Elements minus an earlier element.
    Difference(Difference),
    /// Bytes minus their neighbours to the left and above.
    Gradient(Gradient),
    /// One column of a table behind the other.
    Columns(Columns),
    /// Targets of x86-64 branches and addresses relative to the instruction pointer, made absolute.
    X86,
    /// Targets of ARM64 calls and page addresses, made absolute.
    Arm64,
}

impl Transform {
    /// Transforms `input` into `out`, which has the same length.
    pub(crate) fn apply(&self, input: &[u8], out: &mut [u8]) {
        match self {
            Transform::Difference(difference) => difference.apply(input, out),
            Transform::Gradient(gradient) => gradient.apply(input, out),
            Transform::Columns(columns) => columns.apply(input, out),
            Transform::X86 => {
                out.copy_from_slice(input);
                x86::to_absolute(out);
            }
            Transform::Arm64 => {
                out.copy_from_slice(input);
                arm64::to_absolute(out);
            }
        }
    }

    /// Restores data in place, or the first bytes of it ([`Transform::needed_bytes`]). `false`: columns are
    /// not restored in place.
    pub(crate) fn restore(&self, data: &mut [u8]) -> bool {
        match self {
            Transform::Difference(difference) => difference.restore(data),
            Transform::Gradient(gradient) => gradient.restore(data),
            Transform::Columns(_) => return false,
            Transform::X86 => x86::to_relative(data),
            Transform::Arm64 => arm64::to_relative(data),
        }
        true
    }

    /// Returns the number of first bytes of transformed data from which [`Transform::restore`] restores the
    /// first `wanted_bytes`, if it has as many.
    pub(crate) fn needed_bytes(&self, wanted_bytes: usize) -> usize {
        match self {
            Transform::Difference(difference) => wanted_bytes.next_multiple_of(1 << difference.width_log),
            Transform::Gradient(_) => wanted_bytes,
            Transform::X86 => x86::needed_bytes(wanted_bytes),
            Transform::Arm64 => wanted_bytes.next_multiple_of(4),
            Transform::Columns(_) => usize::MAX,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::structure::columns::Change;
    use crate::testdata;

    /// Transforms of every kind, with every parameter that has code of its own.
    pub(in crate::structure) fn transforms() -> Vec<Transform> {
        let mut transforms = vec![Transform::X86, Transform::Arm64];
        for (width_log, distance) in [(0, 1), (0, 2), (0, 3), (0, 24), (0, u16::MAX), (1, 2), (1, 4), (1, 48)]
        {
            transforms.extend(Difference::new(width_log, distance).map(Transform::Difference));
        }
        transforms.extend([2, 3, 48, 1000].into_iter().filter_map(Gradient::new).map(Transform::Gradient));
        let rotations = [(2, 1), (4, 2), (8, 3)];
        let strides = [2, 3, 4, 5, 7, 8, 9, 12, 16, 20, 24, 63, 64, 144, 511, 512].map(|stride| (stride, 0));
        for (stride, rotated_log) in strides.into_iter().chain(rotations) {
            let mut columns = Columns::new(stride, rotated_log).expect("in range");
            transforms.push(Transform::Columns(columns));
            for column in 0..stride {
                columns.set_change(column, [Change::Difference, Change::Xor, Change::None][column % 3]);
            }
            transforms.push(Transform::Columns(columns));
        }
        transforms
    }

    /// Data in which every transform has something to do.
    fn data(len: usize) -> Vec<u8> {
        let mut data = testdata::x86_code(len as u64, len);
        let words: [u32; 4] = [0x97ff_fff0, 0x9400_0123, 0xb000_0042, 0xf0ff_ffe7];
        for (at, word) in data.chunks_exact_mut(4).enumerate().filter(|(at, _)| at % 5 == 0) {
            word.copy_from_slice(&words[at / 5 % 4].to_le_bytes());
        }
        data
    }

    fn restored(transform: &Transform, stored: &[u8]) -> Vec<u8> {
        let mut stored = stored.to_vec();
        if let Transform::Columns(columns) = transform {
            let mut out = vec![0xee; stored.len()];
            columns.restore(&mut stored, &mut out);
            return out;
        }
        assert!(transform.restore(&mut stored));
        stored
    }

    #[test]
    fn every_transform_has_an_inverse_at_every_length() {
        for transform in transforms() {
            for len in (0..300).chain([511, 512, 513, 1023, 1025, 4095, 4096, 32_769]) {
                for data in [data(len), testdata::random(len as u64, len), vec![0xe8; len]] {
                    let mut stored = vec![0xee; len];
                    transform.apply(&data, &mut stored);
                    assert!(restored(&transform, &stored) == data, "{transform:?} of {len} bytes");
                }
            }
        }
    }

    #[test]
    fn something_changes() {
        let data = data(5000);
        for transform in transforms() {
            let mut stored = vec![0; data.len()];
            transform.apply(&data, &mut stored);
            let far =
                matches!(transform, Transform::Difference(difference) if difference.distance == u16::MAX);
            assert_eq!(stored == data, far, "{transform:?}");
        }
    }

    #[test]
    fn first_bytes_are_restored_without_the_rest() {
        let data = data(8300);
        for transform in transforms().iter().filter(|transform| !matches!(transform, Transform::Columns(_))) {
            let mut stored = vec![0; data.len()];
            transform.apply(&data, &mut stored);
            for len in (0..300).chain(4000..4200).chain(8100..data.len()) {
                let known = transform.needed_bytes(len).min(data.len());
                let restored = restored(transform, &stored[..known]);
                assert!(restored[..len] == data[..len], "{len} bytes of {transform:?}");
            }
        }
    }

    /// Bytes of the format (docs/reference/format.md). They never change.
    #[test]
    fn transformed_bytes_are_those_of_the_format() {
        let applied = |transform: Transform, data: &[u8]| {
            let mut out = vec![0; data.len()];
            transform.apply(data, &mut out);
            out
        };
        let difference =
            |width_log, distance| Transform::Difference(Difference::new(width_log, distance).expect("sound"));
        assert_eq!(applied(difference(0, 1), &[5, 7, 6, 6]), [5, 2, 255, 0]);
        assert_eq!(applied(difference(0, 3), &[5, 7, 6, 6]), [5, 7, 6, 1]);
        // 0x0100 - 0x00ff, 0x00ff - 0x0100, and half an element.
        assert_eq!(applied(difference(1, 2), &[0xff, 0, 0, 1, 0xff, 0, 9]), [0xff, 0, 1, 0, 0xff, 0xff, 9]);

        // Rows of 3: in the second, 9 - 5 and 7 - 7, each minus what was left of it.
        let gradient = Transform::Gradient(Gradient::new(3).expect("sound"));
        assert_eq!(applied(gradient, &[5, 7, 6, 9, 7, 8]), [5, 2, 255, 254, 252, 2]);

        let mut columns = Columns::new(3, 0).expect("sound");
        let table = [1, 2, 3, 4, 6, 2, 9];
        assert_eq!(applied(Transform::Columns(columns), &table), [1, 4, 9, 2, 6, 3, 2]);
        columns.set_change(0, Change::Difference);
        columns.set_change(1, Change::Xor);
        assert_eq!(applied(Transform::Columns(columns), &table), [1, 3, 5, 2, 4, 3, 2]);
        // 0x8001 and 0x3f80 rotated left are 0x0003 and 0x7f00. The last byte is no whole float.
        let floats = Columns::new(2, 1).expect("sound");
        assert_eq!(applied(Transform::Columns(floats), &[1, 0x80, 0x80, 0x3f, 9]), [3, 0, 9, 0, 0x7f]);

        // A call at 1 of 16 bytes ahead, whose operand contains what looks like a call; a jump at 10; and a
        // call that is too near to the end.
        let code = [
            0x90, 0xe8, 16, 0xe8, 0, 0, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x84, 4, 0, 0, 0, 0x90, 0x90, 0xe8, 1,
            2, 3, 4, 5, 6,
        ];
        let mut absolute = code;
        absolute[2..6].copy_from_slice(&(0xe810_u32 + 6).to_be_bytes());
        absolute[12..16].copy_from_slice(&20_u32.to_be_bytes());
        assert_eq!(applied(Transform::X86, &code), absolute);
        // The same in the second piece, with its position.
        let second = [&[0; 4096], &code[..]].concat();
        absolute[2..6].copy_from_slice(&(0xe810_u32 + 6 + 4096).to_be_bytes());
        absolute[12..16].copy_from_slice(&(20_u32 + 4096).to_be_bytes());
        assert_eq!(applied(Transform::X86, &second)[4096..], absolute);

        // bl of five words back, at word 1025; adrp of page 3 before it.
        let mut words = vec![0_u8; 4104];
        words[4096..4100].copy_from_slice(&0xf000_0001_u32.to_le_bytes());
        words[4100..].copy_from_slice(&0x97ff_fffb_u32.to_le_bytes());
        let absolute = applied(Transform::Arm64, &words);
        assert_eq!(absolute[4096..4100], 0x9000_0021_u32.to_le_bytes());
        assert_eq!(absolute[4100..], (0x9400_0000_u32 + 1020).to_le_bytes());
    }
}
