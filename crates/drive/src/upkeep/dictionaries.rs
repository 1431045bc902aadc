//! The drive's dictionaries: loaded at an opening, added, retired.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use codec::{Dictionary, Policy};
use layout::catalog::{CATALOG_COPIES, CATALOG_SLOTS, DICTIONARY_BYTES_MAX};
use layout::geometry::{MAX_BLOCKS, OWN_FIRST_BLOCK};
use layout::{BLOCK_BYTES, Catalog, CatalogEntry, Entry, Head};
use media::Media;

use crate::error::Error;
use crate::shared::Shared;
use crate::state::batch::Batch;
use crate::state::dictionaries::{NOT_YET, NoDictionary};
use crate::state::map::Own;
use crate::state::recipe::Recipe;
use crate::state::segments::Claim;
use crate::upkeep::relief::Effort;

/// Of two errors, returns the one that may be temporary.
fn passing_first(before: Option<Error>, error: Error) -> Option<Error> {
    match error {
        Error::Corrupt(_) => before.or(Some(error)),
        _ => Some(error),
    }
}

impl<M: Media> Shared<M> {
    /// Loads the catalog and all dictionaries. Corruption costs the records that need them, not the opening.
    /// A read error may be temporary: the opening fails, unless damage is `accepted`.
    pub(crate) async fn load_dictionaries(&self, accepted: bool) -> Result<(), Error> {
        let passing = |error: &Error| !accepted && !matches!(error, Error::Corrupt(_));
        let entries = match self.plan(OWN_FIRST_BLOCK, (MAX_BLOCKS - OWN_FIRST_BLOCK) as usize).await {
            Ok(plan) => plan.entries,
            Err(error) if passing(&error) => return Err(error),
            Err(error) => {
                self.note(format!("the dictionaries cannot be found: {error}"));
                self.dictionaries.lost.store(true, Ordering::Relaxed);
                return Ok(());
            }
        };
        let blocks = entries.iter().filter(|entry| entry.is_record()).count() as u64;
        let fills = entries.iter().filter(|entry| entry.fill_word().is_some()).count() as u64;
        // All blocks of a frame have the same entry, and no two records have.
        let mut records: Vec<Entry> = entries.into_iter().filter(|entry| entry.is_record()).collect();
        records.sort_unstable_by_key(|entry| entry.0);
        records.dedup();
        let units = records.iter().map(|entry| u64::from(entry.units())).sum();
        self.core().map.own = Own { blocks, fills, units };
        if blocks == 0 {
            return Ok(());
        }
        let (catalog, unread) = self.read_catalog().await;
        let Some(catalog) = catalog else {
            if let Some(error) = unread.filter(passing) {
                return Err(error);
            }
            self.note(
                "the catalog of dictionaries cannot be read: records that need one are lost".to_string(),
            );
            self.dictionaries.lost.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let mut active = Vec::new();
        for (slot, entry) in catalog.slots.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let (loaded, unread) = self.read_dictionary(slot, entry).await;
            if let Err(why) = &loaded {
                if let Some(error) = unread.filter(passing) {
                    return Err(error);
                }
                self.note(why.to_string());
            }
            if entry.retired_at == 0
                && let Ok(dictionary) = &loaded
            {
                active.push(dictionary.clone());
            }
            self.dictionaries.known.write().insert(entry.id, loaded);
        }
        self.take_catalog(catalog);
        self.core().dictionaries.active = active.iter().map(Dictionary::id).collect();
        *self.dictionaries.active.write() = active.into();
        Ok(())
    }

    fn note(&self, what: String) {
        self.core().note(what);
    }

    /// Returns the catalog, and the read error if there was one.
    async fn read_catalog(&self) -> (Option<Catalog>, Option<Error>) {
        let mut unread = None;
        for copy in 0..CATALOG_COPIES {
            let mut block = [0; BLOCK_BYTES];
            match self.read_block(Catalog::block(copy), &mut block).await {
                Ok(_) => match Catalog::decode(&block) {
                    Ok(catalog) => return (Some(catalog), None),
                    Err(_) => continue,
                },
                Err(error) => unread = passing_first(unread, error),
            }
        }
        (None, unread)
    }

    /// Returns a dictionary, or why there is none; and the read error if there was one.
    async fn read_dictionary(
        &self,
        slot: usize,
        entry: &CatalogEntry,
    ) -> (Result<Dictionary, NoDictionary>, Option<Error>) {
        let mut unread = None;
        let len = entry.len_bytes as usize;
        for copy in 0..CATALOG_COPIES {
            let mut bytes = vec![0; len.next_multiple_of(BLOCK_BYTES)];
            let first = Catalog::dictionary_block(slot, copy) * BLOCK_BYTES as u64;
            if let Err(error) = self.read_span(first, &mut bytes).await {
                unread = passing_first(unread, error);
                continue;
            }
            bytes.truncate(len);
            if crc32c::crc32c(&bytes) == entry.crc
                && let Ok(dictionary) = Dictionary::new(entry.id, bytes)
            {
                return (Ok(dictionary), None);
            }
        }
        (Err(NoDictionary::Unreadable(entry.id)), unread)
    }

