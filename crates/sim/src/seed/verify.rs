//! Comparison of a drive that was just opened with the oracle, and of its errors with the faults of its
//! backing.

use drive::Subject as Part;
use media::{Faults, SimOrder};

use super::{Run, Stop, Wiping};
use crate::content::SECTOR_BYTES;
use crate::doing::Doing;
use crate::excuses::Struck;
use crate::ledger::{BLOCK_BYTES, Ledger};
use crate::oracle::LifeEnd;
use crate::world::blocks_of;
use crate::{Error, Opening, Subject};

/// Bytes read back at a time after a restart.
const READ_BACK_BYTES_MAX: u64 = 256 * 1024;

/// Most attempts to open a drive on which some pages accept no writes.
const OPEN_ERRORS_MAX: u32 = 4;
/// Number of segments that any drive can lose to failed writes and still be opened for writing. For a larger
/// drive, it is an eighth of all segments. The smallest drives have a reserve of twelve segments when they
/// are full: the three heads occupy three and are promised three more, and the map needs two.
const BAD_SEGMENTS_MIN: u64 = 4;

/// Most problems of a check that are printed.
const PROBLEMS_SHOWN_MAX: usize = 6;

impl<S: Subject> Run<S> {
    /// Returns the faults that have struck the backing.
    pub(super) fn struck(&self) -> Struck {
        let mut struck = Struck::of(&self.media, &self.overwrites, &self.before);
        struck.unreadable |= !self.unreadable.is_empty();
        struck
    }

    /// Returns whether durable data was changed on the backing.
    pub(super) fn is_damaged(&self) -> bool {
        self.struck().damaged
    }

    /// Returns whether some pages are permanently unreadable.
    pub(super) fn is_unreadable(&self) -> bool {
        self.struck().unreadable
    }

    /// Stops all faults except lasting ones: a full backing, if it stays full, and bad pages.
    pub(super) fn calm(&mut self) {
        self.media.set_order(SimOrder::Random);
        self.overwrites.set_ppm(0);
        self.media.set_faults(self.faults_at_rest());
    }

    /// Returns the faults that are in effect at any time.
    pub(super) fn faults_at_rest(&self) -> Faults {
        let faults = &self.config.trouble.faults;
        let full_pages = faults.full_pages.filter(|_| self.stays_full);
        Faults { no_discard: faults.no_discard, full_pages, ..Faults::default() }
    }

    /// Makes space on the backing from now on.
    pub(super) fn lift_fullness(&mut self) {
        if std::mem::take(&mut self.stays_full) {
            self.calm();
            self.count("restart: backing no longer full");
        }
    }

    /// Handles an opening that failed. A drive may fail to open because of faults of its backing. Damage may
    /// prevent opening for good, a full backing until it has space, and bad pages for some attempts.
    pub(super) fn open_failed(&mut self, error: &Error, errors: u32) -> Result<(), Stop> {
        let counts = self.media.counts();
        let struck = self.struck();
        if !struck.excuses_opening(error) {
            return Err(Stop::Failed(format!("open failed, and nothing excuses it: {error}")));
        }
        self.count("restart: open failed");
        if errors == 1 {
            // Only lasting faults may make the next opening fail.
            self.calm();
            return Ok(());
        }
        if struck.damaged_beyond_data || struck.unreadable {
            self.count("restart: refused for damage");
            return self.rescue();
        }
        if self.stays_full {
            self.read_while_shut("a full backing")?;
            self.lift_fullness();
            return Ok(());
        }
        if self.media.bad_pages() > 0 && errors < OPEN_ERRORS_MAX {
            return Ok(());
        }
        // Each failed write may have cost a segment, whether or not its page accepts the next one.
        let segments = self.config.physical_bytes / u64::from(self.config.segment_bytes);
        if self.media.bad_pages() as u64 + counts.write_errors > (segments / 8).max(BAD_SEGMENTS_MIN) {
            self.read_while_shut("a backing that takes few writes any more")?;
            return Err(Stop::Refused);
        }
        let well = match self.media.bad_pages() {
            0 => "the backing is well again",
            _ => "all that is wrong with the backing are pages among its segments that take no write",
        };
        Err(Stop::Failed(format!("open still fails although {well}: {error}")))
    }

