//! The oracle: the results that a correct drive may return.
//!
//! The oracle watches every operation of every client from outside. For each 512-byte sector it knows which
//! writes cover it, and when each of them began and was acknowledged, on a clock that ticks with every event.
//!
//! **While the drive is up**, a read may return, per sector, any write that has begun and is not over. A
//! write is over once another write that began after it was acknowledged has itself been acknowledged, or
//! been shown to a reader, before the read began. Of several concurrent writes any may win, sector by sector.
//! But once a reader was shown one, no later reader is shown one that was acknowledged before it began.
//!
//! **After a crash** the content must be a prefix of the drive's log: an order of the writes, in which one
//! that was acknowledged before another began comes first, cut off at some point. [`Oracle::resolve`] checks
//! what is read back against that.
//!
//! Trim and write-zeroes are writes of zeros. Writes that returned an error may or may not have happened.
//! Those refused for lack of space must not have happened. A write that its client gave up while it was in
//! progress has happened by then or never will. It may be shown until it is over, and after a crash it is
//! whole if it is present.

pub(crate) mod bytes;
mod order;
mod resolve;

pub use resolve::LifeEnd;

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::content::{Filler, SECTOR_BYTES, Value};
use bytes::{BYTE_HOSTS, Bytes};

/// Largest write that is atomic across a power cut, in bytes.
pub const ATOMIC_BYTES_MAX: u64 = 256 * 1024;

/// Operations on more sectors than this are recorded only for sectors that other operations touch, not for
/// each of their sectors.
const WIDE_SECTORS: u64 = 8192;

/// Number of sectors covered by a leaf of a drive's map.
const LEAF_SECTORS: u64 = (2 << 20) / SECTOR_BYTES as u64;

/// End of an operation that was not acknowledged.
const NEVER: u64 = u64::MAX;

/// A violated guarantee, with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// Kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data.
    Write,
    /// Zeros by TRIM.
    Trim,
    /// Zeros by WRITE ZEROES.
    Zeroes,
}

/// Outcome of a write for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    InFlight,
    Acknowledged,
    /// Acknowledged, and covered by a flush or FUA.
    Durable,
    /// Refused for lack of space: it has no effect.
    Refused,
    /// Returned another error. It may still take effect while it has no end.
    Failed,
    /// Given up by its client.
    GivenUp,
}

/// A write of any kind, as observed by the oracle.
#[derive(Clone, Debug)]
struct Write {
    kind: Kind,
    first: u64,
    count: u64,
    value: Value,
    start: u64,
    /// When it was acknowledged, or can take effect no more.
    end: u64,
    outcome: Outcome,
    was_shown: bool,
}

impl Write {
    fn sectors(&self) -> Range<u64> {
        self.first..self.first + self.count
    }

    fn is_acknowledged(&self) -> bool {
        matches!(self.outcome, Outcome::Acknowledged | Outcome::Durable)
    }

    fn is_durable(&self) -> bool {
        self.outcome == Outcome::Durable
    }

    fn is_refused(&self) -> bool {
        self.outcome == Outcome::Refused
    }

    fn is_atomic(&self) -> bool {
        self.count * SECTOR_BYTES as u64 <= ATOMIC_BYTES_MAX
    }

    fn is_wide(&self) -> bool {
        self.count > WIDE_SECTORS
    }
}

/// Content of a sector that was read back after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Nothing,
    Unreadable,
    Value(Value),
}

#[derive(Clone)]
struct Sector {
    /// Content when the drive was last opened.
    base: Value,
    /// Other possible contents at that time, if the sector could not be read.
    or_base: Vec<Value>,
    /// Later writes that cover it, in the order in which they began.
    writes: Vec<u32>,
    /// Writes acknowledged before this time are over.
    floor: u64,
    /// The write last shown to a reader, and the time.
    shown: Option<(u32, u64)>,
    seen: Seen,
    /// Latest end of a write that may have left the value seen. 0 if there is none.
    seen_until: u64,
}

impl Sector {
    fn held(&self, value: Value) -> bool {
        self.base == value || self.or_base.contains(&value)
    }
}

/// A read that has begun.
pub struct Reading {
    first: u64,
    start: u64,
    floors: Vec<u64>,
}

