//! Opening: the newest checkpoint, and the log after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use layout::checkpoint::COUNT_MAX;
use layout::{Checkpoint, Counters, Superblock};
use media::{Arena, Media};

use crate::error::Error;
use crate::medium::load::Bounds;
use crate::medium::write_out::bad_segments_max;
use crate::open::far::{must_be_here, note_of};
use crate::open::left_memory::{Found, LeftMemory, LeftPacks, WithMemory, header_of};
use crate::open::lost_end::lost_end;
use crate::open::replay::{DamagedPack, LoggedChange, MendedPack, PackPlace, Proven, Reader, Tail};
use crate::open::rewrite::{Doubted, NotTaken, Rewritten, rewrite};
use crate::open::slots::{NewestCheckpoint, find_successor, must_allow_writing, must_hold, read_checkpoint};
use crate::open::superblocks::{FoundSuperblock, find_superblock, other_superblocks, read_superblock};
use crate::options::OpenOptions;
use crate::planted::{Planted, PlantedBug};
use crate::shared::{Drive, Run, Shared};
use crate::state::checkpoints::Checkpoints;
use crate::state::core::Core;
use crate::state::log::{Log, MEMORY_SHAPE};
use crate::state::lost::Lost;
use crate::state::lull::Lull;
use crate::state::map::Map;
use crate::state::map_shrink::MapShrink;
use crate::state::mode::Mode;
use crate::state::policy::policy_of;
use crate::state::segments::{SegmentState, Segments};
use crate::state::table::{COPIES, Table};
use crate::upkeep::checkpoint::overlay_extra;
use device::ReadOnly;

impl<M: Media> Drive<M> {
    /// Returns the id of the drive on `media`.
    ///
    /// # Errors
    ///
    /// [`Error::NotADrive`] if there is none, [`Error::Io`] if its superblock cannot be read.
    pub async fn read_id(media: &M) -> Result<[u8; 16], Error> {
        Ok(read_superblock(media).await?.0.uuid)
    }

