//! Dictionaries that records need and that new records use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use codec::Dictionary;
use futures::lock::Mutex as AsyncMutex;
use layout::Catalog;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

/// Retired, but records that need it may still be appended to segments.
pub(crate) const NOT_YET: u64 = u64::MAX;

/// Dictionaries for decompression, and for new records.
#[derive(Default)]
pub(crate) struct Dictionaries {
    /// By id; or why one that the catalog names is not available.
    pub(crate) known: RwLock<FxHashMap<u16, Result<Dictionary, NoDictionary>>>,
    /// For new records.
    pub(crate) active: RwLock<Arc<[Dictionary]>>,
    /// As it is on the drive.
    pub(crate) catalog: Mutex<Catalog>,
    /// The catalog on the drive cannot be read. It must not be replaced: a new one would assign ids again
    /// that records use, and a wrong dictionary may decode to wrong data.
    pub(crate) lost: AtomicBool,
    /// Held while the catalog is changed: a change reads it, waits for the medium, and writes it.
    pub(crate) changing: AsyncMutex<()>,
    /// Forgotten, but a read that found its record earlier may still need it. Removed from memory the next
    /// time.
    pub(crate) leaving: Mutex<Vec<u16>>,
}

/// Reason why a dictionary is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoDictionary {
    /// The catalog does not name it.
    #[error("it needs dictionary {0}, which the drive does not have")]
    Unknown(u16),
    /// The catalog names it.
    #[error("dictionary {0} cannot be read in either copy: the records that need it are lost")]
    Unreadable(u16),
}

impl Dictionaries {
    /// Returns the dictionary that a record was compressed with; none for 0.
    pub(crate) fn of(&self, id: u16) -> Result<Option<Dictionary>, NoDictionary> {
        if id == 0 {
            return Ok(None);
        }
        match self.known.read().get(&id) {
            Some(Ok(dictionary)) => Ok(Some(dictionary.clone())),
            Some(Err(why)) => Err(*why),
            None => Err(NoDictionary::Unknown(id)),
        }
    }

    /// The dictionaries for new records.
    pub(crate) fn active(&self) -> Arc<[Dictionary]> {
        self.active.read().clone()
    }

    /// Returns whether the catalog on the drive cannot be read.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn catalog(&self) -> Catalog {
        self.catalog.lock().clone()
    }

    /// Returns the retired dictionaries.
    pub(crate) fn retired(&self) -> Vec<Dictionary> {
        let catalog = self.catalog.lock();
        let retired = catalog.slots.iter().flatten().filter(|entry| entry.retired_at > 0);
        retired.filter_map(|entry| self.of(entry.id).ok().flatten()).collect()
    }
}
