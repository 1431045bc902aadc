//! The next process finds everything that was acknowledged, whenever this one is killed: hosts append to
//! packs inside the lock, packs are written, and their memory is used again, while others drop it outside the
//! lock.
//!
//! Killed threads stop between two steps, and what they have stored is seen. So after each step of any thread
//! the bytes are read as the next process reads them, with the code that it has.

use std::collections::BTreeMap;

use layout::memory::{MemoryHeader, RunMemory};
use layout::pack::{HEADS, NextSegment, PACK_HEADER_BYTES, PackHeader};
use layout::{Head, PAGE_BYTES};
use loom::sync::Arc;
use loom::thread;

use super::code::{OpenFill, PackMemory};
use crate::arena::{Arena, ArenaShape, IoBuf, Remains};
use crate::planted::Planted;
use crate::publishing::{PACK_HARD_BYTES, SealedPack};
use crate::sync::Mutex;

/// Enough for four packs, none of which is written, and no more.
const UNITS: usize = 8;
/// A number, and what makes a full pack as large as its region.
const RECORD_BYTES: usize = 1504;
/// Records that are written in one request: both are there, or neither.
const BATCH: u64 = 2;
/// Batches in a pack.
const BATCHES: usize = 2;
const SEGMENT: NextSegment = NextSegment { segment: 3, generation: 1 };

struct Open {
    buf: IoBuf,
    records: Vec<u64>,
}

/// The relevant parts of a log.
struct Core {
    memory: PackMemory,
    open: Option<Open>,
    sequence: u64,
    /// Sealed and not written, oldest first, with their records.
    waiting: Vec<(SealedPack, Vec<u64>)>,
}

struct Drive {
    arena: Arena,
    core: Mutex<Core>,
}

fn records(bytes: &[u8], count: u32) -> Vec<u64> {
    let records = bytes[PACK_HEADER_BYTES..].chunks_exact(RECORD_BYTES).take(count as usize);
    records.map(|record| u64::from_le_bytes(record[..8].try_into().expect("eight bytes"))).collect()
}

/// Reads what a process left that is killed now.
fn nothing_is_lost(remains: &Remains) {
    if remains.bytes[..8] == [0; 8] {
        assert!(remains.acknowledged.is_empty(), "acknowledged before the memory began");
        return;
    }
    let memory = RunMemory::decode(&remains.bytes).expect("a memory that can be read");
    let mut packs: BTreeMap<u64, Vec<u64>> = remains.written.iter().cloned().collect();
    for pack in &memory.sealed {
        packs.insert(pack.header.sequence, records(pack.bytes, pack.header.records));
    }
    let all: Vec<u64> = (1..=memory.newest()).collect();
    assert_eq!(packs.keys().copied().collect::<Vec<_>>(), all, "the log has a gap");
    let open = memory.open.as_ref().map(|open| records(open.bytes, open.records));
    let found: Vec<u64> = packs.into_values().flatten().chain(open.into_iter().flatten()).collect();
    assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>(), "not what was appended");
    assert!(found.len() as u64 % BATCH == 0, "half a batch");
    assert!(
        remains.acknowledged.iter().all(|record| found.contains(record)),
        "an acknowledged record is lost"
    );
}

impl Drive {
    fn new() -> Arc<Drive> {
        let shape = ArenaShape {
            table_bytes: MemoryHeader::table_bytes(UNITS),
            unit_bytes: PAGE_BYTES,
            units: UNITS,
            largest_bytes: PACK_HARD_BYTES,
        };
        let arena = Arena::new(shape, nothing_is_lost);
        let mut memory = PackMemory::new(arena.clone(), Planted);
        let header = MemoryHeader {
            boot: [1; 16],
            log_id: [2; 16],
            entropy: 3,
            units: UNITS as u32,
            unit_bytes: PAGE_BYTES as u32,
            begins_behind: 0,
        };
        memory.begin(&header, 0, 0);
        let core = Core { memory, open: None, sequence: 0, waiting: Vec::new() };
        Arc::new(Drive { arena, core: Mutex::new(core) })
    }

