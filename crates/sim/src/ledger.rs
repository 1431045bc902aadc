//! What the simulator keeps on a drive while nothing else is under way: written, trimmed and read back block by block.
//!
//! Where the drive is large or has to be filled, the oracle's account of each sector would cost too much, and is not needed:
//! one request at a time, so a block holds what was written last, and after a crash that or what it held at any time since
//! the last flush, until somebody has looked. All of it lies behind what clients use: the annex of [`Config`](crate::Config).

use rustc_hash::FxHashMap;

use crate::content::{self, Filler, SECTOR_BYTES, Value};

/// Of a block, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;
/// Versions are no numbers of the oracle's.
const FIRST_VERSION: u32 = 1 << 31;

/// What one write left: so many blocks of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First block of the drive.
    pub first: u64,
    /// Blocks.
    pub count: u64,
    /// Which write it was.
    pub version: u32,
}

impl Piece {
    /// Where on the drive it begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.first * BLOCK_BYTES
    }

    /// How long it is in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.count * BLOCK_BYTES
    }
}

/// The account. See the module's header.
#[derive(Clone)]
pub struct Ledger {
    /// First block of the annex.
    first: u64,
    /// Version of each block that was ever written, 0 for zeros; of one in doubt, the newest it may have.
    now: Vec<u32>,
    /// What blocks held since the last flush.
    before: FxHashMap<u64, Vec<u32>>,
    /// What blocks may hold that nobody has looked at since a crash.
    doubt: FxHashMap<u64, Vec<u32>>,
    fillers: Vec<Filler>,
    /// Every write, the overwritten ones too.
    pieces: Vec<Piece>,
    /// The block that was never written, and all behind it.
    fresh: u64,
}

impl Ledger {
    /// An account of an annex that begins at this block.
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

    /// Blocks that may hold something now.
    pub fn mapped_blocks(&self) -> u64 {
        let trimmed = |block: &u64| self.now[(block - self.first) as usize] == 0;
        let doubtful = self.doubt.keys().filter(|block| trimmed(block)).count();
        (self.now.iter().filter(|&&version| version != 0).count() + doubtful) as u64
    }

    /// All blocks that ever held something: first, and how many.
    pub fn used(&self) -> (u64, u64) {
        (self.first, self.fresh - self.first)
    }

    /// A write to be, with data of its own.
    pub fn draft(&mut self, first: u64, count: u64, filler: Filler) -> Piece {
        self.fillers.push(filler);
        Piece { first, count, version: FIRST_VERSION + self.fillers.len() as u32 - 1 }
    }

    /// The bytes of a piece.
    pub fn data(&self, piece: &Piece) -> Vec<u8> {
        let mut data = vec![0; piece.len_bytes() as usize];
        content::fill(&mut data, piece.first * BLOCK_SECTORS, piece.version, self.filler(piece.version));
        data
    }

    /// How that piece looks to a compressor.
    pub fn filler(&self, version: u32) -> Filler {
        self.fillers[(version - FIRST_VERSION) as usize]
    }

    /// A piece was written, maybe again.
    pub fn wrote(&mut self, piece: Piece) {
        self.set(piece.first, piece.count, piece.version);
        if self.pieces.last() != Some(&piece) {
            self.pieces.push(piece);
        }
    }

    /// Blocks were trimmed or zeroed.
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

    /// Everything so far is durable.
    pub fn flushed(&mut self) {
        self.before.clear();
    }

    /// The drive crashed: what was not flushed is in doubt.
    pub fn crashed(&mut self) {
        for (block, mut held) in self.before.drain() {
            held.push(self.now[(block - self.first) as usize]);
            self.doubt.insert(block, held);
        }
    }

    /// The piece of that number, counted from the first, round and round; nothing if it is not whole any more.
    pub fn intact(&self, number: u64) -> Option<Piece> {
        let piece = self.pieces.get(number as usize % self.pieces.len().max(1))?;
        let from = (piece.first - self.first) as usize;
        let whole = self.now[from..from + piece.count as usize].iter().all(|&v| v == piece.version);
        let sure = (piece.first..piece.first + piece.count).all(|block| !self.doubt.contains_key(&block));
        (whole && sure).then_some(*piece)
    }

    /// A piece for each write, the overwritten ones too.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The drive showed this from block `first` on. What it shows is what there is.
    ///
    /// # Errors
    /// What is there and what may be there, if that does not agree.
    pub fn observe(&mut self, first: u64, data: &[u8]) -> Result<(), String> {
        for (block, bytes) in (first..).zip(data.chunks_exact(BLOCK_BYTES as usize)) {
            let now = self.now.get((block - self.first) as usize).copied().unwrap_or(0);
            let allowed = self.doubt.get(&block).cloned().unwrap_or_else(|| vec![now]);
            let Some(version) = allowed.iter().copied().find(|&version| self.is(block, bytes, version))
            else {
                let allowed: Vec<String> =
                    allowed.into_iter().map(|version| self.describe(version)).collect();
                let seen = Value::identify(block * BLOCK_SECTORS, &bytes[..SECTOR_BYTES]);
                return Err(format!(
                    "block {block} of the annex begins with {seen:?}, and should be {}",
                    allowed.join(", or ")
                ));
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