impl Reading {
    /// Returns the part of this read for some of its sectors.
    pub fn part(&self, first: u64, count: u64) -> Reading {
        let from = (first - self.first) as usize;
        Reading { first, start: self.start, floors: self.floors[from..from + count as usize].to_vec() }
    }
}

/// The oracle; see the module documentation.
#[derive(Clone, Default)]
pub struct Oracle {
    clock: u64,
    writes: Vec<Write>,
    /// Number of the first write since the drive was last opened.
    epoch: u32,
    sectors: FxHashMap<u64, Sector>,
    /// Wide writes of this epoch.
    wide: Vec<u32>,
    /// Pairs of concurrent writes whose order a reader has observed.
    before: FxHashSet<(u32, u32)>,
    /// Of hosts that know no sectors.
    bytes: Bytes,
}

impl Oracle {
    /// Creates an oracle for an empty drive.
    pub fn new() -> Oracle {
        Oracle::default()
    }

    /// Number of the next write, for its stamps.
    pub fn next_write(&self) -> u32 {
        self.writes.len() as u32
    }

    /// Begins a write. Returns its number, which is that of [`Oracle::next_write`].
    pub fn begin_write(&mut self, kind: Kind, first: u64, count: u64, filler: Filler) -> u32 {
        let number = self.next_write();
        let value = if kind == Kind::Write { Value::of(number, filler) } else { Value::ZERO };
        let write = Write {
            kind,
            first,
            count,
            value,
            start: self.tick(),
            end: NEVER,
            outcome: Outcome::InFlight,
            was_shown: false,
        };
        if write.is_wide() {
            let range = write.sectors();
            self.sectors
                .iter_mut()
                .filter(|(at, _)| range.contains(at))
                .for_each(|(_, s)| s.writes.push(number));
            self.wide.push(number);
        } else {
            for at in write.sectors() {
                self.touch(at).writes.push(number);
            }
        }
        self.writes.push(write);
        number
    }

    /// Records that the write was acknowledged, as durable or not.
    pub fn acknowledge(&mut self, number: u32, durable: bool) {
        let end = self.tick();
        let write = &mut self.writes[number as usize];
        write.end = end;
        write.outcome = if durable { Outcome::Durable } else { Outcome::Acknowledged };
        let (range, start) = (write.sectors(), write.start);
        self.for_each_sector(range, |sector| sector.floor = sector.floor.max(start));
    }

    /// Records that the write was refused for lack of space: it must not have changed anything.
    pub fn refuse(&mut self, number: u32) -> Result<(), Violation> {
        self.tick();
        self.writes[number as usize].outcome = Outcome::Refused;
        if self.writes[number as usize].was_shown {
            return Err(Violation(format!(
                "{} was refused, but a reader has seen it",
                self.describe(number)
            )));
        }
        Ok(())
    }

    /// Returns whether the write is so large that only a part of it may take effect.
    pub fn is_divided(&self, number: u32) -> bool {
        !self.writes[number as usize].is_atomic()
    }

    /// Records that the write failed. It may or may not have taken effect, possibly in part if it is large.
    pub fn fail(&mut self, number: u32) {
        self.tick();
        self.writes[number as usize].outcome = Outcome::Failed;
    }

    /// Records that the client gave the write up. It has taken effect by now, possibly in part if it is
    /// large, or never will.
    pub fn drop_write(&mut self, number: u32) {
        let end = self.tick();
        let write = &mut self.writes[number as usize];
        write.end = end;
        if write.outcome == Outcome::InFlight {
            write.outcome = Outcome::GivenUp;
        }
    }

    /// Records that a write that failed takes effect no more: it has by now, or never will.
    pub fn settle(&mut self, number: u32) {
        if self.writes[number as usize].outcome == Outcome::Failed {
            self.drop_write(number);
        }
    }

    /// Begins a flush. Returns the argument for [`Oracle::end_flush`].
    pub fn begin_flush(&mut self) -> u64 {
        self.tick()
    }

    /// Records that the flush that began at `began` succeeded: everything acknowledged before is durable.
    pub fn end_flush(&mut self, began: u64) {
        let epoch = self.epoch as usize;
        let covered = |w: &&mut Write| w.end < began && w.is_acknowledged();
        self.writes[epoch..].iter_mut().filter(covered).for_each(|w| w.outcome = Outcome::Durable);
        self.bytes.flushed(began);
    }

