//! What the oracle knows of bytes that hosts share which know no sectors.
//!
//! Each byte belongs to one host of a life, which makes one change after the other. A change takes effect as
//! a whole or not at all. It is *sure* if it was acknowledged or a reader has seen it. Otherwise (it was
//! given up, failed with an error other than lack of space, or is in flight) it is *open*: it has taken
//! effect before the next change of the host began, or never will. What was refused for lack of space has no
//! effect and is forgotten.
//!
//! **While the drive is up**, a byte has the value of the newest change that covers it and has taken effect.
//!
//! **After a crash**, some prefix of the changes of each host explains what is read: its sure changes up to a
//! moment, and any open ones among them. Durable ones are in it, and so is whatever was acknowledged before a
//! survivor began, of any host and of all other requests.
//!
//! Each read is explained by itself: what two reads tell together of several open changes is not put
//! together.

use std::ops::Range;

use super::{NEVER, Violation};

/// Bytes of the hosts: two blocks.
pub(crate) const SHARED_BYTES: usize = 8192;
/// Number of hosts.
pub(crate) const BYTE_HOSTS: usize = 3;

/// A write, TRIM or write-zeroes of a host.
#[derive(Clone, Debug)]
struct Change {
    at: usize,
    values: Vec<u8>,
    start: u64,
    /// When it became sure.
    end: u64,
    is_durable: bool,
}

impl Change {
    fn is_sure(&self) -> bool {
        self.end != NEVER
    }

    /// The bytes of `range` that it covers.
    fn part(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.at.max(range.start);
        start..(self.at + self.values.len()).min(range.end).max(start)
    }

    fn value(&self, at: usize) -> u8 {
        self.values[at - self.at]
    }
}

/// What the bytes may be.
#[derive(Clone)]
pub(super) struct Bytes {
    /// Before the changes that are listed. `None`: any value.
    base: Vec<Option<u8>>,
    /// Bytes of each host of this life.
    owners: [Range<usize>; BYTE_HOSTS],
    /// Changes of each host since the drive was last opened, in order, without the first ones if they are
    /// durable.
    hosts: [Vec<Change>; BYTE_HOSTS],
    /// Read back after a restart.
    seen: Option<Vec<u8>>,
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes {
            base: vec![Some(0); SHARED_BYTES],
            owners: owners_of(&[]),
            hosts: Default::default(),
            seen: None,
        }
    }
}

/// Divides the bytes among the hosts, at these places in rising order.
pub(crate) fn owners_of(cuts: &[usize]) -> [Range<usize>; BYTE_HOSTS] {
    let end = |host: usize| cuts.get(host).copied().unwrap_or(SHARED_BYTES);
    std::array::from_fn(|host| (if host == 0 { 0 } else { end(host - 1) })..end(host))
}

impl Bytes {
    /// Begins a life.
    pub(super) fn share(&mut self, owners: [Range<usize>; BYTE_HOSTS]) {
        self.owners = owners;
    }

    pub(super) fn begin(&mut self, host: usize, at: usize, values: Vec<u8>, start: u64) {
        debug_assert!(self.hosts[host].iter().all(|change| change.start < start), "one after the other");
        self.hosts[host].push(Change { at, values, start, end: NEVER, is_durable: false });
    }

    /// Records that the newest change of a host was acknowledged.
    pub(super) fn acknowledge(&mut self, host: usize, end: u64, is_durable: bool) {
        if let Some(change) = self.hosts[host].last_mut() {
            (change.end, change.is_durable) = (end, is_durable);
        }
    }

    /// Records that the newest change of a host was refused: it has not changed anything.
    pub(super) fn refuse(&mut self, host: usize) {
        self.hosts[host].pop();
    }

    /// Records that a flush succeeded that began at this time.
    pub(super) fn flushed(&mut self, began: u64) {
        let Bytes { base, hosts, .. } = self;
        for changes in hosts {
            changes
                .iter_mut()
                .filter(|change| change.end < began)
                .for_each(|change| change.is_durable = true);
            let settled = changes.iter().take_while(|change| change.is_durable).count();
            for change in changes.drain(..settled) {
                (change.at..).zip(&change.values).for_each(|(at, value)| base[at] = Some(*value));
            }
        }
    }

