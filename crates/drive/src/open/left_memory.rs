//! Opening with the memory that a killed run left: see `state/log/memory.rs`.
//!
//! First all of it is judged, then anything is written. Packs behind one that is missing vouch for it, and
//! would turn an older copy of a drive into a damaged one. So roll-forward reads the backing with the packs
//! of the memory at their places, which lets it follow the log as if they had been written. A memory is used
//! whole or refused.
//!
//! It also proves what was there: whatever it counts as sealed and does not hold any more was written to the
//! backing, and the machine has not been restarted since. After a failed sync that proves nothing. See
//! [`Proven`].

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use layout::memory::{MemoryHeader, OPENINGS_AT, OpenInMemory, RunMemory, TAKEN_BY_AT, USED_ELSEWHERE_AT};
use layout::pack::{HEADS, NextSegment, PACK_HEADER_BYTES, PackHeader, decode_pack, walk_records};
use layout::record::RECORD_HEADER_BYTES;
use layout::{Checkpoint, DecodeError, Head, PAGE_BYTES, Superblock};
use media::{Arena, IoBuf, Media};

use crate::error::Error;
use crate::kept_memory::{KeptMemory, Left, Verdict};
use crate::open::replay::{PackPlace, Proven, Tail, was_free};
use crate::options::OpenOptions;
use crate::planted::{Planted, PlantedBug};

/// Bytes of a word of the table.
const WORD_BYTES: usize = size_of::<u64>();
/// Openings that may die over a memory one after the other. Afterwards it rests before each.
const OPENINGS_MAX: u64 = 3;

/// The memory that the newest run left, as far as it is of use.
pub(crate) struct LeftMemory {
    left: Left,
    /// Number of the newest pack that the log must reach.
    newest: u64,
    proven: Proven,
    /// Something that was acknowledged is missing in it.
    has_lapsed: bool,
    pub(crate) packs: LeftPacks,
    /// `None` if the opening is for reading, or the memory is elsewhere.
    #[expect(dead_code, reason = "it is dropped when the opening ends")]
    attempt: Option<Attempt>,
}

/// What was found among the memories.
pub(crate) struct Found {
    /// The one to use.
    pub(crate) left: Option<LeftMemory>,
    /// Why that of a run that had the drive on another backing is of no use here.
    pub(crate) passed_over: Option<String>,
}

/// Packs of a memory, at their places.
#[derive(Clone, Default)]
pub(crate) struct LeftPacks {
    by_position: Arc<BTreeMap<u64, Arc<IoBuf>>>,
    /// Segments that nothing names, by the number of their first pack.
    pub(crate) unannounced: BTreeMap<u64, (Head, NextSegment)>,
}

