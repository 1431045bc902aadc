//! Vouching: tells a pack that a crash took from one that the medium lost.

use std::collections::{BTreeSet, HashSet};

use layout::pack::{NextSegment, PackHeader};
use layout::{Checkpoint, PAGE_BYTES, SegmentRow, SegmentUse};
use media::Media;

use super::{Parsed, Reader};
use crate::error::Error;
use crate::open::slots::{Search, first_packs};

/// Most bytes of segments searched for packs behind a gap: twice what a checkpoint's log may fill by default.
const OPENED_MAX_BYTES: u64 = 2 << 30;
/// The same as a number of segments, if they are large: each head has opened a few.
const OPENED_MIN_COUNT: u64 = 64;
/// Most bytes searched of a segment that lies right behind a lost one.
const BEHIND_BYTES_MAX: u32 = 2 << 20;

/// Proof that a missing pack was once durable.
pub(super) struct Proof {
    pub(super) why: String,
    /// If the medium lost the pack and nothing else is known to be lost: everything up to this number was
    /// durable. `None` if a newer checkpoint is lost, which may have made the pack unnecessary.
    pub(super) durable: Option<u64>,
    /// A memory says so, and nothing on the backing was asked.
    pub(super) is_of_memory: bool,
}

/// Which proof is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seek {
    /// The first one.
    Any,
    /// The one that calls most durable: it serves for all packs up to there.
    Newest,
}

impl Seek {
    /// Keeps the better proof. Returns whether no other one is needed.
    fn ends(self, found: Option<Proof>, best: &mut Option<Proof>) -> bool {
        let Some(found) = found else { return false };
        let is_last = self == Seek::Any || found.durable.is_none();
        if is_last || best.as_ref().is_none_or(|best| best.durable < found.durable) {
            *best = Some(found);
        }
        is_last
    }
}

/// Why there may be packs in a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// The log says so.
    Log,
    /// Its first page looks like one. A page that cannot be read may be free.
    Guessed,
}

