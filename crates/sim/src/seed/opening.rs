//! Creation, opening and wiping of the drive, with crashes in the middle.

use layout::checkpoint::EARLIER_RUNS;
use layout::superblock::SUPERBLOCK_COPIES;
use layout::{Geometry, PAGE_BYTES, Superblock};
use media::{IoBuf, Media};

use super::{Run, Stop, Wiping};
use crate::executor::{Cut, End, NoPulse};
use crate::{Error, Opening, Style, Subject, panics};

/// Most steps of a wipe before its power cut: about as many as a wipe takes.
const WIPE_STEPS: u64 = 72;
/// A panic strikes at an entry below two to this power.
const PANIC_ENTRIES_BITS: u64 = 12;
/// Most crashes in a row during recovery.
const OPEN_CUTS_MAX: u32 = 3;

impl<S: Subject> Run<S> {
    pub(super) fn create(&mut self) -> Result<(), Stop> {
        let (media, config) = (self.media.clone(), self.config.clone());
        let result = self.do_now("create", async move { S::create(&media, &config).await })?;
        result.map_err(|error| Stop::Failed(format!("create failed: {error}")))?;
        if let Some(bad_copy) = self.config.trouble.bad_copy {
            let media = self.media.clone();
            let read = async move { media.read(0, IoBuf::zeroed(PAGE_BYTES)).await };
            let (page, result) = self.do_now("read the superblock", read)?;
            let byte = result.ok().and_then(|()| bad_copy.byte(&page));
            self.media.make_copy_bad(byte.ok_or_else(|| Stop::Failed("no superblock was made".into()))?);
            self.count("backing: a copy takes no write");
        }
        if self.rng.chance(1, 2) {
            self.crash();
        }
        Ok(())
    }

    pub(super) fn opening(&mut self, rescue: bool) -> Opening {
        Opening {
            entropy: self.rng.next_u64(),
            read_only: false,
            rescue,
            frame_blocks: self.config.draw_frame_blocks(&mut self.rng),
            may_offload: self.config.style != Style::Large,
            left_open: self.left_open,
            may_panic: self.config.panics(),
            spawner: self.executor.spawner(),
            overwrites: self.overwrites.clone(),
            memory: self.new_memory(),
            left_memories: self.left_memories.iter().cloned().chain(self.stray.back()).collect(),
            bug: self.bug,
        }
    }

    /// Draws the entry of the engine at which a panic strikes. One in `one_in` calls gives one, in seeds with
    /// panics.
    pub(super) fn draw_panic(&mut self, one_in: u64) -> Option<u64> {
        (self.config.panics() && self.rng.chance(1, one_in)).then(|| self.rng.skewed(PANIC_ENTRIES_BITS))
    }

    /// Opens the drive, with crashes in the middle and transient errors.
    pub(super) fn open(&mut self) -> Result<(), Stop> {
        let mut cuts = 0;
        let mut errors = 0;
        self.perhaps_lose_start()?;
        self.perhaps_lose_pages()?;
        loop {
            self.perhaps_look()?;
            let hidden = self.hide_copies()?;
            let cut = if cuts < OPEN_CUTS_MAX { self.draw_early_cut() } else { Cut::Never };
            let opening = self.opening(false);
            self.left_open = true;
            let (media, config) = (self.media.clone(), self.config.clone());
            let open = async move { S::open(media, &config, opening).await };
            panics::arm(self.draw_panic(4));
            let opened = self.executor.block_on(&self.media, &NoPulse, cut, open);
            panics::arm(None);
            self.must_not_overlap()?;
            self.media.hide(&self.unreadable);
            match opened {
                Ok(Err(Error::Io(_))) if hidden => {
                    self.count("restart: refused, copies cannot be read just now");
                    self.crash();
                }
                Ok(Err(Error::LeftMemory(why))) => {
                    self.trace(|| format!("the memory is refused: {why}"));
                    self.memory_refused(&why)?;
                    self.crash();
                }
                Ok(Err(error)) if self.end_is_in_doubt(&error, hidden) => {
                    self.trace(|| format!("open refused: {error}"));
                    self.bring_back_start()?;
                    self.crash();
                }
                Ok(Ok(drive)) => {
                    self.lost_start = None;
                    self.left_memories.clear();
                    self.stray.comes_back();
                    self.was_open = true;
                    if hidden {
                        self.count("restart: opened by other copies");
                    }
                    self.trace(|| "opened".into());
                    self.count_recovery(&drive);
                    self.count("restart: opened");
                    let struck = self.struck();
                    if struck.damaged_beyond_data {
                        self.count("restart: opened, more than data of hosts is damaged");
                    } else if struck.damaged {
                        self.count("restart: opened, only data of hosts is damaged");
                    }
                    self.counted = drive.counters();
                    self.must_continue(&drive)?;
                    self.drive = Some(drive);
                    return Ok(());
                }
                Ok(Err(error)) if self.end_is_unreadable(&error)? => {
                    self.count("restart: refused, the log may go on in a page that was lost");
                    self.crash();
                }
                Ok(Err(error)) => {
                    self.trace(|| format!("open failed: {error}"));
                    errors += 1;
                    self.open_failed(&error, errors)?;
                    self.crash();
                }
                Err(End::Cut) => {
                    cuts += 1;
                    self.count("restart: crashed during recovery");
                    self.count_cut(cut);
                    self.crash();
                }
                Err(End::Panicked) => {
                    self.count("restart: panic during recovery");
                    self.crash();
                }
                Err(end) => return Err(Stop::Failed(format!("open never returns: {end:?}"))),
            }
        }
    }

