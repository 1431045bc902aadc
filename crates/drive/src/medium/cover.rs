//! What the pages of a filling can be made again from: the others of their groups, parity, and the list of
//! checksums, on the medium or in memory.
//!
//! Wrong data is impossible, whatever parity holds: what is made counts only if its checksum is in the list.

use std::collections::BTreeMap;
use std::sync::Arc;

use layout::parity::parity_mask;
use layout::{Geometry, PAGE_BYTES, ParityForm, ParityIndex, ParityShape};
use media::{IoBuf, Media};

use crate::planted::{Planted, PlantedBug};
use crate::state::accumulator::{Accumulator, FillingId, mask, xor};
use crate::sync::{AtomicU64, Mutex, Ordering};

const PAGE: u32 = PAGE_BYTES as u32;
/// With more groups to be made again than one in so many, a filling is read once, front to back.
const WHOLE_PART: usize = 8;
/// Bytes read at once then.
const WINDOW_PAGES: u32 = 256;

/// A drive and its medium, as far as parity needs to know them.
pub(crate) struct Of<'a, M> {
    pub(crate) media: &'a M,
    pub(crate) geometry: Geometry,
    pub(crate) log_id: &'a [u8; 16],
    /// See [`drive_tag`](layout::pack::drive_tag).
    pub(crate) tag: u32,
    /// Counts what is read.
    pub(crate) read_bytes: &'a AtomicU64,
    /// Counts pages that cannot be read.
    pub(crate) failed_reads: Option<&'a AtomicU64>,
    pub(crate) planted: Planted,
}

/// What the pages of a filling are made again from.
pub(crate) struct Cover<'a, M> {
    of: Of<'a, M>,
    id: FillingId,
    shape: ParityShape,
    from: From,
    /// Pages that were made again lately: on the medium they are still as they were found.
    made: BTreeMap<u32, Arc<[u8]>>,
}

enum From {
    /// The filling is of this run, and its parity is in memory.
    Memory(Arc<Mutex<Accumulator>>),
    /// It is on the medium.
    Medium(Arc<ParityIndex>),
}

/// A group of which one page is made again.
struct Work {
    /// The page of the filling.
    bad: u32,
    /// XOR of the parity and of members so far.
    sum: Vec<u8>,
    /// Members to be added, with their checksums.
    members: Vec<(u32, u32)>,
}

/// Pages that were read together.
struct Window {
    from: u32,
    /// `None` if that failed.
    buf: Option<IoBuf>,
}

/// Divides pages into windows: returns the first and the last page of each.
fn windows(sums: &BTreeMap<u32, u32>) -> Vec<(u32, u32)> {
    let mut windows: Vec<(u32, u32)> = Vec::new();
    for page in sums.keys() {
        match windows.last_mut() {
            Some((from, last)) if *page < *from + WINDOW_PAGES => *last = *page,
            _ => windows.push((*page, *page)),
        }
    }
    windows
}

impl<M> Clone for Of<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Of<'_, M> {}

impl<'a, M: Media> Of<'a, M> {
    /// The cover of a filling whose parity is in memory.
    pub(crate) fn in_memory(self, id: FillingId, accumulator: Arc<Mutex<Accumulator>>) -> Cover<'a, M> {
        let shape = *accumulator.lock().shape();
        Cover { of: self, id, shape, from: From::Memory(accumulator), made: BTreeMap::new() }
    }

    /// The cover of a filling whose parity is on the medium, if it is. Without its form, it is looked for
    /// where each form has it. `last_pack`: its last pack, if that is known.
    pub(crate) async fn on_medium(
        self,
        id: FillingId,
        form: Option<ParityForm>,
        last_pack: Option<u64>,
    ) -> Option<Cover<'a, M>> {
        let (index, shape) = self.read_index(id, form, last_pack).await?;
        Some(self.listed(id, shape, Arc::new(index)))
    }

    /// The same, with its index.
    pub(crate) fn listed(self, id: FillingId, shape: ParityShape, index: Arc<ParityIndex>) -> Cover<'a, M> {
        Cover { of: self, id, shape, from: From::Medium(index), made: BTreeMap::new() }
    }

    fn count_failed_read(&self) {
        if let Some(count) = self.failed_reads {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads the index of a filling that is not written any more: one of its copies is enough. A copy that
    /// ends with another pack is of parity that was made before a crash took the end of the filling.
    async fn read_index(
        self,
        id: FillingId,
        form: Option<ParityForm>,
        last_pack: Option<u64>,
    ) -> Option<(ParityIndex, ParityShape)> {
        let is_wanted = |shape: &ParityShape| form.is_none_or(|form| form == shape.form());
        let all = ParityForm::ALL.map(|form| ParityShape::new(self.geometry.segment_bytes, form));
        let shapes = || all.iter().flatten().filter(|shape| is_wanted(shape));
        // The last copy is at the same place, whatever the form.
        let last = shapes().next().map(|shape| (shape.index_offsets()[1], shape.index_bytes()));
        let firsts = shapes().map(|shape| (shape.index_offsets()[0], shape.index_bytes()));
        for (offset, bytes) in firsts.chain(last) {
            let at = self.geometry.segment_offset(id.segment) + u64::from(offset);
            let (buf, read) = self.media.read(at, IoBuf::pooled(bytes)).await;
            let Ok(()) = read else {
                self.count_failed_read();
                continue;
            };
            let Ok((index, shape)) = ParityIndex::decode(&buf, self.geometry.segment_bytes) else { continue };
            let is_of_it =
                index.generation == id.generation && last_pack.is_none_or(|last| last == index.last_sequence);
            if index.log_id == *self.log_id
                && index.segment == id.segment
                && is_wanted(&shape)
                && (is_of_it || self.planted.has(PlantedBug::ParityOfOtherFilling))
            {
                return Some((index, shape));
            }
        }
        None
    }
}

impl<M> Cover<'_, M> {
    /// The same, with pages that were made again lately.
    pub(crate) fn with_made(self, made: BTreeMap<u32, Arc<[u8]>>) -> Self {
        Cover { made, ..self }
    }
}

