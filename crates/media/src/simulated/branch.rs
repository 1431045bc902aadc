//! Copies of a backing at a moment.

use super::state::{InFlight, Request, State};
use super::{SimMedia, SimRng};
use parking_lot::Mutex;

impl SimMedia {
    /// Returns an independent copy of the backing, to cut its power now and check the result while the
    /// original goes on. Operations in flight are in flight there too, except reads. Nobody waits for them.
    pub fn branch(&self, rng: SimRng) -> SimMedia {
        let state = self.state.lock();
        SimMedia { size_bytes: self.size_bytes, state: Mutex::new(state.branch(rng)) }
    }
}

impl State {
    fn branch(&self, rng: SimRng) -> State {
        // A read has no effect on the backing.
        let in_flight = self.in_flight.iter().filter_map(|op| {
            let request = match &op.request {
                Request::Read { .. } => return None,
                Request::Write { offset, buf, issued_at } => {
                    Request::Write { offset: *offset, buf: buf.clone(), issued_at: *issued_at }
                }
                Request::Sync { covers } => Request::Sync { covers: *covers },
                Request::Discard { offset, len } => Request::Discard { offset: *offset, len: *len },
            };
            Some(InFlight { id: op.id, request, waker: None, abandoned: true, priority: op.priority })
        });
        State {
            rng,
            faults: self.faults.clone(),
            counts: self.counts.clone(),
            live: self.live.clone(),
            durable: self.durable.clone(),
            unsynced: self.unsynced.clone(),
            past: self.past.clone(),
            sticky: self.sticky.clone(),
            hidden: self.hidden.clone(),
            lost: self.lost.clone(),
            in_flight: in_flight.collect(),
            answers: Default::default(),
            next_id: self.next_id,
            completed: self.completed,
            syncs: self.syncs,
            sync_lag: self.sync_lag,
            vouched: self.vouched,
            misdirected_below: self.misdirected_below,
            read_log_numbers: self.read_log_numbers,
            is_data: self.is_data,
            called_durable: self.called_durable,
            vouching_from: self.vouching_from,
            failures: self.failures,
            failed_syncs_reported: self.failed_syncs_reported,
            shows: self.shows,
            tear_bytes: self.tear_bytes,
            ghosts: self.ghosts.clone(),
            bad: self.bad.clone(),
            bad_copy: self.bad_copy,
            order: self.order,
            held: Default::default(),
            hangs: false,
            watched: Default::default(),
        }
    }
}
