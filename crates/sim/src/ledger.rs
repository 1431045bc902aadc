//! Data that the simulator keeps on a drive while nothing else is in progress. It is written, trimmed and
//! read back block by block.
//!
//! On drives that are large or have to be filled, the oracle's record of each sector would cost too much. It
//! is not needed either, because there is one request at a time. A block holds what was written last. After a
//! crash it holds that, or its content at any time since the last flush, until it has been read. All this
//! data is after the range that clients use, in the annex of [`Config`](crate::Config).

use rustc_hash::FxHashMap;

use crate::content::{self, Filler, SECTOR_BYTES, Value};
use crate::oracle::Violation;

/// Size of a block in bytes.
pub const BLOCK_BYTES: u64 = 4096;
const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;
/// First version number. Versions differ from the write numbers of the oracle.
const FIRST_VERSION: u32 = 1 << 31;

/// Data of one write: a range of blocks with one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First block of the drive.
    pub first: u64,
    /// Number of blocks.
    pub count: u64,
    /// Version: identifies the write.
    pub version: u32,
}

impl Piece {
    /// Offset on the drive in bytes.
    pub fn offset(&self) -> u64 {
        self.first * BLOCK_BYTES
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.count * BLOCK_BYTES
    }
}

/// The record; see the module documentation.
#[derive(Clone)]
pub struct Ledger {
    /// First block of the annex.
    first: u64,
    /// Version of each block that was ever written, 0 for zeros. For a block in doubt, the newest version
    /// that it may have.
    now: Vec<u32>,
    /// Earlier versions that blocks had since the last flush.
    before: FxHashMap<u64, Vec<u32>>,
    /// Versions that blocks may have which were not read since a crash.
    doubt: FxHashMap<u64, Vec<u32>>,
    fillers: Vec<Filler>,
    /// All writes, including overwritten ones.
    pieces: Vec<Piece>,
    /// First block that, like all after it, was never written.
    fresh: u64,
}

impl Ledger {
    /// Creates the record of an annex that begins at block `first`.
    pub fn new(first: u64) -> Ledger {
        Ledger {
            first,
            now: Vec::new(),
            before: FxHashMap::default(),
            doubt: FxHashMap::default(),
            fillers: Vec::new(),
            pieces: Vec::new(),
            fresh: first,
        }
    }

    /// The first block that was never written.
    pub fn fresh_block(&self) -> u64 {
        self.fresh
    }

    /// Number of blocks that may hold data now.
    pub fn mapped_blocks(&self) -> u64 {
        let trimmed = |block: &u64| self.now[(block - self.first) as usize] == 0;
        let doubtful = self.doubt.keys().filter(|block| trimmed(block)).count();
        (self.now.iter().filter(|&&version| version != 0).count() + doubtful) as u64
    }

    /// Range of all blocks that ever held data: first block and number of blocks.
    pub fn used(&self) -> (u64, u64) {
        (self.first, self.fresh - self.first)
    }

    /// Prepares a write with unique data.
    pub fn draft(&mut self, first: u64, count: u64, filler: Filler) -> Piece {
        self.fillers.push(filler);
        Piece { first, count, version: FIRST_VERSION + self.fillers.len() as u32 - 1 }
    }

    /// Returns the data of a piece.
    pub fn data(&self, piece: &Piece) -> Vec<u8> {
        let mut data = vec![0; piece.len_bytes() as usize];
        content::fill(&mut data, piece.first * BLOCK_SECTORS, piece.version, self.filler(piece.version));
        data
    }

    /// Filler of the piece with this version.
    pub fn filler(&self, version: u32) -> Filler {
        self.fillers[(version - FIRST_VERSION) as usize]
    }

    /// Records that a piece was written. It may have been written before.
    pub fn wrote(&mut self, piece: Piece) {
        self.set(piece.first, piece.count, piece.version);
        if self.pieces.last() != Some(&piece) {
            self.pieces.push(piece);
        }
    }

    /// Records that blocks were trimmed or zeroed.
    pub fn zeroed(&mut self, first: u64, count: u64) {
        self.set(first, count, 0);
    }

    fn set(&mut self, first: u64, count: u64, version: u32) {
        self.fresh = self.fresh.max(first + count);
        self.now.resize((self.fresh - self.first) as usize, 0);
        for block in first..first + count {
            let now = &mut self.now[(block - self.first) as usize];
            let held = self.doubt.remove(&block).unwrap_or_else(|| vec![*now]);
            if held != [version] {
                self.before.entry(block).or_default().extend(held);
            }
            *now = version;
        }
    }