    /// Checks that a drive that cannot be opened for writing can be opened for reading.
    fn read_while_shut(&mut self, on: &str) -> Result<(), Stop> {
        self.crash();
        let opening = Opening { read_only: true, memory: None, ..self.opening(false) };
        let (media, config) = (self.media.clone(), self.config.clone());
        let open = async move { S::open(media, &config, opening).await };
        let opened = self.do_now("open to read", open)?;
        self.count("restart: opened to be read");
        self.drive = Some(opened.map_err(|error| {
            Stop::Failed(format!("open to read fails on {on}, and nothing excuses it: {error}"))
        })?);
        for (first, count) in self.ranges() {
            match self.read(first, count)? {
                Ok(data) => self.oracle.lock().must_have_been_written(first, &data)?,
                // Data of hosts may be damaged.
                Err(Error::Damaged(_)) if self.is_damaged() => {}
                Err(error) => {
                    let why = format!("read fails on {on}, and nothing excuses it: {error}");
                    return Err(Stop::Failed(why));
                }
            }
        }
        Ok(())
    }

    /// Checks that a damaged drive returns data that may be old, but was written at some time.
    fn rescue(&mut self) -> Result<(), Stop> {
        let opening = self.opening(true);
        let (media, config) = (self.media.clone(), self.config.clone());
        let opened = self.do_now("open for rescue", async move { S::open(media, &config, opening).await })?;
        if let Ok(drive) = opened {
            self.count("restart: opened for rescue");
            self.drive = Some(drive);
            for (first, count) in self.ranges() {
                if let Ok(data) = self.read(first, count)? {
                    self.oracle.lock().must_have_been_written(first, &data)?;
                }
            }
        }
        Err(Stop::Refused)
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        let sectors = READ_BACK_BYTES_MAX / SECTOR_BYTES as u64;
        self.oracle.lock().touched(u64::from(self.config.sector_bytes) / SECTOR_BYTES as u64, sectors)
    }

    /// Reads sectors.
    pub(super) fn read(&mut self, first: u64, count: u64) -> Result<Result<Vec<u8>, Error>, Stop> {
        let Some(drive) = self.drive.clone() else { return Ok(Err(Error::Invalid("not open".into()))) };
        let read = self.do_now("read", async move {
            let mut data = vec![0xee; count as usize * SECTOR_BYTES];
            drive.read(first * SECTOR_BYTES as u64, &mut data).await.map(|()| data)
        })?;
        Ok(read.map(|mut data| {
            if let Some(author) = &self.author {
                author.stamp(first * SECTOR_BYTES as u64 / BLOCK_BYTES, &mut data);
            }
            data
        }))
    }

    /// Passes what hosts of bytes share to the oracle.
    fn observe_bytes(&mut self) -> Result<(), Stop> {
        if !self.config.has_bytes {
            return Ok(());
        }
        let (first, count) = (self.config.shared_offset(), self.config.shared_bytes());
        let sector = SECTOR_BYTES as u64;
        match self.read(first / sector, count / sector)? {
            Ok(values) => self.oracle.lock().observe_bytes(&values),
            Err(error) => self.excuse_at(Doing::ReadBytes, self.config.shared_sectors(), &error)?,
        }
        Ok(())
    }

    /// Reads everything that was ever written and compares it with the oracle.
    pub(super) fn read_back(&mut self, end: LifeEnd) -> Result<(), Stop> {
        let end = if self.is_kept { LifeEnd::Kept } else { end };
        self.calm();
        let deep = self.rng.chance(1, 3);
        self.check(deep)?;
        self.no_segment_is_set_aside_without_cause()?;
        self.observe_all()?;
        match self.wiping.take() {
            None => {
                self.trace(|| format!("resolving after {end:?}"));
                self.oracle.lock().resolve(end)?;
            }
            Some(wiping) => self.resolve_wipe(wiping, end)?,
        }
        self.read_annex()
    }

    /// Checks that a segment is marked as bad only if a write or sync has failed, and not for lack of space,
    /// and as damaged only if a fault has changed or hidden what was written.
    pub(super) fn no_segment_is_set_aside_without_cause(&self) -> Result<(), Stop> {
        let counts = self.media.counts();
        let failed = counts.write_errors + counts.bad_page_errors + counts.sync_errors;
        let bad = self.drive.as_ref().map_or(0, S::bad_segments);
        if bad > 0 && failed == 0 && !self.is_damaged() {
            return Err(Stop::Failed(format!("{bad} segments are bad, and no write has failed")));
        }
        let damaged = self.drive.as_ref().map_or(0, S::damaged_segments);
        let lost_some = self.is_damaged() || self.is_unreadable() || counts.sync_errors > 0;
        if damaged > 0 && !lost_some {
            return Err(Stop::Failed(format!(
                "{damaged} segments are damaged, and no fault has damaged them"
            )));
        }
        Ok(())
    }

