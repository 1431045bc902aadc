//! Reading many records at once: in the order of their places, neighbours with one read.

use std::ops::Range;

use futures::stream::{Stream, StreamExt};
use layout::{Entry, Geometry};
use media::{IoBuf, Media};

use crate::shared::Shared;
use crate::state::pins::Pin;

/// Reads of the medium at a time.
const READS_IN_FLIGHT: usize = 64;
/// Largest read: together they take 16 MiB at most.
const RUN_MAX_BYTES: u64 = 256 * 1024;
/// Records closer together than this are fetched with one read, because another one would cost more.
const GAP_MAX_BYTES: u64 = 16 * 1024;

/// Records of one read, all in one segment.
struct Run {
    items: Range<usize>,
    segment: u32,
    position: u64,
    len: usize,
}

/// Result of a read.
pub(super) struct Fetched {
    /// Range of the records.
    pub(super) items: Range<usize>,
    position: u64,
    /// The bytes, and the offset in them at which the run begins; `None` if the read failed.
    bytes: Option<(IoBuf, usize)>,
    /// Nobody writes there while they are examined.
    _pin: Pin,
}

impl Fetched {
    /// Returns the bytes of a record of this run, unless they could not be read.
    pub(super) fn bytes_of(&self, entry: Entry) -> Option<&[u8]> {
        let (buf, at) = self.bytes.as_ref()?;
        let from = (entry.position_bytes() - self.position) as usize + at;
        buf.get(from..from + entry.len_bytes())
    }
}

/// Groups records, which are sorted by position.
fn runs_of(entries: impl Iterator<Item = Entry>, geometry: &Geometry) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, entry) in entries.enumerate() {
        let (position, len) = (entry.position_bytes(), entry.len_bytes() as u64);
        let segment = geometry.locate(position).map_or(0, |(segment, _)| segment);
        match runs.last_mut() {
            Some(run)
                if run.segment == segment
                    && position <= run.position + run.len as u64 + GAP_MAX_BYTES
                    && position + len - run.position <= RUN_MAX_BYTES =>
            {
                run.len = run.len.max((position + len - run.position) as usize);
                run.items.end = index + 1;
            }
            _ => runs.push(Run { items: index..index + 1, segment, position, len: len as usize }),
        }
    }
    runs
}

impl<M: Media> Shared<M> {
    /// Reads records, which are sorted by position. Returns them run by run, in the order in which the reads
    /// end.
    pub(super) fn fetch_all<'a, E: Iterator<Item = Entry>>(
        &'a self,
        entries: E,
        geometry: &Geometry,
    ) -> impl Stream<Item = Fetched> + use<'a, E, M> {
        let runs = runs_of(entries, geometry);
        futures::stream::iter(runs).map(move |run| self.fetch_run(run)).buffer_unordered(READS_IN_FLIGHT)
    }

    async fn fetch_run(&self, run: Run) -> Fetched {
        let pin = self.core().segments.pin(run.segment);
        // If it fails, each record is read alone, so that only unreadable ones are missed. Nothing is
        // repaired here: these reads stand still while what others have read is verified, and a repair holds
        // its turn.
        let bytes = self.read_as_is(run.position, run.len).await.ok();
        Fetched { items: run.items, position: run.position, bytes, _pin: pin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_read_within_a_segment() {
        let geometry = Geometry::new(64 << 20, None).expect("a geometry");
        let base = geometry.segment_offset(0);
        let end = geometry.segment_offset(1);
        let at = |position: u64| Entry::record(position, 4096);
        let entries = [
            at(base),
            at(base + 4096),
            // Across a gap that is not worth a read.
            at(base + 8192 + GAP_MAX_BYTES),
            // Across one that is.
            at(base + 12288 + 2 * GAP_MAX_BYTES + 16),
            at(end - 4096),
            at(end),
        ];
        let runs = runs_of(entries.into_iter(), &geometry);
        let items: Vec<Range<usize>> = runs.iter().map(|run| run.items.clone()).collect();
        assert_eq!(items, [0..3, 3..4, 4..5, 5..6]);
        assert_eq!(runs[0].len as u64, 12288 + GAP_MAX_BYTES);
    }

    #[test]
    fn reads_are_bounded() {
        let geometry = Geometry::new(64 << 20, None).expect("a geometry");
        let base = geometry.segment_offset(0);
        let entries = (0..200).map(|i| Entry::record(base + i * 4096, 4096));
        let runs = runs_of(entries, &geometry);
        assert!(runs.iter().all(|run| run.len as u64 <= RUN_MAX_BYTES));
        assert_eq!(runs.len(), 4);
        assert_eq!(runs.iter().map(|run| run.items.len()).sum::<usize>(), 200);
    }
}
