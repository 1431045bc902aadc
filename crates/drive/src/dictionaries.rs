//! The drive's dictionaries: loaded at opening, added, retired.

use std::sync::Arc;

use codec::{Dictionary, Policy};
use layout::catalog::{CATALOG_COPIES, CATALOG_SLOTS, DICTIONARY_BYTES_MAX};
use layout::geometry::{MAX_BLOCKS, OWN_FIRST_BLOCK};
use layout::{BLOCK_BYTES, Catalog, CatalogEntry};
use media::Media;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::batch::Batch;
use crate::error::Error;
use crate::recipe::Recipe;
use crate::shared::Shared;

/// Retired, but records with it may still be appended to segments.
const NOT_YET: u64 = u64::MAX;

/// What records need to be decompressed, and what new ones are compressed with.
#[derive(Default)]
pub(crate) struct Dictionaries {
    /// By id; or why one that the catalog names cannot be had.
    known: RwLock<FxHashMap<u16, Result<Dictionary, String>>>,
    /// For new records.
    active: RwLock<Option<Dictionary>>,
    /// As it is on the drive.
    catalog: Mutex<Catalog>,
}

impl Dictionaries {
    /// The dictionary that a record was compressed with: none for 0. The error says why it cannot be had.
    pub(crate) fn of(&self, id: u16) -> Result<Option<Dictionary>, String> {
        if id == 0 {
            return Ok(None);
        }
        match self.known.read().get(&id) {
            Some(Ok(dictionary)) => Ok(Some(dictionary.clone())),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("it needs dictionary {id}, which the drive does not have")),
        }
    }

    /// The dictionary for new records.
    pub(crate) fn active(&self) -> Option<Dictionary> {
        self.active.read().clone()
    }

    pub(crate) fn catalog(&self) -> Catalog {
        self.catalog.lock().clone()
    }
}

