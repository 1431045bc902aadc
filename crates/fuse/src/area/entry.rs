//! Entries of an area: what is known of a request.

use super::error::AreaError;
use super::memory::Memory;
use super::shape::SMALL_BYTES;
use crate::wire::{Operation, TRANSFER_BYTES_MAX, sound_errno};

/// Words of an entry.
pub(super) const STATE: usize = 0;
const UNIQUE: usize = 1;
const OFFSET: usize = 2;
const LENGTH: usize = 3;
const KIND: usize = 4;

/// States of an entry: the lower half of the word. The upper half has the error number of what is done.
pub(super) const FREE: u64 = 0;
const HAVE: u64 = 1;
const DONE: u64 = 2;

const READ: u32 = 1;
const WRITE: u32 = 2;
const FLUSH: u32 = 3;
const TRIM: u32 = 4;
const ZEROES: u32 = 5;

/// The state of a change that was executed.
pub(super) fn done_state(result: Result<(), i32>) -> u64 {
    let errno = result.err().map_or(0, sound_errno);
    DONE | u64::from(errno.unsigned_abs()) << 32
}

/// A request in an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) unique: u64,
    pub(super) operation: Operation,
    /// Place of its data.
    pub(super) place: Option<usize>,
    /// `None`: it is to be executed.
    pub(super) result: Option<Result<(), i32>>,
}

impl Kept {
    /// Stores a request that is to be executed.
    pub(super) fn store(&self, memory: &Memory, number: usize) {
        let (kind, offset, length) = match self.operation {
            Operation::Read { offset, length } => (READ, offset, length.into()),
            Operation::Write { offset, length } => (WRITE, offset, length.into()),
            Operation::Flush => (FLUSH, 0, 0),
            Operation::Trim { offset, length } => (TRIM, offset, length),
            Operation::Zeroes { offset, length } => (ZEROES, offset, length),
        };
        let place = self.place.map_or(0, |place| place as u64 + 1);
        let state_at = memory.shape().entry_word(number, STATE);
        #[cfg(test)]
        if memory.planted == Some(super::Planted::StateFirst) {
            memory.store(state_at, HAVE);
        }
        let words = [self.unique, offset, length, u64::from(kind) | place << 32];
        for (word, value) in (UNIQUE..).zip(words) {
            memory.store(memory.shape().entry_word(number, word), value);
        }
        memory.store(state_at, HAVE);
    }

    /// Loads an entry. `None`: it is free.
    pub(super) fn load(memory: &Memory, number: usize) -> Result<Option<Kept>, AreaError> {
        let word = |word| memory.load(memory.shape().entry_word(number, word));
        let state = word(STATE);
        let result = match (state & u64::from(u32::MAX), (state >> 32) as i32) {
            (FREE, 0) => return Ok(None),
            (HAVE, 0) => None,
            (DONE, 0) => Some(Ok(())),
            (DONE, errno) if errno == sound_errno(errno) => Some(Err(errno)),
            _ => return Err(AreaError::Damaged("unknown state of a request")),
        };
        let (unique, offset, length, kind) = (word(UNIQUE), word(OFFSET), word(LENGTH), word(KIND));
        let short = u32::try_from(length).ok().filter(|length| *length <= TRANSFER_BYTES_MAX);
        let operation = match (kind as u32, short) {
            (READ, Some(length)) => Operation::Read { offset, length },
            (WRITE, Some(length)) => Operation::Write { offset, length },
            (FLUSH, _) => Operation::Flush,
            (TRIM, _) => Operation::Trim { offset, length },
            (ZEROES, _) => Operation::Zeroes { offset, length },
            _ => return Err(AreaError::Damaged("unknown request")),
        };
        let place = ((kind >> 32) as usize).checked_sub(1);
        let is_placed = match (operation, place) {
            (Operation::Write { length, .. }, Some(place)) => {
                memory.shape().is_large(place) == (length as usize > SMALL_BYTES)
            }
            (Operation::Write { .. }, None) => false,
            (_, place) => place.is_none(),
        };
        match is_placed && unique != 0 && (result.is_none() || operation.is_change()) {
            true => Ok(Some(Kept { unique, operation, place, result })),
            false => Err(AreaError::Damaged("a request that cannot be")),
        }
    }
}
