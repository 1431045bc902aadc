//! Data written since the drive was opened, by how it was compressed.

use codec::{CodecId, Policy};
use layout::{BLOCK_BYTES, RecordHeader};

/// Ways of compressing that are distinguished. Dictionaries trained after that number are counted together.
const WAYS_MAX: usize = 64;

/// Blocks of one kind, and their space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Bytes of logical space.
    pub logical_bytes: u64,
    /// Bytes of the backing, with headers.
    pub physical_bytes: u64,
}

/// Data written in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Codec.
    pub codec: CodecId,
    /// Level of zstd or deflate; `None`: the codec has none.
    pub level: Option<i8>,
    /// The dictionary it needs, 0: none; `None`: one of several that are not distinguished.
    pub dictionary: Option<u16>,
    /// Written by settling; otherwise by requests.
    pub settled: bool,
    /// Amount.
    pub share: Share,
}

type Key = (CodecId, Option<i8>, Option<u16>, bool);

impl Written {
    fn key(&self) -> Key {
        (self.codec, self.level, self.dictionary, self.settled)
    }
}

/// Returns the level at which a policy compresses, if it has one.
pub(crate) fn level_of(policy: Policy) -> Option<i8> {
    match policy {
        Policy::Auto => Some(1),
        Policy::Zstd(level) => Some(level),
        Policy::Deflate(level) => i8::try_from(level).ok(),
        Policy::Lz4 | Policy::None => None,
    }
}

/// Counts records as they are appended.
#[derive(Default)]
pub(crate) struct Tally {
    ways: Vec<Written>,
    /// Way of the previous record. The next one mostly belongs there too.
    last: usize,
}

impl Tally {
    /// Counts a data record. `level` is that of the policy.
    pub(crate) fn add(&mut self, header: &RecordHeader, level: Option<i8>) {
        let Ok(codec) = CodecId::try_from(header.codec_number()) else { return };
        let level = level.filter(|_| matches!(codec, CodecId::Zstd | CodecId::Structured | CodecId::Deflate));
        let key = (codec, level, Some(header.extra), header.is_settled());
        if self.ways.get(self.last).is_none_or(|way| way.key() != key) {
            self.last = self.place(key);
        }
        let share = &mut self.ways[self.last].share;
        share.logical_bytes += header.blocks() * BLOCK_BYTES as u64;
        share.physical_bytes += header.record_len() as u64;
    }

    fn place(&mut self, key: Key) -> usize {
        let find = |ways: &[Written], key| ways.iter().position(|way| way.key() == key);
        if let Some(at) = find(&self.ways, key) {
            return at;
        }
        let (codec, level, dictionary, settled) = key;
        // Without dictionaries there are few ways, which always have a place.
        let dictionary = dictionary.filter(|id| *id == 0 || self.ways.len() < WAYS_MAX);
        find(&self.ways, (codec, level, dictionary, settled)).unwrap_or_else(|| {
            self.ways.push(Written { codec, level, dictionary, settled, share: Share::default() });
            self.ways.len() - 1
        })
    }

    /// Returns all ways, in a stable order.
    pub(crate) fn ways(&self) -> Vec<Written> {
        let mut ways = self.ways.clone();
        ways.sort_by_key(|way| (way.codec as u8, way.settled, way.level, way.dictionary));
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::batch::summed;
    use layout::RecordKind;

    fn header(id: CodecId, dictionary: u16, settled: bool) -> RecordHeader {
        summed(RecordKind::Data, 8, RecordHeader::data_codec(id as u8, 2, settled), dictionary, &[0; 100])
    }

    #[test]
    fn every_way_is_counted_by_itself() {
        let mut tally = Tally::default();
        tally.add(&header(CodecId::Zstd, 3, false), Some(1));
        tally.add(&header(CodecId::Zstd, 3, true), Some(6));
        tally.add(&header(CodecId::Zstd, 3, false), Some(1));
        tally.add(&header(CodecId::Lz4, 0, false), Some(1));
        let ways: Vec<_> = tally
            .ways()
            .into_iter()
            .map(|way| (way.codec, way.level, way.dictionary, way.settled, way.share.logical_bytes))
            .collect();
        assert_eq!(
            ways,
            [
                (CodecId::Lz4, None, Some(0), false, 8192),
                (CodecId::Zstd, Some(1), Some(3), false, 16_384),
                (CodecId::Zstd, Some(6), Some(3), true, 8192),
            ]
        );
    }

    #[test]
    fn dictionaries_without_number_do_not_take_memory_without_end() {
        let mut tally = Tally::default();
        for id in 1..1000 {
            tally.add(&header(CodecId::Zstd, id, false), Some(1));
            tally.add(&header(CodecId::Zstd, 0, false), Some(1));
        }
        let ways = tally.ways();
        assert_eq!(ways.len(), WAYS_MAX + 1);
        let sum: u64 = ways.iter().map(|way| way.share.logical_bytes).sum();
        assert_eq!(sum, 2 * 999 * 8192);
        assert_eq!(ways.iter().filter(|way| way.dictionary.is_none()).count(), 1);
        let none = ways.iter().find(|way| way.dictionary == Some(0)).map(|way| way.share.logical_bytes);
        assert_eq!(none, Some(999 * 8192));
    }
}