impl<M: Media> Shared<M> {
    /// Loads the catalog and all dictionaries. What cannot be read costs the records that need it, not the opening.
    pub(crate) async fn load_dictionaries(&self) -> Result<(), Error> {
        let (entries, _) = match self.plan(OWN_FIRST_BLOCK, (MAX_BLOCKS - OWN_FIRST_BLOCK) as usize).await {
            Ok(planned) => planned,
            Err(error) => {
                self.note(format!("the dictionaries cannot be found: {error}"));
                return Ok(());
            }
        };
        let records = entries.iter().filter(|entry| entry.is_record()).count() as u64;
        let fills = entries.iter().filter(|entry| entry.fill_word().is_some()).count() as u64;
        self.core().map.own = (records, fills);
        if records == 0 {
            return Ok(());
        }
        let Some(catalog) = self.read_catalog().await else {
            self.note(
                "the catalog of dictionaries cannot be read: records that need one are lost".to_string(),
            );
            return Ok(());
        };
        for (slot, entry) in catalog.slots.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let loaded = self.read_dictionary(slot, entry).await;
            if let Err(why) = &loaded {
                self.note(why.clone());
            }
            if entry.retired_at == 0
                && let Ok(dictionary) = &loaded
            {
                *self.dictionaries.active.write() = Some(dictionary.clone());
                self.core().dictionary = entry.id;
            }
            self.dictionaries.known.write().insert(entry.id, loaded);
        }
        *self.dictionaries.catalog.lock() = catalog;
        Ok(())
    }

    fn note(&self, what: String) {
        self.core().notes.push(what);
    }

    async fn read_catalog(&self) -> Option<Catalog> {
        for copy in 0..CATALOG_COPIES {
            let mut block = [0; BLOCK_BYTES];
            if self.read_block(Catalog::block(copy), &mut block).await.is_ok()
                && let Ok(catalog) = Catalog::decode(&block)
            {
                return Some(catalog);
            }
        }
        None
    }

    async fn read_dictionary(&self, slot: usize, entry: &CatalogEntry) -> Result<Dictionary, String> {
        let len = entry.len_bytes as usize;
        for copy in 0..CATALOG_COPIES {
            let mut bytes = vec![0; len.next_multiple_of(BLOCK_BYTES)];
            let first = Catalog::dictionary_block(slot, copy) * BLOCK_BYTES as u64;
            if self.read_span(first, &mut bytes).await.is_err() {
                continue;
            }
            bytes.truncate(len);
            if crc32c::crc32c(&bytes) == entry.crc
                && let Ok(dictionary) = Dictionary::new(entry.id, bytes)
            {
                return Ok(dictionary);
            }
        }
        Err(format!(
            "dictionary {} cannot be read in either copy: the records that need it are lost",
            entry.id
        ))
    }

    /// Stores a dictionary, durably, and takes it for new records from then on; the one before is retired. Answers its id;
    /// `None`: all slots are taken by dictionaries that records may still need.
    pub(crate) async fn add_dictionary(self: &Arc<Self>, bytes: Vec<u8>) -> Result<Option<u16>, Error> {
        let mut catalog = self.dictionaries.catalog();
        let Some(slot) = catalog.slots.iter().position(Option::is_none) else { return Ok(None) };
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
        for entry in catalog.slots.iter_mut().flatten().filter(|entry| entry.retired_at == 0) {
            entry.retired_at = NOT_YET;
        }
        let (len_bytes, crc) = (bytes.len() as u32, crc32c::crc32c(bytes));
        catalog.slots[slot] = Some(CatalogEntry { id, len_bytes, crc, retired_at: 0 });
        catalog.last_id = id;
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        self.write_own(&catalog, Some((slot, &padded))).await?;
        self.dictionaries.known.write().insert(id, Ok(dictionary.clone()));
        *self.dictionaries.catalog.lock() = catalog;
        *self.dictionaries.active.write() = Some(dictionary);
        let mut core = self.core();
        core.dictionary = id;
        // They may hold records with the one before. An earlier run's are sealed.
        core.open_at_retirement = core.log.open_segments();
        Ok(Some(id))
    }

    /// Forgets retired dictionaries that no record can need: everything written when they were in use has been written
    /// anew since. Answers how many.
    pub(crate) async fn forget_dictionaries(self: &Arc<Self>) -> Result<usize, Error> {
        let mut catalog = self.dictionaries.catalog();
        let before = catalog.clone();
        let (oldest, now, left) = {
            let core = self.core();
            let open = core.log.open_segments();
            let left = !core.open_at_retirement.iter().any(|segment| open.contains(segment));
            (core.segments.oldest_sequence(), core.log.sequence(), left)
        };
        let mut gone = Vec::new();
        for slot in &mut catalog.slots {
            match slot {
                // All that was written with it lies in segments that no head appends to any more.
                Some(entry) if entry.retired_at == NOT_YET && left => entry.retired_at = now,
                Some(entry) if entry.retired_at > 0 && entry.retired_at < oldest => {
                    gone.push(entry.id);
                    *slot = None;
                }
                _ => {}
            }
        }
        if catalog == before {
            return Ok(0);
        }
        self.write_own(&catalog, None).await?;
        let mut known = self.dictionaries.known.write();
        gone.iter().for_each(|id| drop(known.remove(id)));
        *self.dictionaries.catalog.lock() = catalog;
        Ok(gone.len())
    }

    /// Writes the catalog and a dictionary, all in one pack, and waits until they are durable.
    async fn write_own(
        self: &Arc<Self>,
        catalog: &Catalog,
        dictionary: Option<(usize, &[u8])>,
    ) -> Result<(), Error> {
        let recipe = Recipe::own();
        let block = catalog.encode();
        loop {
            let mut batch = Batch::take();
            for copy in 0..CATALOG_COPIES {
                batch.add_run(&recipe, Catalog::block(copy), &block, None);
                if let Some((slot, bytes)) = dictionary {
                    batch.add_run(&recipe, Catalog::dictionary_block(slot, copy), bytes, None);
                }
            }
            let appended = self.append(&batch, &[]).await;
            batch.give_back();
            if appended? {
                return self.flush_log().await;
            }
        }
    }

    /// How the host's blocks are compressed now.
    pub(crate) fn recipe(&self) -> Recipe {
        let policy = self.codec();
        let dictionary = match policy {
            Policy::Auto | Policy::Zstd(_) => self.dictionaries.active(),
            _ => None,
        };
        Recipe { policy, frame_blocks: self.frame_blocks, dictionary, settled: false }
    }
}

const _: () = assert!(OWN_FIRST_BLOCK + 32 * (CATALOG_SLOTS as u64 + 1) == MAX_BLOCKS);