    /// Opens a drive, and recovers from a crash if there was one.
    ///
    /// # Errors
    ///
    /// [`Error::NotADrive`] if there is none, [`Error::Damaged`] if something that was durable is missing
    /// from the log (see [`OpenOptions::accept_damage`]), [`Error::Corrupt`] if something else is missing;
    /// [`Error::Io`] if something that is needed cannot be read.
    pub async fn open(media: Arc<M>, options: OpenOptions) -> Result<Drive<M>, Error> {
        let found = find_superblock(&*media).await?;
        must_hold(&*media, &found.superblock)?;
        if !options.read_only {
            found.must_be_last()?;
        }
        let FoundSuperblock { superblock, bad_copy, start_lost, far_unread } = found;
        let policy = policy_of(superblock.codec_policy, superblock.codec_level)?;
        let superblock_corrected = bad_copy.is_some();
        let mut found = read_checkpoint(&*media, &superblock).await.map_err(|error| match &bad_copy {
            // These checkpoints may belong to the copy that could not be read.
            Some(unread @ Error::Io(_)) => unread.clone(),
            _ => error,
        })?;
        let accepts = options.read_only && options.accept_damage;
        if !accepts {
            must_be_newest(&found, bad_copy)?;
            if start_lost {
                must_be_last(&found)?;
                must_be_here(&*media, &superblock, &found.checkpoint).await?;
            }
        }
        let LogRead { left, passed_over, with_memory, mut tail } =
            read_with_memory(&media, &superblock, &found, &options).await?;
        if start_lost && tail.damage.is_none() && left.is_none() {
            tail.damage = lost_end(&*media, &superblock, &found, &tail).await;
        }
        let forgets = options.planted.has(PlantedBug::OlderCheckpointAccepted);
        let unread = found.unread.take().filter(|_| !accepts && !forgets);
        if let Some(error) = unread.as_ref().filter(|_| may_be_older(&found, &tail)) {
            return Err(error.clone());
        }
        let read_only = read_only(&tail, &options)?;
        if read_only.is_none() {
            must_allow_writing(&superblock)?;
        }
        let other_superblocks = other_superblocks(&*media, &superblock).await;
        let superblock_uneven = superblock_corrected || !other_superblocks.is_empty();
        let checkpoint = found.checkpoint;
        let lost_superblocks: Vec<u64> = other_superblocks
            .into_iter()
            .filter(|other| other.is_lost(&superblock, &checkpoint))
            .map(|other| other.offset)
            .collect();
        let lost_checkpoints = if found.corrected { found.missing } else { Vec::new() };
        // What may be in a cache only is written to the medium before anything builds on it.
        let rewritten = match read_only {
            None => {
                let mut doubted = Doubted::of(&tail, (&checkpoint, found.is_durable), options.planted);
                if let Some(first) = with_memory.packs.first_of(&tail.places) {
                    doubted.includes_from(first);
                }
                if start_lost {
                    doubted.includes_checkpoint();
                }
                let checkpoint = (&checkpoint, found.order);
                rewrite(&with_memory, &superblock, checkpoint, doubted).await?
            }
            Some(_) => Rewritten::default(),
        };
        let table = match &rewritten.checkpoint {
            Some(errors) => {
                let whole = std::array::from_fn(|copy| errors.get(copy).is_some_and(Option::is_none));
                let table = Table::of(checkpoint.number, &checkpoint.rows, whole, [None; COPIES], &[]);
                (table.with_copies(superblock.geometry.copies()), true)
            }
            None => (found.table, found.has_all_rows),
        };
        let mut core = recover(superblock, (&checkpoint, table), &tail, &options, read_only)?;
        core.misses_memory = left.is_none() && LeftMemory::is_missing(&options, &checkpoint);
        core.counters.corrected_reads_count += u64::from(superblock_corrected) + u64::from(found.corrected);
        core.counters.opens_count += u64::from(!options.read_only);
        core.note_damaged(&tail.damaged);
        core.note_mended(&tail.mended);
        if let Some(why) = passed_over {
            core.note_passed_over(&why);
        }
        if let Some(fault) = core.roll_forward(&checkpoint, tail.changes, recovery_bytes_max(&options))? {
            if !accepts {
                return Err(unread.unwrap_or(Error::Corrupt(fault)));
            }
            core.mode.damaged(fault);
        }
        if start_lost {
            core.recovered.start_lost = true;
            let note = note_of(&core.superblock, !core.mode.is_read_only());
            core.note(note);
            if let Some(unread) = far_unread {
                core.note(format!(
                    "the superblock of a newer drive may be in a place that cannot be read: {unread}"
                ));
            }
        }
        core.note_lost_copies("the superblock", lost_superblocks);
        core.note_lost_copies("the newest checkpoint", lost_checkpoints);
        core.note_rewritten(rewritten, &checkpoint, &tail.places)?;
        if core.mode.is_read_only() {
            let mended = tail.mended.iter().map(|pack| (pack.position, pack.buf.clone()));
            core.log.hold(with_memory.packs.all().chain(mended), &mut core.segments);
        } else if let Some(left) = &left {
            left.taken_by(options.entropy)?;
            tracing::info!(
                packs = with_memory.packs.all().count(),
                "what a killed server had in memory is written"
            );
        }
        core.segments.list_free(may_hold_others(&checkpoint, &options));
        let is_writable = !core.mode.is_read_only();
        let closed = checkpoint.clean || checkpoint.written_through;
        let run = Run::new(&options, &checkpoint, closed || left.is_some() || options.gives_up_memory);
        let drive = Drive(Shared::new(media, core, policy, (&options, run), Shared::write_out));
        // Records that have to be written elsewhere may need them.
        drive.0.load_dictionaries(accepts).await?;
        drive.schedule_training();
        if is_writable {
            drive.begin_run(&found.unread_places, superblock_uneven, &options.begun).await?;
        }
        let mut core = drive.0.core();
        if is_writable {
            core.list_unprotected();
        }
        // No time has passed until now.
        core.full_backing.set_patience(options.full_backing_patience_ticks);
        drive.0.has_room.store(core.has_room(), Ordering::Relaxed);
        drop(core);
        Ok(drive)
    }

