//! Check after a crash: the content read back must be a prefix of the log of writes.

use rustc_hash::FxHashSet;

use super::{NEVER, Oracle, Outcome, Sector, Seen, Violation, Write};
use crate::content::{SECTOR_BYTES, Value};

/// End of the drive's last life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEnd {
    /// A power cut or a kill: writes that were not durable may be lost.
    Crash,
    /// The drive was closed: everything acknowledged must be present.
    Closed,
    /// The process was killed, and the memory of its run was kept: everything acknowledged must be present.
    Kept,
}

/// Writes that have certainly survived.
struct Survivors {
    /// Latest start of these writes.
    mark: u64,
    /// Those that are atomic and visible.
    visible: FxHashSet<u32>,
    /// The latest of them, for messages.
    evidence: String,
}

impl Oracle {
    /// Records what a restarted drive returned at `first`. `None`: an error.
    pub fn observe(&mut self, first: u64, count: u64, data: Option<&[u8]>) -> Result<(), Violation> {
        for index in 0..count {
            let at = first + index;
            let seen = data.map_or(Seen::Unreadable, |data| {
                let from = index as usize * SECTOR_BYTES;
                Seen::Value(Value::identify(at, &data[from..from + SECTOR_BYTES]))
            });
            match (self.sectors.get_mut(&at), seen) {
                (Some(sector), _) => sector.seen = seen,
                (None, Seen::Value(value)) => self.must_be_untouched(at, value)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Checks the content of every touched sector, as recorded by [`Oracle::observe`], and starts a new epoch
    /// from it. From then on, content that was shown is durable, and content that was not shown is gone.
    ///
    /// Some prefix of the log must explain all content:
    ///
    /// - Each sector holds a write that covers it, and that was neither refused nor gone before the last
    ///   restart.
    /// - Everything acknowledged before any surviving or durable write began has survived.
    /// - Every durable write has survived as a whole, and so has every atomic write of which a sector
    ///   survived.
    /// - The order in which writes replaced each other has no contradictions.
    ///
    /// A write has survived if each of its sectors holds it, or a write that is not required to come before
    /// it.
    pub fn resolve(&mut self, end: LifeEnd) -> Result<(), Violation> {
        if end != LifeEnd::Crash {
            let acknowledged = |w: &&mut Write| w.is_acknowledged();
            self.epoch_mut().iter_mut().filter(acknowledged).for_each(|w| w.outcome = Outcome::Durable);
            self.bytes.flushed(NEVER);
        }
        self.note_ends();
        let Survivors { mark, visible, evidence } = self.survivors()?;
        let (mark, of_bytes) = self.bytes.survivors(mark).map_err(|mut violation| {
            violation.0 += &format!("\n    The latest sure survivor of other requests: {evidence}");
            violation
        })?;
        let evidence = of_bytes.unwrap_or(evidence);
        let numbers = self.epoch..self.next_write();
        let required = |number: &u32| {
            let write = &self.writes[*number as usize];
            let is_sure = write.is_durable() || (write.end < mark && write.is_acknowledged());
            !write.is_refused() && (is_sure || visible.contains(number))
        };
        let required: FxHashSet<u32> = numbers.filter(required).collect();
        let mut in_order: Vec<u32> = required.iter().copied().collect();
        in_order.sort_unstable();
        for number in in_order {
            self.must_have_survived(number, visible.contains(&number)).map_err(|mut violation| {
                violation.0 += &format!("\n    The latest sure survivor: {evidence}");
                violation
            })?;
        }
        self.must_be_orderable(&required)?;
        self.begin_epoch();
        Ok(())
    }

    /// Checks that everything recorded by [`Oracle::observe`] is zeros after a wipe, and starts a new epoch.
    pub fn wiped(&mut self) -> Result<(), Violation> {
        let left = self.sectors.iter().filter_map(|(&at, sector)| match sector.seen {
            Seen::Value(Value::ZERO) => None,
            Seen::Value(value) => Some((at, Some(value))),
            Seen::Nothing | Seen::Unreadable => Some((at, None)),
        });
        if let Some((at, value)) = left.min_by_key(|(at, _)| *at) {
            let holds = value.map_or("something unreadable".into(), |value| self.describe_value(value));
            return Err(Violation(format!("after a wipe: sector {at} holds {holds}")));
        }
        self.bytes.wiped()?;
        self.begin_epoch();
        Ok(())
    }

    fn epoch_mut(&mut self) -> &mut [Write] {
        &mut self.writes[self.epoch as usize..]
    }

    /// Returns the writes that may have left this value. A first element `None` is the content from before
    /// the epoch.
    pub(super) fn candidates<'a>(
        &'a self,
        sector: &'a Sector,
        value: Value,
    ) -> impl Iterator<Item = Option<u32>> + 'a {
        let base = sector.held(value).then_some(None);
        let fits = move |number: &u32| {
            let write = &self.writes[*number as usize];
            write.value == value && !write.is_refused()
        };
        base.into_iter().chain(sector.writes.iter().copied().filter(fits).map(Some))
    }

    /// Returns the write that left this value, if only one is possible.
    pub(super) fn only_candidate(&self, sector: &Sector, value: Value) -> Option<u32> {
        let mut candidates = self.candidates(sector, value);
        let only = candidates.next()??;
        candidates.next().is_none().then_some(only)
    }

    /// Determines for each sector the latest time at which the content seen may have been written.
    fn note_ends(&mut self) {
        for sector in self.sectors.values_mut() {
            let Seen::Value(value) = sector.seen else { continue };
            let writes = sector.writes.iter().map(|&number| &self.writes[number as usize]);
            let fits = writes.filter(|write| write.value == value && !write.is_refused());
            sector.seen_until = fits.map(|write| write.end).max().unwrap_or(0);
        }
    }

    fn survivors(&self) -> Result<Survivors, Violation> {
        let durable =
            (self.epoch..self.next_write()).filter(|&number| self.writes[number as usize].is_durable());
        let last_durable = durable.max_by_key(|&number| self.writes[number as usize].start);
        let mut mark = last_durable.map_or(0, |number| self.writes[number as usize].start);
        let mut evidence = last_durable.map_or("none".into(), |number| self.describe(number));
        let mut visible = FxHashSet::default();
        let mut sorted: Vec<_> = self.sectors.iter().collect();
        sorted.sort_unstable_by_key(|(at, _)| **at);
        for (&at, sector) in sorted {
            let value = match sector.seen {
                Seen::Value(value) => value,
                Seen::Unreadable => continue,
                Seen::Nothing => return Err(Violation(format!("sector {at} was not read back"))),
            };
            let start = |c: Option<u32>| c.map_or(0, |number| self.writes[number as usize].start);
            let Some(oldest) = self.candidates(sector, value).map(start).min() else {
                return Err(self.explain("after the restart", at, value));
            };
            if oldest > mark {
                mark = oldest;
                evidence = format!("sector {at} holds {}", self.describe_value(value));
            }
            if let Some(only) = self.only_candidate(sector, value)
                && self.writes[only as usize].is_atomic()
            {
                visible.insert(only);
            }
        }
        Ok(Survivors { mark, visible, evidence })
    }

    fn must_have_survived(&self, number: u32, is_visible: bool) -> Result<(), Violation> {
        let write = &self.writes[number as usize];
        let range = write.sectors();
        if write.is_wide() {
            let mut inside: Vec<u64> = self.sectors.keys().copied().filter(|at| range.contains(at)).collect();
            inside.sort_unstable();
            inside.into_iter().try_for_each(|at| self.must_show(number, at, is_visible))
        } else {
            range.into_iter().try_for_each(|at| self.must_show(number, at, is_visible))
        }
    }

    fn must_show(&self, number: u32, at: u64, is_visible: bool) -> Result<(), Violation> {
        let write = &self.writes[number as usize];
        let Some(sector) = self.sectors.get(&at) else { return Ok(()) };
        let Seen::Value(value) = sector.seen else { return Ok(()) };
        // The sector holds the write, or one that is not required to come before it.
        if sector.seen_until >= write.start {
            return Ok(());
        }
        let broken = match (write.is_durable(), is_visible) {
            (true, _) => "a durable write was lost",
            (false, true) => "an atomic write was torn",
            (false, false) => "a write was lost that was acknowledged before a surviving one began",
        };
        let what = format!("after the restart, {broken}: {}", self.describe(number));
        Err(self.explain(&what, at, value))
    }

    /// Starts an epoch with the content that was read back.
    fn begin_epoch(&mut self) {
        let mut sectors = std::mem::take(&mut self.sectors);
        for sector in sectors.values_mut() {
            match sector.seen {
                Seen::Value(value) => {
                    sector.base = value;
                    sector.or_base.clear();
                }
                Seen::Unreadable | Seen::Nothing => {
                    let writes = sector.writes.iter().map(|&number| &self.writes[number as usize]);
                    sector.or_base.extend(writes.filter(|w| !w.is_refused()).map(|w| w.value));
                }
            }
            sector.writes.clear();
            sector.floor = 0;
            sector.shown = None;
            sector.seen = Seen::Nothing;
        }
        self.sectors = sectors;
        self.epoch = self.next_write();
        self.wide.clear();
        self.before.clear();
        self.bytes.begin_epoch();
    }
}
