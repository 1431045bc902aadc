//! Emptying of bad segments: what lives in a segment that took no write moves out, and the segment stays out
//! of use.

use std::collections::BTreeMap;

use crate::state::cleaning::Cleaning;

/// Ticks before another attempt: after the first one, and at most.
const TICKS: (u64, u64) = (10, 100_000);
/// Ticks before another attempt to move what is lost: overwriting and TRIM may have left less of it, and a
/// disk may read again what it could not.
const LOST_TICKS: u64 = 10 * TICKS.1;

/// See the module's description.
#[derive(Default)]
pub(crate) struct Emptying {
    /// The segment that is partly emptied. It is lost if a step is abandoned, and the segment is then started
    /// again.
    pub(crate) work: Option<Cleaning>,
    /// Segments that still held something after an attempt.
    tried: BTreeMap<u32, Tried>,
}

#[derive(Clone, Copy)]
struct Tried {
    /// The newest checkpoint at that time. Map nodes move with the next one only.
    checkpoint: u64,
    until_tick: u64,
    ticks: u64,
}

/// What an attempt left in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// What another attempt may move: map nodes after the next checkpoint, what could not be read just now,
    /// or what there was no room for.
    Some,
    /// What was not found where it should be: another attempt is most likely in vain.
    Lost,
}

impl Emptying {
    /// Nothing lives in a segment any more: its next filling is tried like any other.
    pub(crate) fn forget(&mut self, segment: u32) {
        self.tried.remove(&segment);
    }

    /// Returns whether a segment may be tried now, with this newest checkpoint.
    pub(crate) fn is_due(&self, segment: u32, now: u64, checkpoint: u64) -> bool {
        self.tried.get(&segment).is_none_or(|tried| now >= tried.until_tick && checkpoint > tried.checkpoint)
    }

    /// An attempt has left something in a segment.
    pub(crate) fn put_off(&mut self, segment: u32, left: Left, now: u64, checkpoint: u64) {
        let before = self.tried.get(&segment).map_or(0, |tried| tried.ticks);
        let ticks = (before * 2).clamp(TICKS.0, TICKS.1);
        let until_tick = match left {
            Left::Some => now + ticks,
            Left::Lost => now + LOST_TICKS,
        };
        self.tried.insert(segment, Tried { checkpoint, until_tick, ticks });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_in_vain_is_followed_by_longer_and_longer_pauses() {
        let mut emptying = Emptying::default();
        assert!(emptying.is_due(7, 0, 1));
        emptying.put_off(7, Left::Some, 5, 1);
        let due =
            |emptying: &Emptying| [(14, 2), (15, 1), (15, 2)].map(|(now, n)| emptying.is_due(7, now, n));
        assert_eq!(due(&emptying), [false, false, true]);
        assert!(emptying.is_due(8, 5, 1), "another segment");
        emptying.put_off(7, Left::Some, 15, 2);
        assert_eq!([34, 35].map(|now| emptying.is_due(7, now, 3)), [false, true]);
        emptying.put_off(7, Left::Lost, 35, 3);
        let due = [34 + LOST_TICKS, 35 + LOST_TICKS].map(|now| emptying.is_due(7, now, 100));
        assert_eq!(due, [false, true]);
    }
}
