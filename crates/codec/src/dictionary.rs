//! Dictionaries: content that blocks of one kind have in common, given to zstd as history.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use zstd_safe::{CDict, DDict};

use crate::filter::Filter;

/// Longest dictionary in bytes. A record holds at most 64 KiB, and its header and those that name the
/// dictionary need space too.
pub const DICTIONARY_BYTES_MAX: usize = 60 << 10;

/// A dictionary, ready for use by any number of threads. Clones share it.
///
/// The bytes are either the result of [`train`](crate::train) (zstd's dictionary format) or anything else,
/// which then serves only as history, without entropy tables. Tables for decompression are created at once.
/// Those for compression are created when a level is first used, and live as long as the dictionary. At 60
/// KiB, the dictionary with its tables for decompression takes about 170 KB. The tables for compression take
/// 110 KB at level 1 and up to 850 KB at level 6.
#[derive(Clone)]
pub struct Dictionary(Arc<Inner>);

struct Inner {
    id: u16,
    bytes: Vec<u8>,
    reading: DDict<'static>,
    filter: Filter,
    /// Compression tables by level.
    writing: Mutex<Vec<(i8, Arc<CDict<'static>>)>>,
}

/// Reason why bytes cannot be a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DictionaryError {
    /// The id 0, which means "none".
    #[error("dictionary id 0 stands for no dictionary: use one from 1 to 65535")]
    Id,
    /// The length is out of range.
    #[error("dictionary {id} has {bytes} bytes: one has 8 to {DICTIONARY_BYTES_MAX}")]
    Length {
        /// Id of the dictionary.
        id: u16,
        /// Length of the dictionary.
        bytes: usize,
    },
    /// It begins like zstd's format, and the rest is malformed.
    #[error("dictionary {0} is corrupt: it says it is a trained one, and its tables are not")]
    Corrupt(u16),
}

/// zstd accepts no shorter dictionary.
const DICTIONARY_BYTES_MIN: usize = 8;

/// Level used to test whether bytes are a valid dictionary. Any level is suitable; this one is the fastest to
/// prepare and the most likely to be used.
const PROBE_LEVEL: i8 = 1;

impl Dictionary {
    /// Creates a dictionary of 8 bytes to [`DICTIONARY_BYTES_MAX`], as trained or stored. `id` is its id in
    /// record headers.
    ///
    /// # Errors
    /// [`DictionaryError`] for an id of 0, a length out of range, and bytes that begin like zstd's format and
    /// are malformed.
    pub fn new(id: u16, bytes: impl Into<Vec<u8>>) -> Result<Dictionary, DictionaryError> {
        let bytes = bytes.into();
        if id == 0 {
            return Err(DictionaryError::Id);
        }
        if !(DICTIONARY_BYTES_MIN..=DICTIONARY_BYTES_MAX).contains(&bytes.len()) {
            return Err(DictionaryError::Length { id, bytes: bytes.len() });
        }
        // The compressor has the stricter requirements. Bytes that it accepts at one level are valid at all
        // levels.
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

    /// Its id in record headers: 1 to 65535.
    pub fn id(&self) -> u16 {
        self.0.id
    }

    /// Its bytes, as given to [`Dictionary::new`].
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Memory in use now, in bytes: its own bytes and the tables created so far.
    pub fn memory_bytes(&self) -> usize {
        let writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let tables: usize = writing.iter().map(|(_, tables)| tables.sizeof()).sum();
        self.0.bytes.len() + self.0.reading.sizeof() + self.0.filter.bytes() + tables
    }

    /// Filter of its content, for [`choose`](crate::choose).
    pub(crate) fn filter(&self) -> &Filter {
        &self.0.filter
    }

    /// Tables for decompression.
    pub(crate) fn reading(&self) -> &DDict<'static> {
        &self.0.reading
    }

    /// Tables for compression at a level. `None` if memory for them is unavailable.
    pub(crate) fn writing(&self, level: i8) -> Option<Arc<CDict<'static>>> {
        let mut writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tables)) = writing.iter().find(|(of, _)| *of == level) {
            return Some(Arc::clone(tables));
        }
        let tables = Arc::new(CDict::try_create(&self.0.bytes, level.into())?);
        writing.push((level, Arc::clone(&tables)));
        Some(tables)
    }

    /// Returns whether both are clones of the same dictionary, not only equal.
    pub(crate) fn is(&self, other: &Dictionary) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("id", &self.0.id).field("bytes", &self.0.bytes.len()).finish()
    }
}
