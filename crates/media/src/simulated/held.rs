//! In which order operations complete, which of them wait, and what is watched.

use super::SimMedia;
use super::state::{InFlight, Request, State};
use crate::PAGE_BYTES;

/// Which operation in flight completes next. One step in four is random all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimOrder {
    /// Any.
    #[default]
    Random,
    /// The one that was issued last: old ones starve.
    Newest,
    /// The one that was issued first.
    Oldest,
    /// That with the highest number, which each is given when it is issued.
    Priority,
}

/// A read in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimRead {
    /// For [`SimMedia::hold`].
    pub id: u64,
    /// Byte of the backing.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
}

impl SimMedia {
    /// Changes the order in which operations complete.
    pub fn set_order(&self, order: SimOrder) {
        self.state.lock().order = order;
    }

    /// The number of the operation issued last.
    pub fn newest_id(&self) -> u64 {
        self.state.lock().next_id
    }

    /// The reads in flight that were issued after that operation.
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

    /// Some operation in flight, any: its number.
    pub fn any_in_flight(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let count = state.in_flight.len();
        let pick = state.rng.index(count);
        state.in_flight.get(pick).map(|op| op.id)
    }

    /// An operation in flight does not complete until it is released.
    pub fn hold(&self, id: u64) {
        let mut state = self.state.lock();
        if state.in_flight.iter().any(|op| op.id == id) {
            state.held.insert(id);
        }
    }

    /// Lets an operation complete.
    pub fn release(&self, id: u64) {
        self.state.lock().held.remove(&id);
    }

    /// Lets all operations complete. False if none was held.
    pub fn release_all(&self) -> bool {
        let mut state = self.state.lock();
        !std::mem::take(&mut state.held).is_empty()
    }

    /// Operations that are held.
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }

    /// How many writes to the page that holds this byte have completed since it was first asked about.
    pub fn rewrites(&self, byte: u64) -> u64 {
        *self.state.lock().watched.entry(byte / PAGE_BYTES as u64).or_default()
    }
}

impl State {
    /// Which operation in flight completes next, if there is one that is not held.
    pub(super) fn next_operation(&mut self) -> Option<usize> {
        let count = self.in_flight.len() - self.held.len();
        if count == 0 {
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

    /// Whether that operation in flight waits until it is released.
    pub(super) fn is_held(&self, at: usize) -> bool {
        self.held.contains(&self.in_flight[at].id)
    }
}
