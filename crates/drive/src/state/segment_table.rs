//! State of each segment. Segments that were never used take no memory: a drive may have millions of them,
//! and an image of a few KiB may claim to be such a drive.

use super::segment::Segment;

/// Segments in one piece of memory.
const CHUNK: usize = 64;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct SegmentTable {
    len: u32,
    /// Pieces in which no segment was ever used: `None`.
    chunks: Vec<Option<Box<[Segment; CHUNK]>>>,
}

impl SegmentTable {
    /// Adds segments that were never used, up to `len` of them.
    pub(crate) fn grow(&mut self, len: u32) {
        self.len = self.len.max(len);
        self.chunks.resize_with((self.len as usize).div_ceil(CHUNK), || None);
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn get(&self, segment: u32) -> &Segment {
        assert!(segment < self.len, "segment {segment} of {}", self.len);
        let at = segment as usize;
        self.chunks[at / CHUNK].as_ref().map_or(&Segment::BLANK, |chunk| &chunk[at % CHUNK])
    }

    pub(crate) fn get_mut(&mut self, segment: u32) -> &mut Segment {
        assert!(segment < self.len, "segment {segment} of {}", self.len);
        let at = segment as usize;
        let chunk = self.chunks[at / CHUNK].get_or_insert_with(|| Box::new([Segment::BLANK; CHUNK]));
        &mut chunk[at % CHUNK]
    }

    /// Segments in rising order, without those in pieces of which none was ever used.
    pub(crate) fn known(&self) -> impl DoubleEndedIterator<Item = (u32, &Segment)> {
        let chunks =
            self.chunks.iter().enumerate().filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)));
        let segments = chunks.flat_map(|(number, chunk)| {
            chunk.iter().enumerate().map(move |(at, segment)| ((number * CHUNK + at) as u32, segment))
        });
        segments.filter(|(segment, _)| *segment < self.len)
    }
}