impl LeftMemory {
    /// Finds among the memories the one that the newest run of this drive left. None if there is none, or if
    /// nothing of it is needed any more.
    ///
    /// # Errors
    ///
    /// [`Error::LeftMemory`] if one is there and must not be used, or if one is needed and there is none;
    /// [`Error::Damaged`] if one knows a durable checkpoint that is missing.
    pub(crate) fn find(
        options: &OpenOptions,
        superblock: &Superblock,
        checkpoint: &Checkpoint,
    ) -> Result<Found, Error> {
        let (mut refusal, mut elsewhere, mut own) = (None, None, None);
        let (mut passed_over, mut damage) = (None, None);
        for left @ Left { memory: kept, is_elsewhere } in &options.left_memories {
            let judged = |verdict| {
                if !is_elsewhere && (!options.read_only || verdict != Verdict::Over) {
                    kept.judged(verdict);
                }
            };
            let bytes = match kept.bytes() {
                Ok(bytes) => bytes,
                // A run that closes its drive leaves nothing in memory.
                Err(_) if checkpoint.clean => continue,
                Err(error) => {
                    judged(Verdict::Refused);
                    refusal = Some(format!("it cannot be read: {error}"));
                    continue;
                }
            };
            if bytes.len() >= PAGE_BYTES && bytes[..WORD_BYTES] == [0; WORD_BYTES] {
                // Its run ended before it had begun: the magic number is written last.
                judged(Verdict::Over);
                continue;
            }
            let memory = match RunMemory::decode(&bytes) {
                Ok(memory) => memory,
                Err(_) if *is_elsewhere => continue,
                Err(_) if checkpoint.clean => continue,
                Err(error) => {
                    judged(Verdict::Refused);
                    refusal = Some(error.to_string());
                    continue;
                }
            };
            if memory.header.boot != options.boot || memory.header.log_id != superblock.log_id() {
                continue;
            }
            let is_of_newest_run =
                memory.header.entropy == checkpoint.entropy || options.planted.has(PlantedBug::OtherRunTaken);
            if *is_elsewhere && !is_of_newest_run {
                continue;
            }
            let acknowledged = is_of_newest_run || memory.checkpoint > memory.header.begins_behind;
            let is_empty = memory.sealed.is_empty() && memory.open.is_none() && !memory.has_lapsed;
            // A run that had the drive since has written a checkpoint of its own, behind those of this one.
            let is_older = memory.checkpoint > checkpoint.number
                || !is_of_newest_run && memory.checkpoint == checkpoint.number;
            let contradicts = is_older && !is_elsewhere && (is_of_newest_run || memory.used_elsewhere == 0);
            // A drive that was never opened has none.
            let is_taken = memory.taken_by != 0 && memory.taken_by == checkpoint.entropy;
            if is_taken || !acknowledged || is_empty && !is_of_newest_run && !contradicts {
                judged(Verdict::Over);
                continue;
            }
            if memory.used_elsewhere != 0 && !is_of_newest_run {
                // The drive was moved and has come back. It is not over before the drive is open: the
                // checkpoint of its run may be there, and be unreadable just now.
                continue;
            }
            if contradicts {
                judged(Verdict::Contradicts);
                damage = Some(format!(
                    "the newest checkpoint found is {}{}, but the memory of the killed server knows checkpoint {}: the \
                     backing is damaged, or an older copy",
                    checkpoint.number,
                    if is_of_newest_run { "" } else { " of an earlier run" },
                    memory.checkpoint
                ));
                continue;
            }
            match Self::of(left, &memory, superblock, checkpoint, options.planted) {
                Ok(_) if memory.openings >= OPENINGS_MAX && !is_elsewhere && !kept.has_rested() => {
                    judged(Verdict::Stuck);
                    let count = memory.openings;
                    refusal =
                        Some(format!("{count} openings with it came to no end; one is tried each minute"));
                }
                Ok(left) if *is_elsewhere => elsewhere = Some(left),
                Ok(left) => own = Some((left, memory.openings)),
                Err(why) if *is_elsewhere => passed_over = Some(why),
                Err(why) => {
                    judged(Verdict::Refused);
                    refusal = Some(why);
                }
            }
        }
        if let Some((left, openings)) = own {
            if options.read_only {
                return Ok(Found { left: Some(left), passed_over: None });
            }
            let attempt =
                Attempt::begin(&left.left.memory, openings).map_err(|error| left.not_written(&error))?;
            let left = Some(LeftMemory { attempt: Some(attempt), ..left });
            return Ok(Found { left, passed_over: None });
        }
        if let Some(damage) = damage {
            return Err(Error::Damaged(damage));
        }
        if refusal.is_none() && elsewhere.is_none() && Self::is_needed(options, checkpoint) {
            let memory = match (&passed_over, checkpoint.memory_boot == [0; 16]) {
                (Some(why), _) => format!("its memory does not fit: {why}"),
                (None, true) => "it kept no memory".to_owned(),
                (None, false) => "its memory is gone".to_owned(),
            };
            refusal = Some(format!("the last server did not close the drive, and {memory}"));
        }
        match refusal {
            Some(why) => Err(Error::LeftMemory(why)),
            None => Ok(Found { left: elsewhere, passed_over }),
        }
    }

    /// Returns whether the drive must not be opened without what its newest run acknowledged.
    pub(crate) fn is_needed(options: &OpenOptions, checkpoint: &Checkpoint) -> bool {
        options.needs_memory && !checkpoint.clean && !checkpoint.written_through
    }