    /// Stores dictionaries durably, uses them for new records from then on, and retires the previous ones.
    /// Returns their ids; none if there are not enough places without dictionaries that records may still
    /// need.
    pub(crate) async fn replace_dictionaries(self: &Arc<Self>, new: Vec<Vec<u8>>) -> Result<Vec<u16>, Error> {
        let _changing = self.dictionaries.changing.lock().await;
        if self.dictionaries.is_lost() {
            return Err(Error::Corrupt(
                "the catalog of dictionaries cannot be read: it is not replaced".into(),
            ));
        }
        let mut catalog = self.dictionaries.catalog();
        let free = |(slot, entry): (usize, &Option<CatalogEntry>)| entry.is_none().then_some(slot);
        let slots: Vec<usize> = catalog.slots.iter().enumerate().filter_map(free).collect();
        if slots.len() < new.len() {
            return Ok(Vec::new());
        }
        for entry in catalog.slots.iter_mut().flatten().filter(|entry| entry.retired_at == 0) {
            entry.retired_at = NOT_YET;
        }
        let before = self.dictionaries.catalog();
        let mut active = Vec::new();
        for (slot, bytes) in slots.into_iter().zip(new) {
            let taken = |id: u16| catalog.slots.iter().flatten().any(|entry| entry.id == id);
            let mut id = catalog.last_id;
            loop {
                id = id.checked_add(1).unwrap_or(1);
                if !taken(id) {
                    break;
                }
            }
            let invalid = |error: codec::DictionaryError| Error::Invalid(error.to_string());
            let dictionary = Dictionary::new(id, bytes).map_err(invalid)?;
            let bytes = dictionary.bytes();
            if bytes.len() > DICTIONARY_BYTES_MAX {
                return Err(Error::Invalid(format!("a dictionary of {} bytes", bytes.len())));
            }
            let (len_bytes, crc) = (bytes.len() as u32, crc32c::crc32c(bytes));
            catalog.slots[slot] = Some(CatalogEntry { id, len_bytes, crc, retired_at: 0 });
            catalog.last_id = id;
            // The drive's catalog names them only once all are there. Until then the place is free for the
            // next opening.
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
            self.write_own(&before, Some((slot, &padded))).await?;
            active.push(dictionary);
        }
        catalog.adopted_at = self.core().log.sequence();
        self.write_own(&catalog, None).await?;
        let ids: Vec<u16> = active.iter().map(Dictionary::id).collect();
        self.dictionaries.known.write().extend(active.iter().map(|d| (d.id(), Ok(d.clone()))));
        self.take_catalog(catalog);
        *self.dictionaries.active.write() = active.into();
        let mut core = self.core();
        core.dictionaries.places_wanted = false;
        core.dictionaries.active.clone_from(&ids);
        // They may hold records that need the previous ones. Segments of an earlier run are sealed.
        core.dictionaries.open_at_retirement = core.log.open_segments();
        Ok(ids)
    }

    /// The catalog is on the drive.
    fn take_catalog(&self, catalog: Catalog) {
        let retired = catalog.slots.iter().flatten().filter(|entry| entry.retired_at == NOT_YET);
        let outgoing = retired.map(|entry| entry.id).collect();
        *self.dictionaries.catalog.lock() = catalog;
        self.core().dictionaries.outgoing = outgoing;
    }

    /// Allows records that need these retired dictionaries to be written again, if they may not be already.
    /// Returns false if there is no room to record that.
    pub(crate) async fn bring_back(self: &Arc<Self>, mut ids: Vec<u16>) -> Result<bool, Error> {
        // Queued with others who change the catalog.
        let _changing = self.dictionaries.changing.lock().await;
        let _right = self.maintenance().await;
        {
            // Others may have needed the same.
            let core = self.core();
            ids.retain(|id| !core.dictionaries.may_be_needed(*id));
        }
        if ids.is_empty() { Ok(true) } else { self.note_needed(&ids).await }
    }

    /// The same for a caller with the right to maintenance. Returns false also if the catalog is being
    /// changed.
    pub(crate) async fn keep_dictionaries(self: &Arc<Self>, ids: &[u16]) -> Result<bool, Error> {
        // Others who change the catalog may wait for the right to maintenance.
        let Some(_changing) = self.dictionaries.changing.try_lock() else { return Ok(false) };
        self.note_needed(ids).await
    }

    /// Records durably that these are needed again. The segments that may need them are counted anew once no
    /// head is in a segment to which such records were written. The caller has the rights to the catalog and
    /// to maintenance.
    async fn note_needed(self: &Arc<Self>, ids: &[u16]) -> Result<bool, Error> {
        if self.dictionaries.is_lost() {
            return Ok(false);
        }
        if self.core().checkpoints.in_progress.is_some() {
            // Its cut is past.
            self.write_checkpoint().await?;
        }
        let mut catalog = self.dictionaries.catalog();
        let retired = catalog.slots.iter_mut().flatten().filter(|entry| entry.retired_at > 0);
        retired.filter(|entry| ids.contains(&entry.id)).for_each(|entry| entry.retired_at = NOT_YET);
        let mut batch = Batch::take();
        add_catalog(&mut batch, &catalog);
        let appended = {
            let mut core = self.core();
            let core = &mut *core;
            core.dictionaries.freeing = None;
            // The host's open pack may hold an older catalog.
            core.log.seal(Head::Host, &mut core.segments);
            core.append_anew(&batch, Claim::Ordinary)
        };
        batch.give_back();
        if !appended {
            return Ok(false);
        }
        // Everything in memory becomes durable, and the catalog with it.
        self.write_checkpoint().await?;
        self.take_catalog(catalog);
        Ok(true)
    }