    /// Checks what a host read of its bytes. Open changes of which it tells whether they have taken effect
    /// are open no more.
    pub(super) fn read(&mut self, host: usize, at: usize, values: &[u8], now: u64) -> Result<(), Violation> {
        let range = at..at + values.len();
        let changes = &self.hosts[host];
        let fit = self.explain(changes, &range, values, None);
        let fit = fit.map_err(|at| self.wrong("read", host, at, values[at - range.start]))?;
        let is_open = |index: &usize| !changes[*index].is_sure();
        let must_fit = |index: &usize| self.explain(changes, &range, values, Some(*index)).is_err();
        let seen: Vec<usize> = (0..changes.len()).filter(is_open).filter(must_fit).collect();
        for index in seen {
            self.hosts[host][index].end = now;
        }
        let mut fit = fit.into_iter();
        self.hosts[host].retain(|_| fit.next().unwrap_or(true));
        Ok(())
    }

    /// Records what was read of all bytes after a restart.
    pub(super) fn observe(&mut self, values: &[u8]) {
        self.seen = Some(values.to_vec());
    }

    /// Checks what was observed. `mark` is when the latest sure survivor of all other requests began. Returns
    /// when the latest of all sure survivors began, and what it is if it is one of these changes.
    pub(super) fn survivors(&self, mark: u64) -> Result<(u64, Option<String>), Violation> {
        let Some(seen) = &self.seen else { return Ok((mark, None)) };
        let (mut mark, mut evidence) = (mark, None);
        // The changes of each host may end before one that is sure, or behind all. If later ones of a host
        // have survived, no fewer of the others have: so the earliest ends that explain everything are
        // searched for.
        let mut ends = [0; BYTE_HOSTS];
        let mut is_later = true;
        while std::mem::take(&mut is_later) {
            for (host, end) in ends.iter_mut().enumerate() {
                let (changes, own) = (&self.hosts[host], &self.owners[host]);
                let seen = &seen[own.clone()];
                let must_survive =
                    |change: &Change| change.is_durable || (change.is_sure() && change.end < mark);
                let least = changes.iter().rposition(must_survive).map_or(0, |last| last + 1);
                let mut wrong = own.start;
                let explains = |end: &usize| {
                    let fit = self.explain(&changes[..*end], own, seen, None);
                    fit.map_err(|at| wrong = at).is_ok()
                };
                let may_end = |end: &usize| changes.get(*end).is_none_or(Change::is_sure);
                let found = (least.max(*end)..=changes.len()).filter(may_end).find(explains);
                *end = found
                    .ok_or_else(|| self.wrong("after the restart", host, wrong, seen[wrong - own.start]))?;
                let changes = &changes[..*end];
                let is_survivor = |index: &usize| {
                    changes[*index].is_sure() || self.explain(changes, own, seen, Some(*index)).is_err()
                };
                if let Some(last) = (0..changes.len()).rev().find(is_survivor)
                    && changes[last].start > mark
                {
                    mark = changes[last].start;
                    evidence = Some(describe(host, &changes[last]));
                    is_later = true;
                }
            }
        }
        Ok((mark, evidence))
    }

    /// Checks that all that was observed is zeros.
    pub(super) fn wiped(&self) -> Result<(), Violation> {
        match self.seen.iter().flatten().position(|value| *value != 0) {
            None => Ok(()),
            Some(at) => Err(Violation(format!("after a wipe: byte {at} of the shared blocks is not zero"))),
        }
    }

    /// Starts over from what was observed.
    pub(super) fn begin_epoch(&mut self) {
        let unknown = self.hosts.iter().any(|changes| !changes.is_empty());
        match self.seen.take() {
            Some(seen) => self.base = seen.into_iter().map(Some).collect(),
            None if unknown => self.base.fill(None),
            None => {}
        }
        self.hosts = Default::default();
    }