    /// Returns whether the newest run left a memory on this machine, and none was found.
    pub(crate) fn is_missing(options: &OpenOptions, checkpoint: &Checkpoint) -> bool {
        let is_here = checkpoint.memory_boot == options.boot && options.boot != [0; 16];
        is_here && !checkpoint.clean && !checkpoint.written_through
    }

    fn of(
        left: &Left,
        memory: &RunMemory<'_>,
        superblock: &Superblock,
        checkpoint: &Checkpoint,
        planted: Planted,
    ) -> Result<LeftMemory, String> {
        if memory.header.entropy != checkpoint.entropy && !planted.has(PlantedBug::OtherRunTaken) {
            return Err("the drive was opened elsewhere since".into());
        }
        if memory.checkpoint > checkpoint.number {
            let (known, found) = (memory.checkpoint, checkpoint.number);
            return Err(format!("it knows checkpoint {known}, the newest found is {found}"));
        }
        if memory.newest() < checkpoint.sequence {
            let (newest, cut) = (memory.newest(), checkpoint.sequence);
            return Err(format!("it ends with pack {newest}, the checkpoint is behind pack {cut}"));
        }
        // What is not durable may be neither here nor there.
        let durable_max = memory.sealed.iter().map(|pack| pack.header.durable).max().unwrap_or(0);
        let durable = memory.durable.max(durable_max).min(memory.newest());
        if memory.has_lapsed {
            let proven = Proven { written: durable, durable };
            let (left, newest, packs) = (left.clone(), memory.newest(), LeftPacks::default());
            return Ok(LeftMemory { left, newest, proven, has_lapsed: true, packs, attempt: None });
        }
        // After a failed sync, the backing may have lost what was written and not durable.
        let written = if memory.sync_failed { durable } else { memory.newest() };
        let proven = Proven { written, durable };
        let geometry = superblock.geometry;
        let mut packs = BTreeMap::new();
        let mut unannounced = BTreeMap::new();
        let cut = if planted.has(PlantedBug::CutOverlooked) { 0 } else { checkpoint.sequence };
        for pack in memory.sealed.iter().filter(|pack| pack.header.sequence > cut) {
            let header = &pack.header;
            let is_inside = header.segment < geometry.segments()
                && u64::from(header.offset) + u64::from(header.len) <= u64::from(geometry.segment_bytes);
            if !is_inside || header.uuid != checkpoint.uuid {
                return Err(format!("pack {} is of another drive", header.sequence));
            }
            if pack.is_unannounced {
                if !may_be_unannounced(checkpoint, header.segment) {
                    return Err(format!("pack {} is in a segment that was in use", header.sequence));
                }
                let segment = NextSegment { segment: header.segment, generation: header.generation };
                unannounced.insert(header.sequence, (header.head, segment));
            }
            let position = geometry.segment_offset(header.segment) + u64::from(header.offset);
            packs.insert(position, Arc::new(copy_of(pack.bytes)));
        }
        let mut newest = memory.newest();
        if let Some(open) = &memory.open {
            newest = newest.saturating_add(1);
            let sealed = sealed(open, newest, checkpoint, open.parity.room_bytes(geometry.segment_bytes));
            let sealed = sealed.map_err(|error| format!("the newest pack in it is not whole: {error}"))?;
            let inside = open.segment.segment < geometry.segments();
            let position =
                inside.then(|| geometry.segment_offset(open.segment.segment) + u64::from(open.offset));
            // Nothing may name its segment either.
            if open.offset == 0 && may_be_unannounced(checkpoint, open.segment.segment) {
                unannounced.insert(newest, (Head::Host, open.segment));
            }
            packs.insert(position.ok_or("the newest pack in it is of another drive")?, Arc::new(sealed));
        }
        if !packs
            .iter()
            .zip(packs.iter().skip(1))
            .all(|((at, pack), (next, _))| at + pack.len() as u64 <= *next)
        {
            return Err("two packs in it have one place".into());
        }
        let packs = LeftPacks { by_position: Arc::new(packs), unannounced };
        Ok(LeftMemory { left: left.clone(), newest, proven, has_lapsed: false, packs, attempt: None })
    }