    /// Records that everything so far is durable.
    pub fn flushed(&mut self) {
        self.before.clear();
    }

    /// Records a crash: everything that was not flushed is in doubt.
    pub fn crashed(&mut self) {
        for (block, mut held) in self.before.drain() {
            held.push(self.now[(block - self.first) as usize]);
            self.doubt.insert(block, held);
        }
    }

    /// Returns the piece with this number, modulo the number of pieces. `None` if a part of it was
    /// overwritten or is in doubt.
    pub fn intact(&self, number: u64) -> Option<Piece> {
        let piece = self.pieces.get(number as usize % self.pieces.len().max(1))?;
        let from = (piece.first - self.first) as usize;
        let whole = self.now[from..from + piece.count as usize].iter().all(|&v| v == piece.version);
        let sure = (piece.first..piece.first + piece.count).all(|block| !self.doubt.contains_key(&block));
        (whole && sure).then_some(*piece)
    }

    /// All pieces written, including overwritten ones.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Checks data that the drive returned from block `first` on, and records it as the content of blocks in
    /// doubt.
    ///
    /// # Errors
    /// The data found and the data expected, if they differ.
    pub fn observe(&mut self, first: u64, data: &[u8]) -> Result<(), Violation> {
        for (block, bytes) in (first..).zip(data.chunks_exact(BLOCK_BYTES as usize)) {
            let now = self.now.get((block - self.first) as usize).copied().unwrap_or(0);
            let allowed = self.doubt.get(&block).cloned().unwrap_or_else(|| vec![now]);
            let Some(version) = allowed.iter().copied().find(|&version| self.is(block, bytes, version))
            else {
                let allowed: Vec<String> =
                    allowed.into_iter().map(|version| self.describe(version)).collect();
                let seen = Value::identify(block * BLOCK_SECTORS, &bytes[..SECTOR_BYTES]);
                return Err(Violation(format!(
                    "block {block} of the annex begins with {seen:?}, and should be {}",
                    allowed.join(", or ")
                )));
            };
            if self.doubt.remove(&block).is_some() {
                self.now[(block - self.first) as usize] = version;
            }
        }
        Ok(())
    }

    fn is(&self, block: u64, bytes: &[u8], version: u32) -> bool {
        let wanted = if version == 0 { Value::ZERO } else { Value::of(version, self.filler(version)) };
        (block * BLOCK_SECTORS..)
            .zip(bytes.chunks_exact(SECTOR_BYTES))
            .all(|(sector, bytes)| Value::identify(sector, bytes) == wanted)
    }

    fn describe(&self, version: u32) -> String {
        if version == 0 { "zeros".into() } else { format!("{version:#x} ({:?})", self.filler(version)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (Ledger, Piece) {
        let mut ledger = Ledger::new(100);
        let piece = ledger.draft(ledger.fresh_block(), 2, Filler::Random);
        ledger.wrote(piece);
        (ledger, piece)
    }

    #[test]
    fn what_was_written_last_must_be_read() {
        let (mut ledger, piece) = written();
        let data = ledger.data(&piece);
        assert_eq!(ledger.observe(100, &data), Ok(()));
        assert!(ledger.observe(100, &[0; 4096]).is_err());
        assert!(ledger.observe(101, &data[..4096]).is_err(), "another block's");
        assert_eq!((ledger.fresh_block(), ledger.mapped_blocks(), ledger.intact(7)), (102, 2, Some(piece)));
    }

    #[test]
    fn what_was_flushed_survives_and_what_was_shown_stays() {
        let (mut ledger, piece) = written();
        let data = ledger.data(&piece);
        ledger.crashed();
        assert_eq!(ledger.intact(0), None, "in doubt");
        assert_eq!(ledger.observe(100, &[0; 4096]), Ok(()), "was not flushed");
        assert!(ledger.observe(100, &data[..4096]).is_err(), "was shown as zeros");
        ledger.flushed();
        assert_eq!(
            ledger.observe(101, &data[4096..]),
            Ok(()),
            "nobody had looked, so a flush proves nothing"
        );
        ledger.crashed();
        assert!(ledger.observe(101, &[0; 4096]).is_err(), "was shown as data");
        ledger.zeroed(101, 1);
        ledger.flushed();
        ledger.crashed();
        assert!(ledger.observe(101, &data[4096..]).is_err(), "was flushed as zeros");
        assert_eq!((ledger.mapped_blocks(), ledger.intact(0)), (0, None));
    }
}