    /// Passes everything that was ever written to the oracle.
    pub(super) fn observe_all(&mut self) -> Result<(), Stop> {
        for (first, count) in self.ranges() {
            match self.read(first, count)? {
                Ok(data) => self.oracle.lock().observe(first, count, Some(&data))?,
                Err(_) => self.read_back_by_blocks(first, count)?,
            }
        }
        self.observe_bytes()
    }

    /// Checks that the drive is either wiped or unchanged.
    fn resolve_wipe(&mut self, wiping: Wiping, end: LifeEnd) -> Result<(), Stop> {
        let is_empty = self.drive.as_ref().is_some_and(S::is_empty);
        self.media.begin_log();
        self.trace(|| format!("resolving after a wipe, {wiping:?}: empty is {is_empty}"));
        match (wiping, is_empty) {
            (Wiping::Done, false) => {
                return Err(Stop::Failed("a drive that was wiped is not empty".into()));
            }
            (Wiping::Done, true) => self.count("wipe: done"),
            (Wiping::Cut, true) => self.count("wipe: cut short, drive empty"),
            (Wiping::Cut, false) => self.count("wipe: cut short, drive as it was"),
            (Wiping::Refused, _) => self.count("wipe: refused, drive as it was"),
        }
        let mut oracle = self.oracle.lock();
        if is_empty && wiping != Wiping::Refused {
            self.ledger = Ledger::new(self.config.annex_block());
            self.is_full = false;
            oracle.wiped()?
        } else {
            oracle.resolve(end)?
        }
        Ok(())
    }

    fn read_back_by_blocks(&mut self, first: u64, count: u64) -> Result<(), Stop> {
        let step = 8;
        for at in (first..first + count).step_by(step) {
            let count = (step as u64).min(first + count - at);
            match self.read(at, count)? {
                Ok(data) => self.oracle.lock().observe(at, count, Some(&data))?,
                Err(error) => {
                    self.count("restart: block unreadable");
                    self.excuse_at(Doing::Read, (at, count), &error)?;
                    self.oracle.lock().observe(at, count, None)?;
                }
            }
        }
        Ok(())
    }

    /// Judges an error of a drive without faults in progress. Only lasting faults of the backing excuse it.
    pub(super) fn excuse(&self, doing: Doing, error: &Error) -> Result<(), Stop> {
        if self.struck().excuses_at_rest(doing, error) {
            Ok(())
        } else {
            Err(Stop::Failed(format!("{doing}: nothing excuses this error: {error}")))
        }
    }

    /// The same for a request that needs these sectors and nothing else.
    fn excuse_at(&self, doing: Doing, (first, count): (u64, u64), error: &Error) -> Result<(), Stop> {
        let is_lost = self.lost_blocks.lock().range(blocks_of(first, count)).next().is_some();
        let struck = if is_lost { self.struck() } else { self.struck().sparing(&self.media.counts()) };
        match struck.excuses_at_rest(doing, error) {
            true => Ok(()),
            false => {
                let why = format!("{doing} of ({first}, {count}): nothing excuses this error: {error}");
                Err(Stop::Failed(why))
            }
        }
    }

    pub(super) fn check(&mut self, deep: bool) -> Result<(), Stop> {
        let Some(drive) = self.drive.clone() else { return Ok(()) };
        let problems = self.do_now("check", async move { drive.check(deep).await })?;
        self.count(if deep { "op: check, deep" } else { "op: check" });
        match problems {
            Ok(problems) if problems.is_empty() => Ok(()),
            Ok(problems) => {
                self.count("outcome: check found problems");
                let some: Vec<String> =
                    problems.iter().take(PROBLEMS_SHOWN_MAX).map(ToString::to_string).collect();
                let why = format!("{} problems:\n    {}", problems.len(), some.join("\n    "));
                let struck = self.struck();
                let reads_damage = deep || struck.damaged_beyond_data || struck.unreadable;
                if !reads_damage
                    && let Some(problem) = problems.iter().find(|fault| fault.subject != Part::Log)
                {
                    return Err(Stop::Failed(format!("check: nothing excuses this problem: {problem}")));
                }
                // If the backing cannot be read, the check reports that as a problem.
                let error = if struck.unreadable { Error::Io(why) } else { Error::Damaged(why) };
                self.excuse(Doing::Check, &error)
            }
            Err(error) => self.excuse(Doing::Check, &error),
        }
    }
}