    /// Returns whether the memory may be passed over: it is of a run that had the drive on another backing.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.left.is_elsewhere
    }

    /// What the memory proves. Nothing with the planted mistake.
    pub(crate) fn proven(&self, planted: Planted) -> Option<Proven> {
        (!planted.has(PlantedBug::MemoryProvesNothing)).then_some(self.proven)
    }

    /// Nothing but the memory shows that something durable is missing.
    pub(crate) fn contradicts(&self) {
        self.left.memory.judged(Verdict::Contradicts);
    }

    /// Everything in the memory is on the backing, and the next checkpoint is that of this run. If it is of
    /// another backing, that may still be opened with it.
    ///
    /// # Errors
    ///
    /// [`Error::LeftMemory`] if that cannot be noted.
    pub(crate) fn taken_by(&self, entropy: u64) -> Result<(), Error> {
        if self.left.is_elsewhere {
            // Without the note it is found useless when it comes to its own backing again.
            let _ = self.left.memory.store(USED_ELSEWHERE_AT, entropy);
            return Ok(());
        }
        self.left.memory.store(TAKEN_BY_AT, entropy).map_err(|error| self.not_written(&error))
    }

    fn not_written(&self, error: &io::Error) -> Error {
        self.left.memory.judged(Verdict::Stuck);
        Error::LeftMemory(format!("it cannot be written to: {error}"))
    }

    /// Returns whether roll-forward took all of it.
    pub(crate) fn is_taken(&self, tail: &Tail) -> bool {
        tail.damage.is_none() && self.must_be_taken(tail).is_ok()
    }

    /// Judges what roll-forward found with the packs of the memory.
    ///
    /// # Errors
    ///
    /// [`Error::LeftMemory`] if it did not take all of them.
    pub(crate) fn must_be_taken(&self, tail: &Tail) -> Result<(), Error> {
        let taken = self.taken(tail);
        if taken.is_err() && !self.left.is_elsewhere {
            self.left.memory.judged(Verdict::Refused);
        }
        taken
    }

    fn taken(&self, tail: &Tail) -> Result<(), Error> {
        if self.has_lapsed {
            let why = "it was too small for all that waited for the backing";
            return Err(Error::LeftMemory(why.into()));
        }
        if tail.sequence < self.newest {
            return Err(Error::LeftMemory(format!(
                "it ends with pack {}, the log on the backing leads to pack {}",
                self.newest, tail.sequence
            )));
        }
        let taken = |(position, pack): (&u64, &Arc<IoBuf>)| {
            let is_it = |place: &&PackPlace| place.position == *position;
            tail.places.iter().find(is_it).is_some_and(|place| place.crc == crc32c::crc32c(pack))
        };
        match self.packs.by_position.iter().all(taken) {
            true => Ok(()),
            false => Err(Error::LeftMemory("the log on the backing does not lead to all packs in it".into())),
        }
    }
}

/// An opening that tries to take a memory over. One that dies stays counted.
struct Attempt {
    memory: Arc<dyn KeptMemory>,
    before: u64,
}

impl Attempt {
    fn begin(memory: &Arc<dyn KeptMemory>, before: u64) -> io::Result<Attempt> {
        memory.store(OPENINGS_AT, before + 1)?;
        Ok(Attempt { memory: memory.clone(), before })
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A word that was just written.
            let _ = self.memory.store(OPENINGS_AT, self.before);
        }
    }
}

impl LeftPacks {
    /// Returns the number of the first of these places that is one of the packs'.
    pub(crate) fn first_of(&self, places: &[PackPlace]) -> Option<usize> {
        places.iter().position(|place| self.by_position.contains_key(&place.position))
    }

    /// Places and packs.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, Arc<IoBuf>)> {
        self.by_position.iter().map(|(position, pack)| (*position, pack.clone()))
    }
}

/// Returns whether a pack may lie in a segment although nothing in the log leads there.
fn may_be_unannounced(checkpoint: &Checkpoint, segment: u32) -> bool {
    checkpoint.rows.get(segment as usize).is_some_and(was_free)
}

