//! A set of segments: one bit each, and one for each 64 of a level below, so that the lowest is found at
//! once.

/// Members of a word.
const WORD: usize = u64::BITS as usize;

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentSet {
    /// Bits of the members, then of the words of the level below that are not zero, up to a level of one
    /// word.
    levels: Vec<Vec<u64>>,
    len: u32,
}

impl SegmentSet {
    /// All segments below `count`.
    pub(crate) fn all(count: u32) -> SegmentSet {
        let mut set = SegmentSet::none(count);
        set.insert_from(0, count);
        set
    }

    /// An empty set with room for segments below `count`.
    pub(crate) fn none(count: u32) -> SegmentSet {
        let mut set = SegmentSet::default();
        set.grow(count);
        set
    }

    /// Makes room for segments below `count`.
    pub(crate) fn grow(&mut self, count: u32) {
        let mut words = (count as usize).div_ceil(WORD);
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            let here = &mut self.levels[level];
            here.resize(words.max(here.len()), 0);
            if words <= 1 {
                break;
            }
            words = words.div_ceil(WORD);
        }
        // A new top knows nothing of the level below it yet.
        for level in 1..self.levels.len() {
            for at in 0..self.levels[level - 1].len() {
                if self.levels[level - 1][at] != 0 {
                    self.levels[level][at / WORD] |= 1 << (at % WORD);
                }
            }
        }
    }

    /// Adds the segments from `first` on, below `end`.
    pub(crate) fn insert_from(&mut self, first: u32, end: u32) {
        let mut segment = first;
        while segment < end {
            let at = segment as usize;
            let is_whole =
                at.is_multiple_of(WORD) && (end - segment) as usize >= WORD && self.levels[0][at / WORD] == 0;
            self.insert(segment);
            if is_whole {
                self.levels[0][at / WORD] = u64::MAX;
                self.len += WORD as u32 - 1;
            }
            segment += if is_whole { WORD as u32 } else { 1 };
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn contains(&self, segment: u32) -> bool {
        let at = segment as usize;
        self.levels
            .first()
            .and_then(|bits| bits.get(at / WORD))
            .is_some_and(|word| word >> (at % WORD) & 1 == 1)
    }

    pub(crate) fn insert(&mut self, segment: u32) {
        if self.contains(segment) {
            return;
        }
        self.len += 1;
        let mut at = segment as usize;
        for level in &mut self.levels {
            let word = &mut level[at / WORD];
            let was_empty = *word == 0;
            *word |= 1 << (at % WORD);
            if !was_empty {
                break;
            }
            at /= WORD;
        }
    }

    /// Returns whether it was a member.
    pub(crate) fn remove(&mut self, segment: u32) -> bool {
        if !self.contains(segment) {
            return false;
        }
        self.len -= 1;
        let mut at = segment as usize;
        for level in &mut self.levels {
            let word = &mut level[at / WORD];
            *word &= !(1 << (at % WORD));
            if *word != 0 {
                break;
            }
            at /= WORD;
        }
        true
    }

    /// Returns the highest one.
    pub(crate) fn last(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = *level.get(at)?;
            at = at * WORD + word.checked_ilog2()? as usize;
        }
        (self.len > 0).then_some(at as u32)
    }

    /// Removes the lowest one.
    pub(crate) fn pop_first(&mut self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = *level.get(at)?;
            if word == 0 {
                return None;
            }
            at = at * WORD + word.trailing_zeros() as usize;
        }
        let first = (self.len > 0).then_some(at as u32)?;
        let was_in = self.remove(first);
        assert!(was_in, "the levels of a set of segments disagree at {first}");
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Any order of changes does the same to it as to a set of the standard library.
    #[test]
    fn is_a_set() {
        for count in [0, 1, 63, 64, 65, 5000, 64 * 64 * 64 + 1] {
            let (mut set, mut known) = (SegmentSet::all(count), (0..count).collect::<BTreeSet<u32>>());
            let mut room = count;
            let mut random = 1_u32;
            for step in 0..20_000_u32 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let segment = (random >> 8) % room.max(1);
                match step % 7 {
                    0..3 => {
                        assert_eq!(set.pop_first(), known.pop_first());
                    }
                    3 => {
                        set.remove(segment);
                        known.remove(&segment);
                    }
                    _ if room == 0 => {}
                    _ => {
                        set.insert(segment);
                        known.insert(segment);
                    }
                }
                if step == 10_000 {
                    set.grow(room + 100_000);
                    set.insert_from(room, room + 100_000);
                    known.extend(room..room + 100_000);
                    room += 100_000;
                }
                assert_eq!(set.len() as usize, known.len());
                assert_eq!(set.contains(segment), known.contains(&segment));
                assert_eq!(set.last(), known.last().copied());
            }
            assert!((0..room + 70).all(|segment| set.contains(segment) == known.contains(&segment)));
            while let Some(first) = set.pop_first() {
                assert_eq!(Some(first), known.pop_first());
            }
            assert!(known.is_empty());
        }
    }
}