    /// Explains the values of `range`: its bytes have the values of the newest changes that cover them, of
    /// all sure changes and some open ones, but not of the one with the number `without`. Returns for each
    /// change whether it may be one of these, or the first byte that nothing explains.
    fn explain(
        &self,
        changes: &[Change],
        range: &Range<usize>,
        values: &[u8],
        without: Option<usize>,
    ) -> Result<Vec<bool>, usize> {
        let mut is_explained = vec![false; range.len()];
        let mut fits = vec![true; changes.len()];
        for (index, change) in changes.iter().enumerate().rev() {
            let part = change.part(range);
            let wrong = part.clone().find(|at| {
                let i = at - range.start;
                !is_explained[i] && values[i] != change.value(*at)
            });
            match wrong {
                Some(at) if change.is_sure() => return Err(at),
                Some(_) => fits[index] = false,
                None if without == Some(index) => {}
                // An open one that fits leaves less to explain.
                None => part.for_each(|at| is_explained[at - range.start] = true),
            }
        }
        let is_base = |at: usize| self.base[at].is_none_or(|base| base == values[at - range.start]);
        match range.clone().find(|at| !is_explained[at - range.start] && !is_base(*at)) {
            Some(at) => Err(at),
            None => Ok(fits),
        }
    }

    fn wrong(&self, what: &str, host: usize, at: usize, value: u8) -> Violation {
        let mut text = format!("{what}: byte {at} of the shared blocks is {value}, and nothing explains it:");
        text += &format!("\n    at first: {:?}", self.base[at]);
        let covers = |change: &&Change| (change.at..change.at + change.values.len()).contains(&at);
        for change in self.hosts[host].iter().filter(covers) {
            text += &format!("\n    {}: {}", describe(host, change), change.value(at));
        }
        Violation(text)
    }
}

