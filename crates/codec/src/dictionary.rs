//! Dictionaries: what blocks of one kind have in common, told to zstd before the first byte.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use zstd_safe::{CDict, DDict};

use crate::choose::Filter;

/// Longest dictionary in bytes: a record holds no more than 64 KiB, and its header and those that name the
/// dictionary want room.
pub const DICTIONARY_BYTES_MAX: usize = 60 << 10;

/// A dictionary, ready for use by any number of threads. Cloning shares it.
///
/// The bytes are either what [`train`](crate::train) gives (zstd's dictionary format) or anything else, which
/// then serves as history only, without entropy tables. Tables for decompression are made at once, those for
/// compression when a level is first used, and stay as long as the dictionary: at 60 KiB about 170 KB to have it
/// and read, and 110 KB at level 1 to 850 KB at level 6 to write.
#[derive(Clone)]
pub struct Dictionary(Arc<Inner>);

struct Inner {
    id: u16,
    bytes: Vec<u8>,
    reading: DDict<'static>,
    filter: Filter,
    /// By level.
    writing: Mutex<Vec<(i8, Arc<CDict<'static>>)>>,
}

/// Bytes that cannot be a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// The id that stands for "none".
    #[error("dictionary id 0 stands for no dictionary: use one from 1 to 65535")]
    Id,
    /// Nothing, or too much.
    #[error("dictionary {id} has {bytes} bytes: one has 8 to {DICTIONARY_BYTES_MAX}")]
    Length {
        /// The dictionary.
        id: u16,
        /// Its length.
        bytes: usize,
    },
    /// It begins like zstd's format and goes on otherwise.
    #[error("dictionary {0} is corrupt: it says it is a trained one, and its tables are not")]
    Corrupt(u16),
}

/// zstd takes nothing for a dictionary that is shorter.
const DICTIONARY_BYTES_MIN: usize = 8;

/// Any level will do to see whether bytes are a sound dictionary; this one is the quickest to prepare and the
/// likeliest to be used.
const PROBE_LEVEL: i8 = 1;

impl Dictionary {
    /// A dictionary of 8 bytes to [`DICTIONARY_BYTES_MAX`], as trained or stored. `id` is what record headers
    /// call it.
    ///
    /// # Errors
    /// [`DictionaryError`] for an id of 0, a length out of range, and bytes that claim zstd's format and are
    /// malformed.
    pub fn new(id: u16, bytes: impl Into<Vec<u8>>) -> Result<Dictionary, DictionaryError> {
        let bytes = bytes.into();
        if id == 0 {
            return Err(DictionaryError::Id);
        }
        if !(DICTIONARY_BYTES_MIN..=DICTIONARY_BYTES_MAX).contains(&bytes.len()) {
            return Err(DictionaryError::Length { id, bytes: bytes.len() });
        }
        // The compressor's demands are the stricter ones: what it takes, each level takes.
        CDict::try_create(&bytes, PROBE_LEVEL.into()).ok_or(DictionaryError::Corrupt(id))?;
        let reading = DDict::try_create(&bytes).ok_or(DictionaryError::Corrupt(id))?;
        Ok(Dictionary(Arc::new(Inner {
            id,
            filter: Filter::new(&bytes),
            bytes,
            reading,
            writing: Mutex::default(),
        })))
    }

    /// What record headers call it: 1 to 65535.
    pub fn id(&self) -> u16 {
        self.0.id
    }

    /// Its bytes, as they were given.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Memory that it holds now, in bytes: its own bytes and the tables made so far.
    pub fn memory_bytes(&self) -> usize {
        let writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let tables: usize = writing.iter().map(|(_, tables)| tables.sizeof()).sum();
        self.0.bytes.len() + self.0.reading.sizeof() + self.0.filter.bytes() + tables
    }

    /// What is in it, for [`choose`](crate::choose).
    pub(crate) fn filter(&self) -> &Filter {
        &self.0.filter
    }

    /// Tables for decompression.
    pub(crate) fn reading(&self) -> &DDict<'static> {
        &self.0.reading
    }

    /// Tables for compression at a level; `None` if there is no memory for them.
    pub(crate) fn writing(&self, level: i8) -> Option<Arc<CDict<'static>>> {
        let mut writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tables)) = writing.iter().find(|(of, _)| *of == level) {
            return Some(Arc::clone(tables));
        }
        let tables = Arc::new(CDict::try_create(&self.0.bytes, level.into())?);
        writing.push((level, Arc::clone(&tables)));
        Some(tables)
    }

    /// Whether both are the same one, not only equal.
    pub(crate) fn is(&self, other: &Dictionary) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("id", &self.0.id).field("bytes", &self.0.bytes.len()).finish()
    }
}
