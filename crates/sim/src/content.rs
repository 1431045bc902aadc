//! What the simulator writes: sectors that tell which write they came from.

/// The unit of the oracle, in bytes: the smallest thing a host can write, whatever the drive's sector size.
pub const SECTOR_BYTES: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"simulate");
const STAMP_BYTES: usize = 24;

/// How the sectors of a write look to a compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// All zeros: what trim and write-zeroes leave too.
    Zero,
    /// One byte, repeated.
    Byte,
    /// One 8-byte word, repeated, and no other write's.
    Word,
    /// Stamped, the rest compresses well.
    Text,
    /// Stamped, the rest compresses to about a half.
    Mixed,
    /// Stamped, the rest does not compress.
    Random,
}

impl Filler {
    /// All of them.
    pub const ALL: [Filler; 6] =
        [Filler::Zero, Filler::Byte, Filler::Word, Filler::Text, Filler::Mixed, Filler::Random];

    fn word(self, write: u32) -> Option<u64> {
        match self {
            Filler::Zero => Some(0),
            Filler::Byte => Some((1 + u64::from(write) % 255) * 0x0101_0101_0101_0101),
            Filler::Word => Some(0x5e00_0000_0000_00a1 | (u64::from(write) << 16)),
            Filler::Text | Filler::Mixed | Filler::Random => None,
        }
    }
}

/// What a sector holds, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// This 8-byte word, repeated. Says which write it came from only with luck: zeros are everyone's.
    Fill(u64),
    /// A sector of this write, whole and at its place.
    Stamp(u32),
    /// A sector of this write that belongs elsewhere.
    Misplaced(u32, u64),
    /// Nothing that was ever written.
    Garbage,
}

impl Value {
    /// What a sector holds that was never written.
    pub const ZERO: Value = Value::Fill(0);

    /// What the sectors of a write hold.
    pub fn of(write: u32, filler: Filler) -> Value {
        filler.word(write).map_or(Value::Stamp(write), Value::Fill)
    }

    /// What this sector holds.
    pub fn identify(sector: u64, bytes: &[u8]) -> Value {
        let word = word_at(bytes, 0);
        if bytes.chunks_exact(8).all(|chunk| word.to_le_bytes() == *chunk) {
            return Value::Fill(word);
        }
        let write = word_at(bytes, 16) as u32;
        let filler = Filler::ALL.get((word_at(bytes, 16) >> 32) as usize);
        let (MAGIC, Some(&filler)) = (word, filler) else { return Value::Garbage };
        let place = word_at(bytes, 8);
        let mut wanted = [0; SECTOR_BYTES];
        fill_sector(&mut wanted, place, write, filler);
        match (bytes == wanted, place == sector) {
            (false, _) => Value::Garbage,
            (true, true) => Value::Stamp(write),
            (true, false) => Value::Misplaced(write, place),
        }
    }
}

/// The bytes of a write of whole sectors.
pub fn fill(out: &mut [u8], first_sector: u64, write: u32, filler: Filler) {
    for (sector, bytes) in (first_sector..).zip(out.chunks_exact_mut(SECTOR_BYTES)) {
        fill_sector(bytes, sector, write, filler);
    }
}

fn fill_sector(out: &mut [u8], sector: u64, write: u32, filler: Filler) {
    if let Some(word) = filler.word(write) {
        out.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word.to_le_bytes()));
        return;
    }
    let random_bytes = match filler {
        Filler::Random => SECTOR_BYTES,
        Filler::Mixed => SECTOR_BYTES / 2,
        _ => STAMP_BYTES,
    };
    let mut noise = (sector << 32) ^ u64::from(write) ^ MAGIC;
    for (at, chunk) in out.chunks_exact_mut(8).enumerate() {
        let word = match at * 8 {
            0 => MAGIC,
            8 => sector,
            16 => u64::from(write) | ((filler as u64) << 32),
            at if at < random_bytes => {
                noise = noise.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (noise ^ (noise >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
                mixed ^ (mixed >> 32)
            }
            at => u64::from_le_bytes(*b"the rock") ^ (at as u64 & 56) ^ u64::from(write & 7),
        };
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filler_is_told_apart() {
        for (write, filler) in (7..).zip(Filler::ALL) {
            let mut bytes = vec![0; 4 * SECTOR_BYTES];
            fill(&mut bytes, 100, write, filler);
            for (sector, bytes) in (100..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
                assert_eq!(Value::identify(sector, bytes), Value::of(write, filler), "{filler:?}");
            }
        }
    }

    #[test]
    fn a_changed_or_misplaced_sector_is_noticed() {
        let mut bytes = vec![0; SECTOR_BYTES];
        fill(&mut bytes, 100, 1, Filler::Random);
        assert_eq!(Value::identify(101, &bytes), Value::Misplaced(1, 100));
        bytes[300] ^= 1;
        assert_eq!(Value::identify(100, &bytes), Value::Garbage);
    }
}