    /// Lets dictionaries be trained soon for a drive that was written quickly, or by a program that does not
    /// train.
    fn schedule_training(&self) {
        if self.is_untrained() {
            let mut core = self.0.core();
            core.schedule.untrained = core.map.live_blocks >= core.schedule.first_blocks;
        }
    }

    /// Makes what was recovered durable, and writes the first checkpoint of this run.
    async fn begin_run(
        &self,
        unread_places: &[u64],
        superblock_uneven: bool,
        begun: &AtomicBool,
    ) -> Result<(), Error> {
        let shared = &self.0;
        // What was read may still be in a cache only (after a kill without a power cut), and the checkpoint
        // is going to call it durable.
        shared.sync_once().await?;
        shared.blank(unread_places).await?;
        if superblock_uneven {
            // A change was cut short between the copies, or one copy is bad. From here on the newer one is
            // relied on, so the older one must not be found alone later.
            shared.renew_superblock().await?;
        }
        shared.know_codecs().await?;
        begun.store(true, Ordering::Relaxed);
        // Names the segments of this run. Whatever an earlier run left behind the end of the log is dead from
        // then on.
        self.checkpoint().await?;
        if shared.core().segments.host_may_take() {
            return Ok(());
        }
        // Each opening takes segments for its heads. A full drive that is opened again and again must not run
        // out of them. An obstacle to cleaning does not keep the drive closed.
        if let Err(error) = shared.make_space().await {
            shared.core().mode.writable()?;
            shared.core().note(format!("cleaning at the opening: {error}"));
        }
        Ok(())
    }
}

/// What was read of the log.
struct LogRead<M> {
    /// The memory that was used.
    left: Option<LeftMemory>,
    /// Why that of a run that had the drive on another backing was not.
    passed_over: Option<String>,
    with_memory: WithMemory<M>,
    tail: Tail,
}

/// Reads the log, with the memory that the newest run left, if there is one.
async fn read_with_memory<M: Media>(
    media: &Arc<M>,
    superblock: &Superblock,
    found: &NewestCheckpoint,
    options: &OpenOptions,
) -> Result<LogRead<M>, Error> {
    let accepts = options.read_only && options.accept_damage;
    // It may be of the checkpoint that could not be read.
    let refused = |error| found.unread.clone().unwrap_or(error);
    let with = |packs: LeftPacks| WithMemory { media: media.clone(), packs };
    let (mut missed, mut contradicts) = (None, None);
    let Found { mut left, mut passed_over } = match LeftMemory::find(options, superblock, &found.checkpoint) {
        Err(error) if accepts => {
            missed = Some(error).filter(|error| matches!(error, Error::Damaged(_)));
            Found { left: None, passed_over: None }
        }
        found => found.map_err(refused)?,
    };
    if let Some(memory) = left.take() {
        let with_memory = with(memory.packs.clone());
        if options.planted.has(PlantedBug::WrittenUnjudged) && !options.read_only {
            with_memory.write_all().await?;
        }
        let proven = memory.proven(options.planted);
        let mut tail = read_log(&with_memory, superblock, found, (proven, options.planted)).await?;
        let missing = tail.missed_by_memory.take().and_then(|missing| Some((missing, tail.damage.take()?)));
        let is_durable = |missing| proven.is_some_and(|proven| missing <= proven.durable);
        match missing {
            None if tail.damage.is_some() && !accepts && !memory.is_elsewhere() => {
                return Ok(LogRead { left: Some(memory), passed_over, with_memory, tail });
            }
            None if memory.is_taken(&tail) => {
                return Ok(LogRead { left: Some(memory), passed_over, with_memory, tail });
            }
            // The drive without it is all that is wanted.
            _ if memory.is_elsewhere() => {
                let why = missing.map(|(_, why)| why).or(tail.damage);
                let why = why.unwrap_or_else(|| "the log does not lead to its packs".into());
                if LeftMemory::is_needed(options, &found.checkpoint) && !accepts {
                    let what =
                        "the memory of the last server, which had the drive on another backing, does not fit";
                    return Err(refused(Error::LeftMemory(format!("{what} this one: {why}"))));
                }
                passed_over = Some(why);
            }
            missing => {
                let damage = missing.filter(|(missing, _)| is_durable(*missing)).map(|(_, why)| why);
                if !accepts && damage.is_none() {
                    memory.must_be_taken(&tail).map_err(refused)?;
                }
                missed = damage
                    .map(|why| Error::Damaged(format!("{why}: the backing is damaged, or an older copy")));
                contradicts = Some(memory);
            }
        }
    }
    let with_memory = with(LeftPacks::default());
    let mut tail = read_log(&with_memory, superblock, found, (None, options.planted)).await?;
    if let Some(Error::Damaged(why)) = missed.filter(|_| tail.damage.is_none()) {
        contradicts.iter().for_each(LeftMemory::contradicts);
        tail.damage = Some(why);
    }
    Ok(LogRead { left: None, passed_over, with_memory, tail })
}

