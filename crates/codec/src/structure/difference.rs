//! Differences between an element and an earlier one.

use super::prefix_sum;

/// Little-endian elements of `1 << width_log` bytes. From each, the element `distance` bytes before is
/// subtracted, modulo their size. The elements that have none before them, and the bytes behind the last
/// whole element, are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(super) width_log: u8,
    /// A multiple of the width, at least 1.
    pub(super) distance: u16,
}

/// Largest binary logarithm of a width.
pub(super) const WIDTH_LOG_MAX: u8 = 1;

impl Difference {
    /// `None`: width and distance do not belong together.
    pub(super) fn new(width_log: u8, distance: u16) -> Option<Difference> {
        let sound = width_log <= WIDTH_LOG_MAX && distance > 0 && distance.is_multiple_of(1 << width_log);
        sound.then_some(Difference { width_log, distance })
    }

    pub(super) fn apply(self, input: &[u8], out: &mut [u8]) {
        let distance = usize::from(self.distance).min(input.len());
        out.copy_from_slice(input);
        let (out, before) = (&mut out[distance..], &input[..input.len() - distance]);
        match self.width_log {
            0 => out.iter_mut().zip(before).for_each(|(byte, before)| *byte = byte.wrapping_sub(*before)),
            _ => {
                let pairs = out.as_chunks_mut::<2>().0.iter_mut().zip(before.as_chunks::<2>().0);
                pairs.for_each(|(element, before)| {
                    let difference = u16::from_le_bytes(*element).wrapping_sub(u16::from_le_bytes(*before));
                    *element = difference.to_le_bytes();
                });
            }
        }
    }

    pub(super) fn restore(self, data: &mut [u8]) {
        let distance = usize::from(self.distance);
        if distance == 1 {
            prefix_sum::add(data);
            return;
        }
        // Restored in pieces of one distance, each from the one before it, without dependencies within a
        // piece.
        let mut at = distance;
        while at < data.len() {
            let (before, here) = data.split_at_mut(at);
            let before = &before[at - distance..];
            match self.width_log {
                0 => {
                    here.iter_mut().zip(before).for_each(|(byte, before)| *byte = byte.wrapping_add(*before))
                }
                _ => {
                    let pairs = here.as_chunks_mut::<2>().0.iter_mut().zip(before.as_chunks::<2>().0);
                    pairs.for_each(|(element, before)| {
                        let sum = u16::from_le_bytes(*element).wrapping_add(u16::from_le_bytes(*before));
                        *element = sum.to_le_bytes();
                    });
                }
            }
            at += distance;
        }
    }
}