    /// Makes some copies of superblock and checkpoints unreadable for the next opening, in some cases.
    /// Returns whether it did.
    fn hide_copies(&mut self) -> Result<bool, Stop> {
        const ONE_IN: u64 = 12;
        if !self.hiding.chance(1, ONE_IN) {
            return Ok(false);
        }
        let mut copies: Vec<u64> = (0..SUPERBLOCK_COPIES).map(Geometry::superblock_offset).collect();
        for offset in copies.clone() {
            let media = self.media.clone();
            let read = async move { media.read(offset, IoBuf::zeroed(PAGE_BYTES)).await };
            let (page, _) = self.do_now("read a superblock", read)?;
            if let Ok(superblock) = Superblock::decode(&page) {
                let geometry = superblock.geometry;
                copies.truncate(SUPERBLOCK_COPIES);
                copies.extend([0, 1].into_iter().flat_map(|slot| geometry.checkpoint_places(slot)));
                copies.extend(geometry.far.map(Geometry::far_superblock_offset));
            }
        }
        if copies.len() == SUPERBLOCK_COPIES {
            // No superblock could be decoded, so the checkpoints cannot be located.
            return Ok(false);
        }
        copies.retain(|_| self.hiding.chance(1, 2));
        let hidden = !copies.is_empty();
        copies.extend(&self.unreadable);
        self.media.hide(&copies);
        Ok(hidden)
    }

    /// Fails if the drive is not one that the last opening for writing had, and notes this one. An id is
    /// inverted if that opening lost something with its memory.
    fn must_continue(&mut self, drive: &S) -> Result<(), Stop> {
        let (count, ids) = drive.openings();
        let Some(newest) = ids.first() else { return Ok(()) };
        if let Some((last, id)) = self.last_opening {
            let since = count.checked_sub(last).map(|since| since as usize);
            if since.is_none_or(|since| {
                since == 0
                    || since <= EARLIER_RUNS
                        && ids.get(since).is_none_or(|known| *known != id && *known != !id)
            }) {
                return Err(Stop::Failed(format!(
                    "opening {count} does not follow opening {last}, {id:016x}: {ids:x?}"
                )));
            }
        }
        self.last_opening = Some((count, *newest));
        Ok(())
    }

    /// Wipes the drive, which is not open, or cuts the power in the middle.
    pub(super) fn wipe(&mut self) -> Result<(), Stop> {
        let cut = if self.rng.chance(3, 4) { Cut::After(self.rng.below(WIPE_STEPS)) } else { Cut::Never };
        let media = self.media.clone();
        let wiped = self.executor.block_on(&self.media, &NoPulse, cut, S::wipe(media));
        self.must_not_overlap()?;
        let wiping = match wiped {
            Ok(Ok(())) => Wiping::Done,
            Ok(Err(Error::Io(_))) if self.config.is_faulty() => Wiping::Refused,
            Ok(Err(error)) => return Err(Stop::Failed(format!("a wipe failed: {error}"))),
            Err(End::Cut) => Wiping::Cut,
            Err(end) => return Err(Stop::Failed(format!("a wipe never returns: {end:?}"))),
        };
        self.trace(|| format!("wipe: {wiping:?}"));
        self.wiping = Some(wiping);
        self.last_opening = None;
        self.crash();
        Ok(())
    }

    /// Counts what the recovery did. At first these are the only counts; counters of the drive that only grow
    /// count from here.
    fn count_recovery(&self, drive: &S) {
        let mut counts = self.counts.lock();
        for (name, times) in drive.recovered() {
            counts.add(name, times);
        }
    }

    /// Draws the moment of a crash during recovery, if there is one.
    fn draw_early_cut(&mut self) -> Cut {
        match self.rng.below(16) {
            0..2 => Cut::After(self.rng.skewed(9)),
            2..4 => Cut::InSync(0, self.rng.skewed(5)),
            4..6 => Cut::AtSlot(0, self.rng.skewed(6)),
            6 => Cut::AfterSlot(0, self.rng.skewed(5)),
            _ => Cut::Never,
        }
    }
}
