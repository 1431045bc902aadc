//! Fault 13: pages that whoever tests a drive loses, and what there is to choose from.

use std::sync::Arc;

use super::SimMedia;
use super::state::{Request, State};
use crate::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

impl SimMedia {
    /// Fault 13: the page that holds this byte cannot be read until it is written or discarded.
    pub fn lose_page(&self, byte: u64) {
        self.state.lock().lost.insert(byte / PAGE);
    }

    /// Fault 13: the page that holds this byte holds something else from now on, durably.
    pub fn replace_page(&self, byte: u64, content: [u8; PAGE_BYTES]) {
        self.state.lock().replace(byte / PAGE, Some(Arc::new(content)));
    }

    /// Pages that were lost held data of users that nothing can make again, and nothing else.
    pub fn note_lost_data(&self) {
        self.state.lock().counts.lost_data += 1;
    }

    /// Pages that cannot be read, by their first bytes.
    pub fn lost_pages(&self) -> Vec<u64> {
        self.state.lock().lost.iter().map(|at| at * PAGE).collect()
    }

    /// Ends fault 13 for an unreadable page: it holds what it held.
    pub fn find_page(&self, byte: u64) {
        self.state.lock().lost.remove(&(byte / PAGE));
    }

    /// Content of the page that holds this byte. `None` if it holds nothing, cannot be read, or is not
    /// durable.
    pub fn durable_page(&self, byte: u64) -> Option<Arc<[u8; PAGE_BYTES]>> {
        let state = self.state.lock();
        let at = byte / PAGE;
        let durable = &state.durable.get(&at)?.page;
        let is_there = state.live.get(&at).is_some_and(|live| Arc::ptr_eq(live, durable));
        let is_right = is_there && !state.lost.contains(&at) && !state.is_written(at);
        is_right.then(|| durable.clone())
    }

    /// The same, durable or not.
    pub fn shown_page(&self, byte: u64) -> Option<Arc<[u8; PAGE_BYTES]>> {
        let state = self.state.lock();
        let at = byte / PAGE;
        state.live.get(&at).filter(|_| !state.lost.contains(&at)).cloned()
    }

    /// What the page that holds this byte held before, if it was replaced lately.
    pub fn older_page(&self, byte: u64) -> Option<Arc<[u8; PAGE_BYTES]>> {
        let state = self.state.lock();
        let mut pages = state.past.iter().rev().flat_map(|past| &past.pages);
        pages.find(|(at, _, _)| *at == byte / PAGE).and_then(|(_, _, old)| old.clone())
    }

    /// Largest number of a log entry that durable writes call durable.
    pub fn called_durable(&self) -> u64 {
        self.state.lock().called_durable
    }

    /// Another log begins, whose numbers begin anew.
    pub fn begin_log(&self) {
        self.state.lock().called_durable = 0;
    }
}

impl State {
    /// Pages of a range can be read again.
    pub(super) fn find_again(&mut self, offset: u64, len: u64) {
        let pages = offset / PAGE..(offset + len) / PAGE;
        self.lost.retain(|at| !pages.contains(at));
    }

    fn is_written(&self, at: u64) -> bool {
        self.in_flight.iter().any(|op| match &op.request {
            Request::Write { offset, buf, .. } => {
                (*offset..*offset + buf.len() as u64).contains(&(at * PAGE))
            }
            _ => false,
        })
    }
}
