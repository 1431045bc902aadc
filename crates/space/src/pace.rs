//! Rates of cleaning and of writers.

/// Rate of background work, and limit of the rate of writers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Share of its time that cleaning should take, from 0 to 1.
    pub cleaning_share: f64,
    /// Rate of writers relative to their recent rate, so that space is not used up faster than it is made: 1
    /// keeps the rate, less slows down. `None`: unlimited.
    pub writers: Option<f64>,
}

impl Pace {
    /// Pace without cleaning and without a limit for writers.
    pub const FREE: Pace = Pace { cleaning_share: 0.0, writers: None };
}

/// Free and soon free space, in segments. Fractions are the rest of the one that the host head fills.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// Free segments.
    pub free: f64,
    /// Free segments, and dead ones not yet freed by a checkpoint.
    pub available: f64,
    /// Segments that host writes must leave.
    pub floor: f64,
    /// Critical and low watermark, from [`watermarks`].
    pub marks: (f64, f64),
    /// True if no host has written recently.
    pub idle: bool,
}

/// Returns the pace for a supply.
///
/// Cleaning's share rises with the deficit at the low watermark, and is all of its time if a quarter of the
/// stock is missing: a drive under light load is cleaned a little all the time, and an unused one slowly. If
/// that is not enough, writers are slowed down, so that they meet the rate of cleaning while most of the
/// stock is still there (checkpoints then stay few), instead of running into the floor and waiting for whole
/// segments. Independently, free space must last while a checkpoint is written: the last two segments above
/// the floor are given out ever more slowly.
pub fn pace(supply: &Supply) -> Pace {
    // Missing shares of the stock: where cleaning works without pause, and where writers keep their rate.
    const FULL_SPEED: f64 = 0.25;
    const BALANCE: f64 = 0.375;
    // The rate halves for this much more of the stock missing.
    const HALVING: f64 = 0.125;
    const IDLE_SHARE_MAX: f64 = 0.25;
    const RUNWAY_SEGMENTS: f64 = 2.0;
    let (critical, low) = supply.marks;
    let missing = (low - supply.available) / (low - critical).max(1.0);
    let share = (missing / FULL_SPEED).clamp(0.0, 1.0);
    let cleaning_share = if supply.idle { share.min(IDLE_SHARE_MAX) } else { share };
    let runway = ((supply.free - supply.floor) / RUNWAY_SEGMENTS).clamp(0.0, 1.0);
    let writers = if missing > FULL_SPEED {
        Some(((BALANCE - missing) / HALVING).exp2() * runway)
    } else {
        (runway < 1.0).then_some(runway)
    };
    Pace { cleaning_share, writers }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(available: f64, free: f64) -> Pace {
        pace(&Supply { free, available, floor: 10.0, marks: (12.0, 52.0), idle: false })
    }

    #[test]
    fn cleaning_works_harder_the_less_there_is() {
        let shares: Vec<f64> = (0..=60).map(|a| at(f64::from(a), 30.0).cleaning_share).collect();
        assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
        assert_eq!((shares[52], shares[60]), (0.0, 0.0));
        assert_eq!((shares[42], shares[12], shares[0]), (1.0, 1.0, 1.0));
        assert!((at(47.0, 30.0).cleaning_share - 0.5).abs() < 1e-9);
        let idle =
            pace(&Supply { free: 11.0, available: 11.0, floor: 10.0, marks: (12.0, 52.0), idle: true });
        assert_eq!(idle.cleaning_share, 0.25);
    }

    #[test]
    fn writers_are_free_until_cleaning_cannot_keep_up_and_then_slow_down_steadily() {
        assert_eq!(at(42.0, 30.0).writers, None);
        let factors: Vec<f64> =
            (12..42).map(|a| at(f64::from(a), 30.0).writers.expect("held back")).collect();
        assert!(factors.is_sorted_by(|a, b| a < b), "{factors:?}");
        // Three eighths of the stock missing: they keep their rate.
        assert!((at(37.0, 30.0).writers.expect("held back") - 1.0).abs() < 1e-9);
        assert!(factors[0] < 0.05 && factors[29] > 1.5, "{factors:?}");
    }

    #[test]
    fn the_last_free_segments_are_given_out_slowly_whatever_a_checkpoint_will_free() {
        assert_eq!(at(60.0, 12.0).writers, None);
        assert_eq!(at(60.0, 11.0).writers, Some(0.5));
        assert_eq!(at(60.0, 10.0).writers, Some(0.0));
        assert_eq!(at(60.0, 9.0).writers, Some(0.0));
    }
}