impl<M: Media> Cover<'_, M> {
    /// The checksum of a page; `None` if it is no member.
    pub(crate) fn sum(&self, page: u32) -> Option<u32> {
        match &self.from {
            From::Memory(accumulator) => accumulator.lock().sum(page),
            From::Medium(index) => index.pages.get(page as usize).copied(),
        }
    }

    /// Its list of checksums, if that is on the medium.
    pub(crate) fn index(&self) -> Option<Arc<ParityIndex>> {
        match &self.from {
            From::Memory(_) => None,
            From::Medium(index) => Some(index.clone()),
        }
    }

    /// The last pack of a filling whose parity is on the medium.
    pub(crate) fn last_sequence(&self) -> Option<u64> {
        self.index().map(|index| index.last_sequence)
    }

    /// Returns the pages of parity on the medium, and of the copies of its index, that are not as they were
    /// written.
    pub(crate) async fn bad_parity(&self) -> Vec<u32> {
        let From::Medium(index) = &self.from else { return Vec::new() };
        let mut copy = IoBuf::zeroed(self.shape.index_bytes());
        index.encode(&self.shape, &mut copy);
        let copies = self.shape.index_offsets().into_iter().flat_map(|offset| {
            let pages = (offset / PAGE..).zip(copy.chunks_exact(PAGE_BYTES));
            pages.map(|(page, bytes)| (page, crc32c::crc32c(bytes)))
        });
        let parity =
            (0..).zip(&index.parity).map(|(group, sum)| (self.shape.parity_offset(group) / PAGE, *sum));
        let sums: BTreeMap<u32, u32> = copies.chain(parity).collect();
        let mut bad = Vec::new();
        self.read_pages(&sums, |page, bytes| bad.extend(bytes.is_none().then_some(page))).await;
        bad
    }

    /// Reads pages in their order, many at once. Of each, `each` gets the bytes, if they have its checksum.
    pub(crate) async fn read_pages(
        &self,
        sums: &BTreeMap<u32, u32>,
        mut each: impl FnMut(u32, Option<&[u8]>),
    ) {
        for (from, last) in windows(sums) {
            let window = self.read_window(from, last).await;
            for (page, expected) in sums.range(from..=last) {
                let mut alone = vec![0; PAGE_BYTES];
                each(*page, self.page_of(&window, *page, *expected, &mut alone).await);
            }
        }
    }

    async fn read_window(&self, from: u32, last: u32) -> Window {
        let len = (last + 1 - from) as usize * PAGE_BYTES;
        let at = self.position() + u64::from(from * PAGE);
        let (buf, read) = self.of.media.read(at, IoBuf::pooled(len)).await;
        self.of.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Window { from, buf: read.is_ok().then_some(buf) }
    }

    /// Returns a page of a window, if it has this checksum. If the window could not be read, reads it alone.
    async fn page_of<'b>(
        &self,
        window: &'b Window,
        page: u32,
        expected: u32,
        alone: &'b mut [u8],
    ) -> Option<&'b [u8]> {
        let begin = (page - window.from) as usize * PAGE_BYTES;
        let bytes = match &window.buf {
            Some(buf) if !self.made.contains_key(&page) => &buf[begin..begin + PAGE_BYTES],
            _ => self.read_page(page, alone).await.then_some(&*alone)?,
        };
        (crc32c::crc32c(bytes) == expected).then_some(bytes)
    }

    fn position(&self) -> u64 {
        self.of.geometry.segment_offset(self.id.segment)
    }

    /// Reads a page of the segment.
    pub(crate) async fn read_page(&self, page: u32, to: &mut [u8]) -> bool {
        if let Some(made) = self.made.get(&page) {
            to.copy_from_slice(made);
            return true;
        }
        let at = self.position() + u64::from(page * PAGE);
        let (buf, read) = self.of.media.read(at, IoBuf::pooled(PAGE_BYTES)).await;
        self.of.read_bytes.fetch_add(PAGE_BYTES as u64, Ordering::Relaxed);
        match read {
            Ok(()) => to.copy_from_slice(&buf),
            Err(_) => self.of.count_failed_read(),
        }
        read.is_ok()
    }

    /// Makes pages again, as far as that can be done.
    pub(crate) async fn make_again(&self, bad: &[u32]) -> BTreeMap<u32, Vec<u8>> {
        let shape = &self.shape;
        let mut groups: BTreeMap<u32, Option<Work>> = BTreeMap::new();
        for page in bad {
            let group = shape.group_of(*page);
            if let Some(known) = groups.get_mut(&group) {
                // Two of one group.
                *known = None;
                continue;
            }
            let work = self.begin_group(*page).await;
            groups.insert(group, work);
        }
        let mut works: Vec<Work> = groups.into_values().flatten().collect();
        if works.len() * WHOLE_PART > shape.groups() as usize && works.len() > 1 {
            works = self.add_members_in_order(works).await;
        } else {
            let mut done = Vec::new();
            for mut work in works {
                if self.add_members(&mut work).await {
                    done.push(work);
                }
            }
            works = done;
        }
        let is_right = |work: &Work| self.sum(work.bad) == Some(crc32c::crc32c(&work.sum));
        works.into_iter().filter(is_right).map(|work| (work.bad, work.sum)).collect()
    }

    /// Begins with the parity of the group of a page. Nothing if that is lost too.
    async fn begin_group(&self, bad: u32) -> Option<Work> {
        let group = self.shape.group_of(bad);
        let (sum, mut members) = match &self.from {
            From::Memory(accumulator) => accumulator.lock().group(group),
            From::Medium(index) => {
                let offset = self.shape.parity_offset(group);
                let mut page = vec![0; PAGE_BYTES];
                let read = self.read_page(offset / PAGE, &mut page).await;
                if !read || index.parity.get(group as usize) != Some(&crc32c::crc32c(&page)) {
                    return None;
                }
                let FillingId { segment, generation } = self.id;
                if !self.of.planted.has(PlantedBug::ParityUnmasked) {
                    mask(&mut page, parity_mask(self.of.tag, segment, generation, offset));
                }
                let members = self.shape.members(group, index.end());
                (page, members.map(|page| (page, index.pages[page as usize])).collect())
            }
        };
        members.retain(|(page, _)| *page != bad);
        let mut sum = sum;
        if self.of.planted.has(PlantedBug::PagesBehindEndAdded) {
            self.add_behind_end(group, &mut sum).await;
        }
        Some(Work { bad, sum, members })
    }

    /// The planted mistake: adds a page of earlier fillings.
    async fn add_behind_end(&self, group: u32, sum: &mut [u8]) {
        let mut all = self.shape.members(group, self.shape.room_pages());
        if let Some(behind) = all.find(|page| self.sum(*page).is_none()) {
            let mut page = vec![0; PAGE_BYTES];
            if self.read_page(behind, &mut page).await {
                xor(sum, &page);
            }
        }
    }

    /// Adds the members of a group. Returns false if one of them is lost.
    async fn add_members(&self, work: &mut Work) -> bool {
        let mut page = vec![0; PAGE_BYTES];
        for (member, expected) in &work.members {
            let read = self.read_page(*member, &mut page).await;
            if !read || crc32c::crc32c(&page) != *expected {
                return false;
            }
            xor(&mut work.sum, &page);
        }
        true
    }

    /// The same for many groups, in the order of the pages. Returns those of which no member is lost.
    async fn add_members_in_order(&self, works: Vec<Work>) -> Vec<Work> {
        let shape = &self.shape;
        let mut works: BTreeMap<u32, Work> =
            works.into_iter().map(|work| (shape.group_of(work.bad), work)).collect();
        let members = works.values().flat_map(|work| work.members.iter().copied());
        let sums: BTreeMap<u32, u32> = members.collect();
        for (from, last) in windows(&sums) {
            let is_wanted = |page: &u32| works.contains_key(&shape.group_of(*page));
            if !sums.range(from..=last).any(|(page, _)| is_wanted(page)) {
                continue;
            }
            let window = self.read_window(from, last).await;
            for (page, expected) in sums.range(from..=last) {
                let group = shape.group_of(*page);
                // What is lost is not read on: a disk may take seconds to fail.
                let Some(work) = works.get_mut(&group) else { continue };
                let mut alone = vec![0; PAGE_BYTES];
                match self.page_of(&window, *page, *expected, &mut alone).await {
                    Some(bytes) => xor(&mut work.sum, bytes),
                    None => _ = works.remove(&group),
                }
            }
        }
        works.into_values().collect()
    }
}