    /// Forgets retired dictionaries that no record can need: everything written while they were in use was
    /// written anew since, or the caller has examined all of it for some of them, `looked` (ids, and the
    /// upper bound of when they were retired). Returns how many.
    pub(crate) async fn forget_dictionaries(
        self: &Arc<Self>,
        looked: Option<(&[u16], u64)>,
    ) -> Result<usize, Error> {
        let _changing = self.dictionaries.changing.lock().await;
        let forgotten = self.forget_all_that_may(looked).await?;
        // After an error it is unknown which catalog is on the drive. Nothing is moved as it is then.
        self.take_catalog(self.dictionaries.catalog());
        Ok(forgotten)
    }

    async fn forget_all_that_may(self: &Arc<Self>, looked: Option<(&[u16], u64)>) -> Result<usize, Error> {
        let left = std::mem::take(&mut *self.dictionaries.leaving.lock());
        left.iter().for_each(|id| drop(self.dictionaries.known.write().remove(id)));
        let mut catalog = self.dictionaries.catalog();
        let before = catalog.clone();
        let (oldest, now, left) = {
            let mut core = self.core();
            let open = core.log.open_segments();
            let left = !core.dictionaries.open_at_retirement.iter().any(|segment| open.contains(segment));
            if left {
                // From here on nothing that needs them is moved.
                core.dictionaries.outgoing.clear();
            }
            (core.segments.oldest_sequence(), core.log.sequence(), left)
        };
        let was_looked_for = |entry: &CatalogEntry| {
            looked.is_some_and(|(ids, until)| ids.contains(&entry.id) && entry.retired_at <= until)
        };
        let mut gone = Vec::new();
        for slot in &mut catalog.slots {
            match slot {
                // Everything written with it is in segments that no head appends to any more.
                Some(entry) if entry.retired_at == NOT_YET && left => entry.retired_at = now,
                Some(entry)
                    if entry.retired_at > 0 && (entry.retired_at < oldest || was_looked_for(entry)) =>
                {
                    gone.push(entry.id);
                    *slot = None;
                }
                _ => {}
            }
        }
        if catalog == before {
            return Ok(0);
        }
        if !gone.is_empty() {
            // What replaced the last record that needed them may be in the open pack of cleaning: a power cut
            // must not lose that and keep the catalog.
            self.flush_moved().await?;
        }
        self.write_own(&catalog, None).await?;
        *self.dictionaries.catalog.lock() = catalog;
        let count = gone.len();
        self.dictionaries.leaving.lock().extend(gone);
        Ok(count)
    }

    /// Writes the catalog and a dictionary in one pack, and waits until they are durable.
    async fn write_own(
        self: &Arc<Self>,
        catalog: &Catalog,
        dictionary: Option<(usize, &[u8])>,
    ) -> Result<(), Error> {
        let recipe = Recipe::own();
        let mut effort = Effort::default();
        loop {
            let mut batch = Batch::take();
            add_catalog(&mut batch, catalog);
            for copy in 0..CATALOG_COPIES {
                if let Some((slot, bytes)) = dictionary {
                    batch.add_run(&recipe, Catalog::dictionary_block(slot, copy), bytes, None);
                }
            }
            let appended = self.append(&batch, &[], &mut effort, false).await;
            batch.give_back();
            if appended? {
                return self.flush_log().await;
            }
        }
    }

    /// Returns how the host's blocks are compressed now.
    pub(crate) fn recipe(&self) -> Recipe {
        let policy = match self.codec() {
            Policy::Auto if self.hurried.load(Ordering::Relaxed) => Policy::Lz4,
            policy => policy,
        };
        let dictionaries = match policy {
            Policy::Auto | Policy::Zstd(_) => self.dictionaries.active(),
            _ => Arc::new([]),
        };
        let structured = matches!(policy, Policy::Auto | Policy::Zstd(_)) && self.structure.may();
        Recipe {
            policy,
            frame_blocks: self.frame_blocks,
            dictionaries,
            settled: false,
            effort: structured.then_some(codec::Effort::Foreground),
            puts_off: policy == Policy::Auto && self.has_room.load(Ordering::Relaxed),
        }
    }
}

fn add_catalog(batch: &mut Batch, catalog: &Catalog) {
    for copy in 0..CATALOG_COPIES {
        batch.add_run(&Recipe::own(), Catalog::block(copy), &catalog.encode(), None);
    }
}

const _: () = assert!(OWN_FIRST_BLOCK + 32 * (CATALOG_SLOTS as u64 + 1) == MAX_BLOCKS);