    /// Begins a life in which hosts share bytes.
    pub(crate) fn share_bytes(&mut self, owners: [Range<usize>; BYTE_HOSTS]) {
        self.bytes.share(owners);
    }

    /// Begins a change of bytes.
    pub(crate) fn begin_bytes(&mut self, host: usize, at: usize, values: Vec<u8>) {
        let start = self.tick();
        self.bytes.begin(host, at, values, start);
    }

    /// Records that the host's newest change was acknowledged, as durable or not.
    pub(crate) fn acknowledge_bytes(&mut self, host: usize, durable: bool) {
        let end = self.tick();
        self.bytes.acknowledge(host, end, durable);
    }

    /// Records that the host's newest change was refused for lack of space: it must not have changed
    /// anything.
    pub(crate) fn refuse_bytes(&mut self, host: usize) {
        self.bytes.refuse(host);
    }

    /// Checks bytes that a host has read, its own.
    pub(crate) fn read_bytes(&mut self, host: usize, at: usize, values: &[u8]) -> Result<(), Violation> {
        let now = self.tick();
        self.bytes.read(host, at, values, now)
    }

    /// Records what a restarted drive returned of all bytes that hosts share.
    pub(crate) fn observe_bytes(&mut self, values: &[u8]) {
        self.bytes.observe(values);
    }

    /// Begins a read.
    pub fn begin_read(&mut self, first: u64, count: u64) -> Reading {
        let start = self.tick();
        let floor = |at| self.sectors.get(&at).map_or(0, |sector| sector.floor);
        Reading { first, start, floors: (first..first + count).map(floor).collect() }
    }

    /// Checks the data that a read returned.
    pub fn end_read(&mut self, reading: &Reading, data: &[u8]) -> Result<(), Violation> {
        let now = self.tick();
        for (at, (bytes, floor)) in
            (reading.first..).zip(data.chunks_exact(SECTOR_BYTES).zip(&reading.floors))
        {
            self.show(at, Value::identify(at, bytes), reading.start, *floor, now)?;
        }
        Ok(())
    }

    fn show(&mut self, at: u64, value: Value, start: u64, floor: u64, now: u64) -> Result<(), Violation> {
        let writes = &mut self.writes;
        let Some(sector) = self.sectors.get_mut(&at) else {
            return self.must_be_untouched(at, value);
        };
        let mut shown = None;
        let mut candidates = usize::from(floor == 0 && sector.held(value));
        let mut oldest = if candidates == 0 { NEVER } else { 0 };
        for &number in &sector.writes {
            let write = &writes[number as usize];
            if write.value == value && !write.is_refused() && write.end >= floor {
                candidates += 1;
                oldest = oldest.min(write.start);
                shown = Some(number);
            }
        }
        if candidates == 0 {
            return Err(self.explain("read", at, value));
        }
        sector.floor = sector.floor.max(oldest);
        if let (Some(shown), 1) = (shown, candidates) {
            writes[shown as usize].was_shown = true;
            let shown_start = writes[shown as usize].start;
            // Everything that was acknowledged or shown before the read began, and is not shown now, came
            // earlier.
            let over = sector.writes.iter().copied().filter(|&w| writes[w as usize].end < start);
            let over = over.chain(sector.shown.filter(|&(_, when)| when < start).map(|(w, _)| w));
            for other in over {
                let concurrent = writes[other as usize].end >= shown_start;
                if other != shown && concurrent && !writes[other as usize].is_refused() {
                    self.before.insert((other, shown));
                }
            }
            sector.shown = Some((shown, now));
        }
        Ok(())
    }

    fn must_be_untouched(&self, at: u64, value: Value) -> Result<(), Violation> {
        if value == Value::ZERO { Ok(()) } else { Err(self.explain("read", at, value)) }
    }

    /// Checks data of a rescued drive: it may be old, but must have been written there at some time.
    pub fn must_have_been_written(&self, first: u64, data: &[u8]) -> Result<(), Violation> {
        for (at, bytes) in (first..).zip(data.chunks_exact(SECTOR_BYTES)) {
            let value = Value::identify(at, bytes);
            let covers = |write: &Write| write.value == value && write.sectors().contains(&at);
            if value != Value::ZERO && !self.writes.iter().any(covers) {
                return Err(self.explain("after a rescue", at, value));
            }
        }
        Ok(())
    }