/// Reads the log after the checkpoint that was found, and what shows that a newer one is missing.
async fn read_log<M: Media>(
    media: &WithMemory<M>,
    superblock: &Superblock,
    found: &NewestCheckpoint,
    (proven, planted): (Option<Proven>, Planted),
) -> Result<Tail, Error> {
    let checkpoint = &found.checkpoint;
    let mut reader = Reader::new(media, Bounds::of(superblock), checkpoint);
    reader.unannounced.clone_from(&media.packs.unannounced);
    (reader.proven, reader.planted) = (proven, planted);
    let mut tail = reader.tail(checkpoint).await?;
    tracing::debug!(
        checkpoint = checkpoint.number,
        cut = checkpoint.sequence,
        packs = tail.packs_count,
        bytes = tail.bytes,
        damage = tail.damage,
        "log read"
    );
    if tail.damage.is_none() && found.uneven {
        tail.damage = find_successor(media, superblock, checkpoint).await?;
    }
    Ok(tail)
}

/// Returns whether the checkpoint that was found may be older than one that could not be read. If nothing
/// shows what its slot holds, the drive must not continue from the older one, even if the log after that
/// looks whole: what the newer one freed may have been discarded. It would also explain damage in the log,
/// and a gap: it may replace a pack whose write failed, and durable data may lie behind that.
fn may_be_older(found: &NewestCheckpoint, tail: &Tail) -> bool {
    tail.damage.is_some() || found.alone && (found.hidden || tail.goes_on)
}

/// Returns why the drive must be read-only, if it must. Fails if the log is damaged and that is not accepted.
fn read_only(tail: &Tail, options: &OpenOptions) -> Result<Option<ReadOnly>, Error> {
    match &tail.damage {
        None => Ok(options.read_only.then_some(ReadOnly::Requested)),
        Some(damage) if !options.read_only || !options.accept_damage => Err(Error::Damaged(damage.clone())),
        Some(damage) => {
            let why = format!("the log is damaged: {damage}; writes after it are lost");
            Ok(Some(ReadOnly::Damaged(why)))
        }
    }
}

/// Returns whether the backing may hold the space of free segments. After a crash the newest uses of segments
/// are not recorded. Nor does a drive that is new, or was wiped, know what the backing held before.
fn may_hold_others(checkpoint: &Checkpoint, options: &OpenOptions) -> bool {
    let is_told = options.left_open || checkpoint.may_hold_more;
    let is_told = is_told && !options.planted.has(PlantedBug::OthersHeldForgotten);
    !checkpoint.clean || is_told || checkpoint.counters.opens_count == 0
}

/// Refuses a superblock that is not the newest, or may not be because the other copy cannot be read: the
/// drive may have grown since, or have been wiped.
fn must_be_newest(found: &NewestCheckpoint, bad_copy: Option<Error>) -> Result<(), Error> {
    match (bad_copy, &found.outdated) {
        (Some(unread @ Error::Io(_)), outdated) if outdated.is_some() || found.wiped => Err(unread),
        (_, Some(why)) => Err(Error::Corrupt(format!("the newest superblock is missing: {why}"))),
        _ => Ok(()),
    }
}