fn copy_of(bytes: &[u8]) -> IoBuf {
    let mut buf = IoBuf::pooled(bytes.len());
    buf.copy_from_slice(bytes);
    buf
}

/// Seals the host's open pack as the process would have that was killed. All of it follows from what was
/// found, so that another opening does the same.
fn sealed(
    open: &OpenInMemory<'_>,
    sequence: u64,
    checkpoint: &Checkpoint,
    room_bytes: u32,
) -> Result<IoBuf, DecodeError> {
    let used = open.bytes.len();
    let mut buf = IoBuf::zeroed(used.next_multiple_of(PAGE_BYTES));
    buf[..used].copy_from_slice(open.bytes);
    let len = buf.len() as u32;
    if len > room_bytes || open.offset > room_bytes - len || !open.offset.is_multiple_of(PAGE_BYTES as u32) {
        return Err(DecodeError::Field("pack", "impossible offset"));
    }
    let mut records_crc = 0;
    walk_records(open.bytes, open.records, |_, raw| {
        records_crc = crc32c::crc32c_append(records_crc, &raw[..RECORD_HEADER_BYTES]);
        Ok(())
    })?;
    let NextSegment { segment, generation } = open.segment;
    let header = PackHeader {
        head: Head::Host,
        uuid: checkpoint.uuid,
        segment,
        generation,
        offset: open.offset,
        len,
        used: used as u32,
        records: open.records,
        sequence,
        durable: checkpoint.durable,
        checkpoint: checkpoint.number,
        next: [NextSegment::NONE; HEADS],
        continued: 0,
        parity: open.parity,
    };
    debug_assert!(used >= PACK_HEADER_BYTES);
    header.encode(records_crc, &mut buf);
    let place =
        layout::pack::PackAddress { uuid: &checkpoint.uuid, segment, generation, offset: open.offset };
    decode_pack(&buf, place, |_, _| {})?;
    Ok(buf)
}

/// What the memory of a new run is of.
pub(crate) fn header_of(
    options: &OpenOptions,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    arena: &Arena,
) -> MemoryHeader {
    let shape = arena.shape();
    MemoryHeader {
        boot: options.boot,
        log_id: superblock.log_id(),
        entropy: options.entropy,
        units: shape.units as u32,
        unit_bytes: shape.unit_bytes as u32,
        begins_behind: checkpoint.number,
    }
}

/// A backing with packs of a memory at their places. Writes go to the backing.
pub(crate) struct WithMemory<M> {
    pub(crate) media: Arc<M>,
    pub(crate) packs: LeftPacks,
}

impl<M: Media> WithMemory<M> {
    /// Writes the packs to their places: a planted mistake.
    pub(crate) async fn write_all(&self) -> Result<(), Error> {
        for (position, pack) in self.packs.all() {
            let written = self.media.write(position, pack).await;
            written.map_err(|error| Error::io("writing", position, &error))?;
        }
        self.media.sync().await.map_err(|error| Error::Io(error.to_string()))
    }
}

impl<M: Media> Media for WithMemory<M> {
    fn size_bytes(&self) -> u64 {
        self.media.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        let (mut buf, mut result) = self.media.read(offset, buf).await;
        let end = offset + buf.len() as u64;
        let before = self.packs.by_position.range(..offset).next_back();
        let mut covered = 0;
        for (position, pack) in before.into_iter().chain(self.packs.by_position.range(offset..end)) {
            let from = offset.max(*position);
            let until = end.min(position + pack.len() as u64);
            if from < until {
                let bytes = &pack[(from - position) as usize..(until - position) as usize];
                buf[(from - offset) as usize..(until - offset) as usize].copy_from_slice(bytes);
                covered += until - from;
            }
        }
        if covered == buf.len() as u64 {
            result = Ok(());
        }
        (buf, result)
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        self.media.write(offset, buf).await
    }

    async fn sync(&self) -> io::Result<()> {
        self.media.sync().await
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.media.discard(offset, len).await
    }
}