fn describe(host: usize, change: &Change) -> String {
    let state = match change {
        Change { is_durable: true, .. } => "durable",
        change if change.is_sure() => "acknowledged or seen",
        _ => "open",
    };
    let end = if change.is_sure() { change.end.to_string() } else { String::new() };
    let last = change.at + change.values.len() - 1;
    format!("change of bytes {}..={last} by host {host} (time {}..{end}, {state})", change.at, change.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts: the first has bytes 0..100, the second all others. A clock that ticks with every event.
    struct Two {
        bytes: Bytes,
        clock: u64,
    }

    impl Two {
        fn new() -> Two {
            let mut bytes = Bytes::default();
            bytes.share(owners_of(&[100]));
            Two { bytes, clock: 0 }
        }

        fn tick(&mut self) -> u64 {
            self.clock += 1;
            self.clock
        }

        fn begin(&mut self, host: usize, at: usize, value: u8) {
            let now = self.tick();
            self.bytes.begin(host, at, vec![value; 10], now);
        }

        fn write(&mut self, host: usize, at: usize, value: u8, is_durable: bool) {
            self.begin(host, at, value);
            let now = self.tick();
            self.bytes.acknowledge(host, now, is_durable);
        }

        fn read(&mut self, at: usize, values: &[u8]) -> Result<(), Violation> {
            let now = self.tick();
            self.bytes.read(0, at, values, now)
        }

        /// Returns whether a crash may leave zeros with this in it.
        fn may_leave(&self, parts: &[(usize, &[u8])]) -> bool {
            self.survivors(parts, 0).is_ok()
        }

        fn survivors(&self, parts: &[(usize, &[u8])], mark: u64) -> Result<u64, Violation> {
            let mut seen = vec![0; SHARED_BYTES];
            for (at, values) in parts {
                seen[*at..*at + values.len()].copy_from_slice(values);
            }
            let mut bytes = self.bytes.clone();
            bytes.observe(&seen);
            bytes.survivors(mark).map(|(mark, _)| mark)
        }
    }

    #[test]
    fn a_read_shows_the_newest_change() {
        let mut two = Two::new();
        two.write(0, 0, 1, false);
        two.write(0, 5, 2, false);
        assert_eq!(two.read(0, &[1, 1, 1, 1, 1, 2, 2]), Ok(()));
        for wrong in [[1, 1, 1, 1, 1, 1, 2], [0, 1, 1, 1, 1, 2, 2], [2; 7]] {
            assert!(two.read(0, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_change_that_was_refused_has_no_effect() {
        let mut two = Two::new();
        two.write(0, 0, 1, false);
        two.begin(0, 0, 2);
        two.bytes.refuse(0);
        assert!(two.read(0, &[2; 10]).is_err());
        assert_eq!(two.read(0, &[1; 10]), Ok(()));
        assert!(!two.may_leave(&[(0, &[2; 10])]));
    }

    #[test]
    fn a_change_that_was_given_up_has_happened_as_a_whole_or_never_does() {
        let mut two = Two::new();
        two.write(0, 0, 1, false);
        two.begin(0, 0, 2);
        assert!(two.read(0, &[1, 1, 1, 1, 1, 2, 2, 2, 2, 2]).is_err(), "torn");
        let mut seen = Two { bytes: two.bytes.clone(), clock: two.clock };
        assert_eq!(seen.read(3, &[2]), Ok(()));
        assert!(seen.read(4, &[1]).is_err(), "it has happened");
        assert_eq!(two.read(3, &[1]), Ok(()));
        assert!(two.read(4, &[2]).is_err(), "it has not");
    }

    #[test]
    fn a_crash_leaves_a_prefix_of_whole_changes() {
        let mut two = Two::new();
        two.write(0, 0, 1, true);
        two.write(0, 20, 2, false);
        two.write(0, 40, 3, false);
        let (one, other, last) = ((0, &[1; 10][..]), (20, &[2; 10][..]), (40, &[3; 10][..]));
        assert!(two.may_leave(&[one]) && two.may_leave(&[one, other]) && two.may_leave(&[one, other, last]));
        assert!(!two.may_leave(&[]), "it was durable");
        assert!(!two.may_leave(&[one, last]), "an earlier one is missing");
        assert!(!two.may_leave(&[one, (20, &[2; 9])]), "torn");
        two.bytes.flushed(two.clock);
        assert!(two.may_leave(&[one, other]), "the last one was acknowledged when the flush began");
        two.bytes.flushed(NEVER);
        assert!(!two.may_leave(&[one, other]) && two.may_leave(&[one, other, last]));
    }

    #[test]
    fn what_was_acknowledged_before_a_survivor_began_survives() {
        let mut two = Two::new();
        two.write(0, 0, 1, false);
        two.write(1, 200, 2, false);
        two.write(0, 20, 3, false);
        let (one, other, last) = ((0, &[1; 10][..]), (200, &[2; 10][..]), (20, &[3; 10][..]));
        assert!(two.may_leave(&[]) && two.may_leave(&[one]) && two.may_leave(&[one, other]));
        assert!(!two.may_leave(&[other]) && !two.may_leave(&[one, last]));
        // The same of other requests, and for them.
        assert_eq!(two.survivors(&[one, other], 0), Ok(3));
        assert!(two.survivors(&[one], 4).is_ok() && two.survivors(&[one], 5).is_err());
    }

    #[test]
    fn an_open_change_that_has_survived_counts_as_a_survivor() {
        let mut two = Two::new();
        two.write(1, 200, 2, false);
        two.begin(0, 0, 1);
        assert!(two.may_leave(&[]) && two.may_leave(&[(200, &[2; 10])]));
        assert!(!two.may_leave(&[(0, &[1; 10])]));
        assert_eq!(two.survivors(&[(0, &[1; 10]), (200, &[2; 10])], 0), Ok(3));
    }

    #[test]
    fn after_a_wipe_all_is_zeros() {
        let mut two = Two::new();
        two.write(0, 0, 1, true);
        two.bytes.observe(&[0; SHARED_BYTES]);
        assert_eq!(two.bytes.wiped(), Ok(()));
        let mut seen = [0; SHARED_BYTES];
        seen[3] = 1;
        two.bytes.observe(&seen);
        assert!(two.bytes.wiped().is_err());
    }
}