/// Refuses checkpoints beside which another drive was made, or this one wiped, if the start that would tell
/// is lost.
fn must_be_last(found: &NewestCheckpoint) -> Result<(), Error> {
    if let Some(at) = found.of_another {
        return Err(Error::Corrupt(format!(
            "the start is lost, and a checkpoint of another drive is at byte {at:#x}: another drive was made here since"
        )));
    }
    if found.wiped {
        return Err(Error::Corrupt(
            "the start is lost, and with it the superblock of a wipe that began: the drive may have been wiped, and \
             written since; wipe it again"
                .into(),
        ));
    }
    Ok(())
}

/// Returns whether the log after a checkpoint, or what cannot be read of it, suggests that there is a newer
/// one.
pub(crate) async fn is_outdated<M: Media>(
    media: &M,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
) -> bool {
    let reader = Reader::new(media, Bounds::of(superblock), checkpoint);
    let whole = reader.tail(checkpoint).await.is_ok_and(|tail| tail.damage.is_none() && !tail.goes_on);
    !(whole && matches!(find_successor(media, superblock, checkpoint).await, Ok(None)))
}

/// Who only looks may look at the image of a stranger. A drive that is opened to be used must open: what its
/// log needs has no simple bound (a TRIM of a huge range takes more in recovery than when it was made).
fn recovery_bytes_max(options: &OpenOptions) -> u64 {
    match options.read_only {
        true => options.recovery_bytes_max.max(options.map_budget_bytes.saturating_mul(4)),
        false => u64::MAX,
    }
}

/// Builds the drive's state from a checkpoint and the log after it.
fn recover(
    superblock: Superblock,
    (checkpoint, (table, has_all_rows)): (&Checkpoint, (Table, bool)),
    tail: &Tail,
    options: &OpenOptions,
    read_only: Option<ReadOnly>,
) -> Result<Core, Error> {
    let geometry = superblock.geometry;
    let arena = match &options.memory {
        Some(arena) => arena.clone(),
        None => Arena::private(MEMORY_SHAPE)
            .map_err(|error| Error::Memory(format!("for what waits for the backing: {error}")))?,
    };
    let header = header_of(options, &superblock, checkpoint, &arena);
    let mut log =
        Log::new(superblock.log_id(), geometry, tail.sequence, checkpoint.number, arena, options.planted);
    log.begin_memory(&header);
    let mut segments = Segments::new(geometry, options.entropy);
    segments.load(&checkpoint.rows, has_all_rows, superblock.uses_parity());
    for head in checkpoint.heads.iter().filter(|head| head.current.is_some()) {
        let segment = head.current.segment;
        if segment < segments.count() && segments.get(segment).state() == SegmentState::Free {
            segments.set_state(segment, SegmentState::Sealed);
        }
    }
    segments.plant(options.planted);
    for touched in &tail.touched {
        segments.restore(touched.segment, touched.generation, touched.last_sequence, touched.parity);
    }
    let mut map =
        Map::new(options.map_budget_bytes, superblock.logical_capacity_bytes / layout::BLOCK_BYTES as u64);
    map.set_root_image(checkpoint.root);
    map.live_blocks = checkpoint.live_blocks;
    map.mix = checkpoint.mix;
    map.fill_blocks = checkpoint.fill_blocks;
    let mut counters: Counters = checkpoint.counters.clamped();
    counters.unclean_opens_count += u64::from(!checkpoint.clean);
    Ok(Core {
        log,
        superblock: Superblock { worn_bytes: superblock.worn_bytes.min(COUNT_MAX), ..superblock },
        segments,
        table,
        map,
        counters,
        scrub: checkpoint.scrub,
        mode: Mode::new(read_only),
        checkpoints: Checkpoints::new(options.checkpoint_bytes.max(64 << 10)),
        cleaning: None,
        emptying: Default::default(),
        parity: Default::default(),
        map_shrink: MapShrink::default(),
        lost: Lost::default(),
        accounts_tried: None,
        full_backing: Default::default(),
        failed_packs: 0,
        updates_tried: superblock.update,
        copies_not_taken: Default::default(),
        writing_aside: false,
        maintaining: false,
        misses_memory: false,
        reserved_units: 0,
        held: Default::default(),
        ticks: 0,
        lull: Lull::default(),
        resting: false,
        harvest: Default::default(),
        written: Default::default(),
        vain: Default::default(),
        dictionaries: Default::default(),
        give_back: Default::default(),
        syncs: Default::default(),
        schedule: crate::state::training_schedule::Schedule::new(options.sample_blocks),
        notes: Vec::new(),
        recovered: crate::state::recovered::Recovered {
            packs_count: tail.packs_count,
            log_bytes: tail.bytes,
            damaged_records_count: tail.damaged.iter().map(|pack| pack.records).sum(),
            clean: checkpoint.clean,
            start_lost: false,
        },
        between_records: options.between_records,
        planted: options.planted,
    })
}