    /// A host writes a batch, and gets its answer.
    fn write(&self, batch: u64) {
        let records = batch * BATCH..(batch + 1) * BATCH;
        let mut core = self.core.lock();
        let is_full = core.open.as_ref().is_none_or(|open| open.records.len() >= BATCHES * BATCH as usize);
        assert!(!is_full || core.memory.has_room_for(1), "there is room for each open pack");
        let sealed = if is_full { core.seal() } else { None };
        let mut open =
            core.open.take().unwrap_or_else(|| Open { buf: core.memory.of_open_pack(), records: Vec::new() });
        for record in records.clone() {
            let at = PACK_HEADER_BYTES + open.records.len() * RECORD_BYTES;
            open.buf.put(at, &record.to_le_bytes());
            open.records.push(record);
        }
        core.open = Some(open);
        core.leave(sealed.as_slice());
        drop(core);
        self.arena.step(|remains| remains.acknowledged.extend(records));
    }

    /// The oldest pack is written. Returns whether there was one.
    fn write_out(&self) -> bool {
        let oldest = self.core.lock().waiting.first().cloned();
        let Some((pack, records)) = oldest else { return false };
        self.arena.step(|remains| remains.written.push((pack.sequence, records)));
        let mut core = self.core.lock();
        let waited = core.waiting.remove(0);
        core.leave(&[]);
        drop(core);
        // The last one to have it gives its memory back.
        drop(waited);
        true
    }
}

impl Core {
    fn seal(&mut self) -> Option<SealedPack> {
        let mut open = self.open.take()?;
        self.sequence += 1;
        let used = PACK_HEADER_BYTES + open.records.len() * RECORD_BYTES;
        let header = PackHeader {
            head: Head::Host,
            uuid: [2; 16],
            segment: SEGMENT.segment,
            generation: SEGMENT.generation,
            offset: self.sequence as u32 * PACK_HARD_BYTES as u32,
            len: PACK_HARD_BYTES as u32,
            used: used as u32,
            records: open.records.len() as u32,
            sequence: self.sequence,
            durable: 0,
            checkpoint: 0,
            next: [NextSegment::NONE; HEADS],
            continued: 0,
            parity: layout::ParityForm::None,
        };
        let mut bytes = [0; PACK_HEADER_BYTES];
        header.encode(0, &mut bytes);
        open.buf.put(0, &bytes);
        open.buf.set_len(PACK_HARD_BYTES);
        let buf = Arc::new(self.memory.of_sealed_pack(open.buf));
        let pack = SealedPack { sequence: self.sequence, buf, is_announced: true };
        self.waiting.push((pack.clone(), open.records));
        Some(pack)
    }

    /// Leaves the critical section, as the engine does.
    fn leave(&mut self, sealed: &[SealedPack]) {
        let fill = self.open.as_ref().map(|open| OpenFill {
            parity: layout::ParityForm::None,
            unit: self.memory.unit_of(&open.buf).expect("in the arena"),
            segment: SEGMENT,
            offset: (self.sequence as u32 + 1) * PACK_HARD_BYTES as u32,
            used: PACK_HEADER_BYTES + open.records.len() * RECORD_BYTES,
            records: open.records.len() as u32,
        });
        self.memory.publish(sealed, fill, (0, 0));
    }
}

/// A host fills packs while others are written, until the memory of the first ones is used again.
pub(crate) fn a_kill_at_any_step_loses_nothing() {
    let drive = Drive::new();
    (0..5).for_each(|batch| drive.write(batch));
    let writer = {
        let drive = drive.clone();
        thread::spawn(move || assert!(drive.write_out() && drive.write_out()))
    };
    (5..8).for_each(|batch| drive.write(batch));
    writer.join().expect("no thread panics");
}
