//! Order in which operations complete, operations that are held, and pages that are watched.

use super::state::{InFlight, Request, State};
use super::{SimMedia, SimOrder};
use crate::PAGE_BYTES;

/// A read in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimRead {
    /// Number of the operation, for [`SimMedia::hold`].
    pub id: u64,
    /// Offset in the backing, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl SimMedia {
    /// Changes the order in which operations complete.
    pub fn set_order(&self, order: SimOrder) {
        self.state.lock().order = order;
    }

    /// Number of the operation issued last.
    pub fn newest_id(&self) -> u64 {
        self.state.lock().next_id
    }

    /// Reads in flight that were issued after operation `id`.
    pub fn reads_since(&self, id: u64) -> Vec<SimRead> {
        let state = self.state.lock();
        let read = |op: &InFlight| match &op.request {
            Request::Read { offset, buf } if op.id > id => {
                Some(SimRead { id: op.id, offset: *offset, len: buf.len() as u64 })
            }
            _ => None,
        };
        state.in_flight.iter().filter_map(read).collect()
    }

    /// Number of a random operation in flight.
    pub fn any_in_flight(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let count = state.in_flight.len();
        let pick = state.rng.index(count);
        state.in_flight.get(pick).map(|op| op.id)
    }

    /// Holds an operation in flight: it does not complete until it is released.
    pub fn hold(&self, id: u64) {
        let mut state = self.state.lock();
        if state.in_flight.iter().any(|op| op.id == id) {
            state.held.insert(id);
        }
    }

    /// Releases an operation.
    pub fn release(&self, id: u64) {
        self.state.lock().held.remove(&id);
    }

    /// Releases all operations. Returns false if none was held.
    pub fn release_all(&self) -> bool {
        let mut state = self.state.lock();
        !std::mem::take(&mut state.held).is_empty()
    }

    /// Sets whether the backing hangs: no operation completes.
    pub fn hang(&self, hangs: bool) {
        self.state.lock().hangs = hangs;
    }

    /// Number of held operations.
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }

    /// Number of writes to the page that holds this byte that have completed since the first call for this
    /// page.
    pub fn rewrites(&self, byte: u64) -> u64 {
        *self.state.lock().watched.entry(byte / PAGE_BYTES as u64).or_default()
    }
}

impl State {
    /// Index of the operation in flight that completes next. `None` if all are held.
    pub(super) fn next_operation(&mut self) -> Option<usize> {
        let count = self.in_flight.len() - self.held.len();
        if count == 0 || self.hangs {
            return None;
        }
        let order = if self.rng.chance(1, 4) { SimOrder::Random } else { self.order };
        let pick = if order == SimOrder::Random { self.rng.index(count) } else { 0 };
        let mut free = (0..self.in_flight.len()).filter(|&at| !self.is_held(at));
        let number = |at: &usize| self.in_flight[*at].id;
        match order {
            SimOrder::Random => free.nth(pick),
            SimOrder::Newest => free.max_by_key(number),
            SimOrder::Oldest => free.min_by_key(number),
            SimOrder::Priority => free.max_by_key(|at| (self.in_flight[*at].priority, number(at))),
        }
    }

    /// Returns whether the operation in flight at this index is held.
    pub(super) fn is_held(&self, at: usize) -> bool {
        self.held.contains(&self.in_flight[at].id)
    }
}