impl<M: Media> Reader<'_, M> {
    /// Returns the proof that a missing pack was once durable, from the checkpoint or from a pack behind the
    /// gap. Searches everything that follows in the heads' segments and in those named by packs behind the
    /// gap, page by page if no pack leads on. The missing pack may have been the only one to name where the
    /// log continues, so segments that may have been opened since the checkpoint are searched too. Sets
    /// `goes_on` if there are whole packs behind the gap at all. That a newer checkpoint is lost is the proof
    /// wherever it is met.
    ///
    /// A pack left behind by an earlier run proves nothing here, whatever its number: what it calls durable
    /// was found by the runs since, and their packs are numbered above it.
    pub(super) async fn vouched(
        &mut self,
        checkpoint: &Checkpoint,
        missing: u64,
        seek: Seek,
        goes_on: &mut bool,
    ) -> Result<Option<Proof>, Error> {
        if checkpoint.durable >= missing {
            let why = format!(
                "pack {missing} is missing or torn, but checkpoint {} says everything up to {} was durable",
                checkpoint.number, checkpoint.durable
            );
            return Ok(Some(Proof { why, durable: Some(checkpoint.durable), is_of_memory: false }));
        }
        if let Some(proven) = self.proven.filter(|proven| proven.written.max(proven.durable) >= missing) {
            let (what, up_to) = match missing <= proven.durable {
                true => ("durable", proven.durable),
                false => ("written", proven.written),
            };
            let why = format!(
                "pack {missing} is missing or torn, but the memory of the killed server says everything up to {up_to} \
                 was {what}"
            );
            let durable = Some(proven.written.max(proven.durable));
            return Ok(Some(Proof { why, durable, is_of_memory: true }));
        }
        let mut best = None;
        let mut places = Vec::new();
        for (i, cursor) in self.cursors.iter().enumerate() {
            let its = cursor.places().into_iter();
            places.extend(its.map(|(segment, offset)| (i, segment, offset, Ground::Log)));
        }
        if self.vouched_behind(checkpoint, missing, seek, &mut best).await {
            return Ok(best);
        }
        let maybe = self.opened_since(checkpoint, missing).await?;
        places.extend(maybe.into_iter().map(|(i, segment, offset)| (i, segment, offset, Ground::Guessed)));
        let key = |segment: NextSegment| (segment.segment, segment.generation);
        let mut seen: HashSet<(u32, u32)> = places.iter().map(|place| key(place.1)).collect();
        while let Some((i, segment, from, ground)) = places.pop() {
            if !segment.is_some() || segment.segment >= self.geometry.segments() {
                continue;
            }
            let mut offset = from;
            while offset < self.geometry.segment_bytes {
                // Only at the place where the log names its next pack, a read error must not pass for a free
                // page.
                let may_be_free = ground == Ground::Guessed || checkpoint.clean || offset > from;
                let candidate = match self.candidate(i, segment, offset).await {
                    Err(_) if may_be_free => None,
                    candidate => candidate?,
                };
                let Some(pack) = candidate else {
                    offset += PAGE_BYTES as u32;
                    continue;
                };
                let is_whole = pack.is_whole();
                let Parsed { header, .. } = pack;
                if seek.ends(vouches(&header, checkpoint, missing), &mut best) {
                    return Ok(best);
                }
                *goes_on |= is_whole && header.sequence > missing;
                let on = header.next.into_iter().enumerate().filter(|(_, next)| seen.insert(key(*next)));
                places.extend(on.map(|(head, next)| (head, next, 0, ground)));
                offset += header.len;
            }
        }
        Ok(best)
    }

    /// Searches right behind the segments that the log names as next for proof that the missing pack was
    /// durable: a lost stretch of the medium may hold all of such a segment, and the beginning of the one
    /// that was opened after it. Returns whether the search is over.
    async fn vouched_behind(
        &mut self,
        checkpoint: &Checkpoint,
        missing: u64,
        seek: Seek,
        best: &mut Option<Proof>,
    ) -> bool {
        let known = self.cursors.iter().flat_map(|cursor| cursor.promised.iter().chain([&cursor.current]));
        let known: HashSet<u32> = known.filter(|next| next.is_some()).map(|next| next.segment).collect();
        let behind: BTreeSet<u32> = known.iter().map(|segment| segment + 1).collect();
        let bytes = self.geometry.segment_bytes.min(BEHIND_BYTES_MAX);
        for segment in behind.into_iter().filter(|segment| !known.contains(segment)) {
            if checkpoint.clean || checkpoint.rows.get(segment as usize).is_none_or(|row| !was_free(row)) {
                continue;
            }
            let mut offset = 0;
            while offset < bytes {
                // What cannot be read may be free.
                let found = self.pack_behind(segment, offset, missing).await.ok().flatten();
                let Some(header) = found else {
                    offset += PAGE_BYTES as u32;
                    continue;
                };
                if seek.ends(vouches(&header, checkpoint, missing), best) {
                    return true;
                }
                offset += header.len;
            }
        }
        false
    }

    /// Returns the header of a pack numbered above the missing one. It is right, even if data in the pack is
    /// not.
    async fn pack_behind(
        &mut self,
        segment: u32,
        offset: u32,
        missing: u64,
    ) -> Result<Option<PackHeader>, Error> {
        // Of no known filling: nothing is made again.
        let any = NextSegment { segment, generation: 0 };
        let Some(header) = self.header_at(0, any, offset).await? else { return Ok(None) };
        if header.uuid != self.uuid || header.sequence < missing {
            return Ok(None);
        }
        let filling = NextSegment { segment, generation: header.generation };
        Ok(self.pack_at(header.head as usize, filling, offset).await?.map(|pack| pack.header))
    }

    /// Returns what may be a pack of this filling of a segment, if its headers are right.
    async fn candidate(
        &mut self,
        i: usize,
        segment: NextSegment,
        offset: u32,
    ) -> Result<Option<Parsed>, Error> {
        match self.header_at(i, segment, offset).await? {
            Some(header) if header.uuid == self.uuid && header.generation == segment.generation => {
                self.pack_at(i, segment, offset).await
            }
            _ => Ok(None),
        }
    }

    /// Returns segments that begin with the missing pack or one after it, of those that were free for this
    /// log: head and place. The lowest numbers are handed out first. The missing pack may be there and whole
    /// if only a lost checkpoint led to it: it knows that checkpoint. A damaged pack proves nothing, but
    /// those behind it may.
    async fn opened_since(
        &self,
        checkpoint: &Checkpoint,
        missing: u64,
    ) -> Result<Vec<(usize, NextSegment, u32)>, Error> {
        if checkpoint.clean {
            // Nothing was written after it: the next run's first checkpoint comes before its first pack of
            // data.
            return Ok(Vec::new());
        }
        let most = (OPENED_MAX_BYTES / u64::from(self.geometry.segment_bytes)).max(OPENED_MIN_COUNT) as usize;
        let rows = (0..).zip(checkpoint.rows.iter());
        let free = rows.filter(|(_, row)| was_free(row)).map(|(segment, _)| segment);
        let candidates: Vec<u32> = free.take(most).collect();
        let place = (&self.uuid, self.geometry);
        let behind = |header: &PackHeader| header.sequence >= missing;
        let found = first_packs(self.media, place, candidates.into_iter(), behind, Search::All).await?;
        let to_place = |header: PackHeader| {
            let segment = NextSegment { segment: header.segment, generation: header.generation };
            (header.head as usize, segment, 0)
        };
        Ok(found.into_iter().map(to_place).collect())
    }
}

/// Returns whether a segment may have been opened since the checkpoint.
pub(crate) fn was_free(row: &SegmentRow) -> bool {
    row.usage == SegmentUse::Free || row.live_units == 0
}

/// Returns the proof that the missing pack was once durable, if a pack behind the gap gives it.
fn vouches(header: &PackHeader, checkpoint: &Checkpoint, missing: u64) -> Option<Proof> {
    let gone = format!("pack {missing} is missing or torn");
    if header.checkpoint > checkpoint.number {
        let (pack, known) = (header.sequence, header.checkpoint);
        let newest = checkpoint.number;
        let why = format!("{gone}, and pack {pack} knows checkpoint {known}, the newest found is {newest}");
        return Some(Proof { why, durable: None, is_of_memory: false });
    }
    let why = || {
        let (pack, durable) = (header.sequence, header.durable);
        format!("{gone}, but pack {pack} says everything up to {durable} was durable")
    };
    let durable = Some(header.durable);
    (header.durable >= missing).then(|| Proof { why: why(), durable, is_of_memory: false })
}