impl Core {
    /// Applies the contents of the log to the map. Returns what is wrong with them; the rest is applied
    /// nevertheless. Fails if the map would take more than `bytes_max` of memory: a few bytes of log may
    /// change a whole leaf, or thousands of them.
    fn roll_forward(
        &mut self,
        checkpoint: &Checkpoint,
        changes: Vec<LoggedChange>,
        bytes_max: u64,
    ) -> Result<Option<String>, Error> {
        let mut overlays = 0;
        let mut fault = None;
        let (of_checkpoint, rest): (Vec<LoggedChange>, Vec<LoggedChange>) =
            changes.into_iter().partition(|change| matches!(change, LoggedChange::Overlay { .. }));
        for change in of_checkpoint {
            let LoggedChange::Overlay { leaf, extra, coding, payload } = change else { continue };
            self.must_fit(bytes_max)?;
            // Overlays of a later checkpoint that was never completed mean nothing.
            if extra & !1 != overlay_extra(checkpoint.number, false) {
                continue;
            }
            let id = layout::NodeId { level: layout::LEAF_LEVEL, index: leaf };
            if self.map.form(id).is_some() {
                fault = Some(format!("checkpoint {} has two overlays of leaf {leaf}", checkpoint.number));
                continue;
            }
            let Ok(pairs) = layout::node::decode_overlay(coding, &payload) else { continue };
            overlays += 1;
            self.map.load_overlay(id, extra & 1 != 0, pairs);
        }
        if overlays != checkpoint.overlay_records {
            fault.get_or_insert(format!(
                "checkpoint {} has {} overlay records, {overlays} were found",
                checkpoint.number, checkpoint.overlay_records
            ));
        }
        for change in rest {
            self.must_fit(bytes_max)?;
            match change {
                LoggedChange::Data { block, entry, left_out } => self.publish_record(block, entry, left_out),
                LoggedChange::Range { block, count, entry } => self.publish_range(block, count, entry),
                LoggedChange::Overlay { .. } => {}
            }
        }
        // A segment promised at the cut has nodes of this checkpoint, but then their packs were just found.
        let mut known = self.segments.known();
        if let Some((segment, _)) =
            known.find(|(_, row)| row.state() == SegmentState::Free && row.live_units() > 0)
        {
            fault.get_or_insert(format!(
                "segment {segment} is free by the usage table, but holds something live"
            ));
        }
        Ok(fault)
    }

    /// Counts the records of the log that cannot be read, and says where they are.
    fn note_damaged(&mut self, packs: &[DamagedPack]) {
        let records = self.recovered.damaged_records_count;
        self.counters.corrupt_records_count += records;
        if let Some(first) = packs.iter().find(|pack| pack.records > 0) {
            self.note(format!(
                "damaged records in the newest log: {records}, the first in pack {} at byte {}; what they held cannot \
                 be read",
                first.sequence, first.position
            ));
        }
    }