    /// Returns the sectors that were ever written, as ranges of up to `count_max` sectors that begin at
    /// multiples of `align`.
    pub fn touched(&self, align: u64, count_max: u64) -> Vec<(u64, u64)> {
        let mut blocks: Vec<u64> = self.sectors.keys().map(|at| at / align * align).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for at in blocks {
            match ranges.last_mut() {
                Some((first, count)) if *first + *count == at && *count + align <= count_max => {
                    *count += align
                }
                _ => ranges.push((at, align)),
            }
        }
        ranges
    }

    /// Bytes of the drive that may hold data now, counted in blocks of 4 KiB.
    pub fn live_bytes_max(&self) -> u64 {
        let zero = |sector: &Sector| {
            sector.base == Value::ZERO
                && sector.or_base.is_empty()
                && sector.writes.iter().all(|&w| self.writes[w as usize].value == Value::ZERO)
        };
        let live = self.sectors.iter().filter(|(_, sector)| !zero(sector));
        live.map(|(at, _)| at / 8).collect::<FxHashSet<u64>>().len() as u64 * 4096
    }

    /// Number of aligned ranges of 2 MiB that were ever written to.
    pub fn leaves(&self) -> u64 {
        let leaves: FxHashSet<u64> = self.sectors.keys().map(|at| at / LEAF_SECTORS).collect();
        leaves.len() as u64
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn touch(&mut self, at: u64) -> &mut Sector {
        let Oracle { sectors, wide, writes, .. } = self;
        sectors.entry(at).or_insert_with(|| Sector {
            base: Value::ZERO,
            or_base: Vec::new(),
            writes: wide.iter().copied().filter(|&w| writes[w as usize].sectors().contains(&at)).collect(),
            floor: 0,
            shown: None,
            seen: Seen::Nothing,
            seen_until: 0,
        })
    }

    fn for_each_sector(&mut self, range: Range<u64>, mut visit: impl FnMut(&mut Sector)) {
        if range.end - range.start > WIDE_SECTORS {
            self.sectors
                .iter_mut()
                .filter(|(at, _)| range.contains(at))
                .for_each(|(_, sector)| visit(sector));
        } else {
            range.for_each(|at| self.sectors.get_mut(&at).into_iter().for_each(&mut visit));
        }
    }

    fn describe(&self, number: u32) -> String {
        let Some(w) = self.writes.get(number as usize) else { return format!("write {number}, never begun") };
        let state = match w.outcome {
            Outcome::InFlight => "in flight",
            Outcome::Acknowledged => "acknowledged",
            Outcome::Durable => "durable",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
            Outcome::GivenUp => "given up",
        };
        let end = if w.end == NEVER { String::new() } else { w.end.to_string() };
        let age = if number < self.epoch { ", before the last restart" } else { "" };
        let last = w.first + w.count - 1;
        format!(
            "{:?} #{number} (sectors {}..={last}, time {}..{end}, {state}{age})",
            w.kind, w.first, w.start
        )
    }

    fn describe_value(&self, value: Value) -> String {
        match value {
            Value::Fill(0) => "zeros".into(),
            Value::Fill(word) => format!("fill {word:#018x}"),
            Value::Stamp(write) => self.describe(write),
            Value::Misplaced(write, from) => format!("sector {from} of {}", self.describe(write)),
            Value::Garbage => "something that was never written".into(),
        }
    }

    fn explain(&self, what: &str, at: u64, value: Value) -> Violation {
        let mut text = format!("{what}: sector {at} holds {}; allowed were:", self.describe_value(value));
        match self.sectors.get(&at) {
            None => text.push_str(" zeros (never written)"),
            Some(sector) => {
                for base in std::iter::once(&sector.base).chain(&sector.or_base) {
                    text += &format!("\n    at the last restart: {}", self.describe_value(*base));
                }
                for &write in sector.writes.iter().rev().take(12) {
                    text += &format!("\n    or, if not over: {}", self.describe(write));
                }
                text += &format!("\n    (what ended before time {} is over)", sector.floor);
            }
        }
        Violation(text)
    }
}
