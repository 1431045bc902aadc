//! Arithmetic of byte ranges: lost bytes of a drive, and extents of files on it.

use std::ops::Range;

use host::extents::{Extent, Holds};

/// Ranges in order, none touching another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost(Vec<Range<u64>>);

impl Lost {
    /// From ranges in any order. They may overlap.
    pub(super) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Lost {
        let mut all: Vec<Range<u64>> = ranges.into_iter().filter(|it| !it.is_empty()).collect();
        all.sort_unstable_by_key(|it| it.start);
        all.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
            }
            touches
        });
        Lost(all)
    }

    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|it| it.end - it.start).sum()
    }

    /// Returns the parts of `range` that are among them, in order.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|it| it.end <= range.start);
        let met = self.0[first..].iter().take_while(move |it| it.start < range.end);
        met.map(move |it| it.start.max(range.start)..it.end.min(range.end)).filter(|it| !it.is_empty())
    }

    /// Returns what is in none of `others`, which are in order and do not overlap.
    pub(super) fn without(&self, others: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut left = Vec::new();
        for range in &self.0 {
            let mut start = range.start;
            let first = others.partition_point(|it| it.end <= range.start);
            for other in others[first..].iter().take_while(|it| it.start < range.end) {
                left.push(start..other.start.max(start));
                start = start.max(other.end);
            }
            left.push(start..range.end.max(start));
        }
        left.retain(|it| !it.is_empty());
        left
    }
}

/// A lost part of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// Bytes of the file.
    pub(super) in_file: Range<u64>,
    /// Bytes of the drive.
    pub(super) on_drive: Range<u64>,
}

/// Returns the lost parts of an extent, in order. `on_drive`: where its file system is on the drive.
pub(super) fn hits(lost: &Lost, on_drive: &Range<u64>, extent: &Extent) -> Vec<Hit> {
    let len = extent.in_file.end.saturating_sub(extent.in_file.start);
    let start = on_drive.start.saturating_add(extent.position_bytes);
    // Encoded data may be shorter than the data, and its end unknown.
    let end = start.saturating_add(len).min(on_drive.end);
    let hit = |lost: Range<u64>| {
        let in_file = match extent.holds {
            Holds::Encoded => extent.in_file.clone(),
            Holds::Bytes | Holds::Nothing => {
                let at = |position: u64| extent.in_file.start + (position - start);
                at(lost.start)..at(lost.end)
            }
        };
        Hit { in_file, on_drive: lost }
    };
    if start < end { lost.within(start..end).map(hit).collect() } else { Vec::new() }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
mod tests {
    use super::*;

    fn extent(in_file: Range<u64>, position_bytes: u64, holds: Holds) -> Extent {
        Extent { in_file, position_bytes, holds }
    }

    fn hit(in_file: Range<u64>, on_drive: Range<u64>) -> Hit {
        Hit { in_file, on_drive }
    }

    #[test]
    fn ranges_are_put_in_order_and_joined() {
        let lost = Lost::new([20..30, 0..10, 10..12, 25..27, 40..40]);
        assert_eq!(lost.ranges(), [0..12, 20..30]);
        assert_eq!(lost.bytes(), 22);
    }

    #[test]
    fn parts_of_a_range() {
        let lost = Lost::new([10..20, 30..40, 50..60]);
        let within = |range| lost.within(range).collect::<Vec<_>>();
        assert_eq!(within(0..10), [], "ends where it begins");
        assert_eq!(within(20..30), [], "between two");
        assert_eq!(within(60..99), [], "behind the last");
        assert_eq!(within(9..11), [10..11]);
        assert_eq!(within(19..31), [19..20, 30..31]);
        assert_eq!(within(12..13), [12..13]);
        assert_eq!(within(0..99), lost.ranges());
        assert_eq!(within(15..15), []);
    }

    #[test]
    fn what_is_left_of_ranges() {
        let lost = Lost::new([10..20, 30..40]);
        assert_eq!(lost.without(&[]), lost.ranges());
        assert_eq!(lost.without(&[10..20]), [30..40]);
        assert_eq!(lost.without(&[0..11, 12..13, 19..31]), [11..12, 13..19, 31..40]);
        assert_eq!(lost.without(&[0..99]), []);
        assert_eq!(lost.without(&[20..30, 40..50]), lost.ranges(), "next to them");
    }

    #[test]
    fn places_in_a_file_follow_those_of_the_file_system_on_the_drive() {
        // A file system from byte 1000 on; the extent is at 1500 to 1600 of the drive.
        let it = extent(200..300, 500, Holds::Bytes);
        let hits = |ranges: &[Range<u64>]| hits(&Lost::new(ranges.to_vec()), &(1000..9000), &it);
        assert_eq!(hits(&[1400..1500, 1600..1700]), [], "on both sides of it");
        assert_eq!(hits(&[500..600]), [], "there, if the file system began with the drive");
        assert_eq!(hits(&[1499..1501]), [hit(200..201, 1500..1501)]);
        assert_eq!(hits(&[1599..1601]), [hit(299..300, 1599..1600)]);
        assert_eq!(hits(&[1510..1520, 1530..1531]), [hit(210..220, 1510..1520), hit(230..231, 1530..1531)]);
        assert_eq!(hits(&[0..9999]), [hit(200..300, 1500..1600)]);
    }

    #[test]
    fn encoded_data_is_lost_as_a_whole() {
        let it = extent(200..300, 500, Holds::Encoded);
        let lost = Lost::new([1510..1520]);
        assert_eq!(hits(&lost, &(1000..9000), &it), [hit(200..300, 1510..1520)]);
    }

    #[test]
    fn nothing_is_beyond_the_file_system() {
        let lost = Lost::new([0..u64::MAX]);
        let at = |position, len| hits(&lost, &(1000..2000), &extent(0..len, position, Holds::Bytes));
        assert_eq!(at(990, 100), [hit(0..10, 1990..2000)]);
        assert_eq!((at(1000, 100), at(u64::MAX, 100)), (vec![], vec![]));
        assert_eq!(at(0, u64::MAX), [hit(0..1000, 1000..2000)]);
    }
}