    /// Says which packs of the log had to be mended.
    fn note_mended(&mut self, packs: &[MendedPack]) {
        let then = match self.mode.is_read_only() {
            true => "it was read as it was before; opening the drive for writing mends it",
            false => "it is mended",
        };
        for pack @ MendedPack { sequence, position, remade_pages, .. } in packs {
            if pack.is_remade() {
                self.counters.corrected_reads_count += 1;
                self.parity.repaired_at_opening(*remade_pages, *position);
            }
            self.note(match pack.is_remade() {
                true => format!(
                    "pack {sequence} at byte {position} of the backing was damaged, and made again from parity"
                ),
                false => format!(
                    "a bit had flipped in the headers of pack {sequence} at byte {position} of the backing; {then}"
                ),
            });
        }
    }

    /// Says that what a killed server had acknowledged on another backing is not here.
    fn note_passed_over(&mut self, why: &str) {
        let note = format!(
            "a server was killed that had this drive on another backing, and its memory does not fit this one, which \
             is an older copy or damaged: {why}"
        );
        tracing::warn!("{note}");
        self.note(note);
    }

    /// Notes copies that were not found. Opening for writing, where that is possible, writes the superblock
    /// and the checkpoints again; until then, one copy is left.
    fn note_lost_copies(&mut self, what: &str, offsets: impl IntoIterator<Item = u64>) {
        if !self.mode.is_read_only() {
            return;
        }
        let is_requested = matches!(self.mode.read_only(), Some(ReadOnly::Requested));
        let remedy = match is_requested && self.superblock.features.allow_writing() {
            true => "; opening the drive for writing restores it",
            false => "",
        };
        for offset in offsets {
            self.note_copy(offset, false);
            self.note(format!(
                "a copy of {what} is missing, damaged or outdated, at byte {offset:#x} of the backing; another copy is \
                 used{remedy}"
            ));
        }
    }

    /// Notes what the medium did not take when it was written again, and sets the segments of such packs
    /// aside. Fails if there are too many.
    fn note_rewritten(
        &mut self,
        rewritten: Rewritten,
        checkpoint: &Checkpoint,
        places: &[PackPlace],
    ) -> Result<(), Error> {
        let Rewritten { superblock: of_superblock, checkpoint: of_checkpoint, packs, bytes } = rewritten;
        self.counters.physical_written_bytes += bytes;
        let checkpoint_places = self.geometry().checkpoint_places(checkpoint.number);
        for (what, errors, offsets) in [
            ("the superblock", of_superblock, self.geometry().superblock_places()),
            ("a checkpoint", of_checkpoint.unwrap_or_default(), checkpoint_places),
        ] {
            for (error, offset) in errors.into_iter().zip(offsets) {
                let Some(error) = error else { continue };
                self.counters.write_errors_count += 1;
                self.note_copy(offset, false);
                self.note(format!("a copy of {what} cannot be written: {error}"));
            }
        }
        for NotTaken { at, buf, error } in packs {
            let (sequence, position) = (checkpoint.sequence + 1 + at as u64, places[at].position);
            self.counters.write_errors_count += 1;
            let Some(segment) = self.log.pack_not_taken(sequence, (position, buf), &mut self.segments) else {
                continue;
            };
            self.note(format!("segment {segment} takes no writes and is not used any more: {error}"));
            let (most, (_, bad)) =
                (bad_segments_max(self.segments.count()), self.segments.set_aside_counts());
            if bad > most {
                let what = format!("writes to {bad} segments of the backing fail, {most} at most may be bad");
                return Err(Error::Io(format!("{what}: {error}")));
            }
        }
        Ok(())
    }

    fn must_fit(&self, bytes_max: u64) -> Result<(), Error> {
        match self.map.memory_bytes() > bytes_max {
            false => Ok(()),
            true => Err(Error::Memory(format!(
                "the changes in the log take more than {bytes_max} bytes; make more memory available, or open the \
                 drive for writing if you trust it, which has no limit"
            ))),
        }
    }
}
