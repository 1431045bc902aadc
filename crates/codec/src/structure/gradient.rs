//! Pictures: a byte differs from the one before it about as much as the row above does at that place.

use super::difference::Difference;
use super::prefix_sum;

/// From each byte, the one before it and the one a row before it are subtracted and the one before both is
/// added, modulo 256: the difference at the distance of a row, and then at 1. What is before the data counts
/// as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gradient {
    rows: Difference,
}

/// Shortest row in bytes. The difference at 1 is a transform of its own.
const ROW_BYTES_MIN: u16 = 2;

impl Gradient {
    /// `None`: no such rows.
    pub(super) fn new(row_bytes: u16) -> Option<Gradient> {
        let rows = Difference::new(0, row_bytes).filter(|_| row_bytes >= ROW_BYTES_MIN)?;
        Some(Gradient { rows })
    }

    pub(super) fn row_bytes(self) -> u16 {
        self.rows.distance
    }

    pub(super) fn apply(self, input: &[u8], out: &mut [u8]) {
        self.rows.apply(input, out);
        // What is before the first byte is 0 in both rows, so a byte of the second row needs its two rows
        // only.
        let row = usize::from(self.row_bytes()).min(input.len());
        for at in (1..=row.min(input.len().saturating_sub(1))).rev() {
            out[at] = out[at].wrapping_sub(out[at - 1]);
        }
        let behind = (row + 1).min(input.len());
        let (here, left) = (&input[behind..], &input[behind - usize::from(behind > 0)..]);
        let above = &input[behind.saturating_sub(row)..];
        let above_left = &input[behind.saturating_sub(row + 1)..];
        let four = here.iter().zip(left).zip(above.iter().zip(above_left));
        for (out, ((here, left), (above, above_left))) in out[behind..].iter_mut().zip(four) {
            *out = here.wrapping_sub(*left).wrapping_sub(*above).wrapping_add(*above_left);
        }
    }

    pub(super) fn restore(self, data: &mut [u8]) {
        prefix_sum::add(data);
        self.rows.restore(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    #[test]
    fn it_is_the_difference_of_rows_and_then_of_neighbours() {
        for row in [2, 3, 17, 100, u16::MAX] {
            for len in (0..300).chain([4096]) {
                let data = testdata::random(len as u64, len);
                let (mut rows, mut expected, mut out) = (vec![0; len], vec![0; len], vec![0xee; len]);
                Difference::new(0, row).expect("sound").apply(&data, &mut rows);
                Difference::new(0, 1).expect("sound").apply(&rows, &mut expected);
                let gradient = Gradient::new(row).expect("sound");
                gradient.apply(&data, &mut out);
                assert!(out == expected, "{len} bytes in rows of {row}");
                gradient.restore(&mut out);
                assert!(out == data, "{len} bytes in rows of {row}");
            }
        }
        assert_eq!((Gradient::new(0), Gradient::new(1)), (None, None));
    }
}
